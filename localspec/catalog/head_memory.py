"""Computes the memory of a head that is fed with its target's states, from headers alone.

A head takes memory for its weights, its own KV of the last tokens of each session, its output rows,
and the rows that the target's forwards leave for it. A head that shares the target's embeddings or
output also needs a small context beside the target's.
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
"""Rows of one forward of a head: with 512 rows the logits of a vocabulary would take 311 MB."""
CELLS = 4096
"""Tokens of a session that a head remembers. One layer needs little of the far text; a head begins
a longer text anew, which costs one draft."""
ANCHOR_CELLS, ANCHOR_ROWS = 64, 8
"""Tokens and rows of the context beside the target's through which a head finds the embeddings and
output that it shares: unlike the target's own, that context is never freed to grow."""
_TOKENS = "tokenizer.ggml.tokens"


@dataclass(frozen=True, slots=True)
class FedOutline:
    """The facts that decide how much memory a head takes.

    `inputs` counts the numbers that each row of the target leaves for the head. `apart` tells that
    the head has a file of its own, `beside` that it needs a context beside the target's.
    """

    model: Outline
    inputs: int
    apart: bool = True
    beside: bool = False


def unused(load: Load) -> str:
    """The reason why a head that fits its target is not opened; "" if it is opened."""
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
    """The outlines of the target and of its head, None without a head. Raises BadGGUF."""
    head = load.head
    if head is None or unused(load):
        return outline(target), None
    whole = outline(target, predicts=not head.path)
    return whole, _apart(target, head) if head.path else _inside(target, whole)


def _inside(target: Header, whole: Outline) -> FedOutline:
    """The outline of prediction layers in the target's file, whose weights the target counts."""
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
    """The outline of a head in its own file; a compact one gets output rows of its target."""
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
