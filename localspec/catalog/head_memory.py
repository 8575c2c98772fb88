"""Computes the memory of a head that is fed with its target's states, from headers alone.

A head has weights, KV of its own for the last tokens of each session, rows of output, the rows
that its target's forwards leave for it, and, where it shares the target's words, a small context
beside the target's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from localspec.catalog import compact_heads, header
from localspec.catalog.header import Header
from localspec.catalog.memory import Outline, kv_values, outline
from localspec.wire.messages import Load
from localspec.wire.values import DraftHead

ROWS = 64
"""Rows of a forward of a head: logits of a whole vocabulary for each would be 311 MB with 512."""
CELLS = 4096
"""Tokens of a session that a head remembers. What it needs is near, and one layer looks at it; a
text that is longer is begun anew, which costs one draft."""
ANCHOR_CELLS, ANCHOR_ROWS = 64, 8
"""Tokens and rows of the context beside the target's by which a head finds the words it shares: one
that is never freed while the target's own grows."""
_TOKENS = "tokenizer.ggml.tokens"


@dataclass(frozen=True, slots=True)
class FedOutline:
    """The facts that decide how much memory a head takes.

    `inputs` are the numbers that a row of the target leaves for it. One `apart` has a file of its
    own, and one `beside` needs a context beside the target's.
    """

    model: Outline
    inputs: int
    apart: bool = True
    beside: bool = False


def unused(load: Load) -> str:
    """The reason why the head of a load, which fits, is not opened; "" for none."""
    head, machine = load.head, load.machine
    if head is None:
        return load.no_head
    if head.kind not in load.config.speculation.drafters:
        return "speculation.drafters does not name it"
    if load.safe_kernels:
        return "safe kernels are used"
    if machine and (machine.head is None or machine.head.kind != "fed"):
        return "the simulated machine has no price for it"
    return ""


def outlines(target: Header, load: Load) -> tuple[Outline, FedOutline | None]:
    """The outlines of the target and of its head; None without one. Raises BadGGUF."""
    head = load.head
    if head is None or unused(load):
        return outline(target), None
    whole = outline(target, predicts=not head.path)
    return whole, _apart(target, head) if head.path else _inside(target, whole)


def _inside(target: Header, whole: Outline) -> FedOutline:
    """Prediction layers in the target's file, whose weights are the target's."""
    none = (0,) * whole.blocks
    own = replace(
        whole,
        input_bytes=0,
        device_bytes=none,
        host_bytes=none,
        kv_values=_predicting(target),
        state_values=(),
        expert_bytes=(),
    )
    return FedOutline(own, whole.width, apart=False)


def _apart(target: Header, head: DraftHead) -> FedOutline:
    """A head in a file of its own, of which a compact one has the output's rows of its target."""
    path = Path(head.path)
    parsed = header.parse(path)
    keys = {_TOKENS: target.metadata[_TOKENS], **parsed.metadata}
    found = Header(path.name, parsed.version, keys, parsed.tensors, path.stat().st_size)
    own = outline(found, predicts=True)
    if head.kind == "mtp":
        return FedOutline(replace(own, kv_values=_predicting(found)), own.width)
    tensors = {tensor.name: tensor for tensor in (*target.tensors, *found.tensors)}
    rows = tensors.get("output.weight", tensors["token_embd.weight"])
    gathered = 0
    if compact_heads.is_compact(parsed) and "d2t" in tensors:
        gathered = tensors["d2t"].num_elements * rows.num_bytes // rows.shape[-1]
    own = replace(
        own,
        device_bytes=(*own.device_bytes[:-1], own.device_bytes[-1] + gathered),
        host_bytes=(*own.host_bytes[:-1], own.host_bytes[-1] + gathered),
        vocabulary=target.vocabulary_size,
    )
    inputs = len(head.layers) * target.number("embedding_length")
    names = {tensor.name for tensor in found.tensors}
    return FedOutline(own, inputs, beside="token_embd.weight" not in names)


def _predicting(found: Header) -> tuple[int, ...]:
    """KV values of the prediction layers alone, by layer."""
    trunk = found.layers - found.number("nextn_predict_layers")
    return (0,) * trunk + kv_values(found)[trunk:]
