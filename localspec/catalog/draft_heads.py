"""Draft heads that read a target's states: which files are heads, and which target each fits.

EAGLE-3 heads and separate prediction layers (MTP) have files of their own; prediction layers may
also be inside their model's file. A head reads what its target computes, so it works only with the
target that it was made for; `check` names the first difference. Pure Python. Each rule stands for
an assertion of the native loader or graph, which would end the process.
"""

from __future__ import annotations

import functools
import mmap
import struct
from collections.abc import Iterable
from pathlib import Path

from localspec import paths
from localspec.catalog import compact_heads, header, pairing, rules
from localspec.catalog.header import Header
from localspec.catalog.reader import INT32, UINT32, Array, Parsed
from localspec.errors import BadGGUF, BadPair, PullError, Unreadable
from localspec.wire.values import DraftHead

EAGLE3_TAPS = 3
"""Number of layers whose inputs an EAGLE-3 head is given; llama.cpp accepts no other number."""
_PREDICTS = frozenset(
    {"cohere2moe", "deepseek2", "deepseek32", "glm-dsa", "glm4moe", "hy_v3", "mimo2",
     "nemotron_h_moe", "qwen35", "qwen35moe", "qwen3next", "step35"}
)  # fmt: skip
"""Architectures whose prediction layers llama.cpp computes (`graph_mtp` in its `src/models`)."""
_ONE_OF_SEVERAL = frozenset({"hy_v3", "mimo2", "step35"})
"""Those of `_PREDICTS` whose graph accepts several such layers; the others need exactly one."""
_NOT_YET = {
    "dflash": "a DFlash draft head",
    "dspark": "a DSpark draft head",
    **dict.fromkeys(
        ("gemma4-assistant", "gemma4_assistant", "gemma4_mtp"), "an assistant of a Gemma 4"
    ),
}
_KINDS = {"eagle3": "eagle3", **dict.fromkeys(_NOT_YET, "")}
_PEEKED_BYTES = 4096


def inside(target: Header) -> tuple[DraftHead | None, str]:
    """The prediction layers in a model's own file, or why they cannot be run; "" if it has none."""
    count = target.number("nextn_predict_layers")
    first = target.layers - count
    names = {tensor.name for tensor in target.tensors}
    if count < 1 or first < 1 or f"blk.{first}.nextn.eh_proj.weight" not in names:
        return None, ""
    if difference := _not_computed(target):
        return None, f"{target.file} has prediction layers. {difference}"
    return DraftHead("mtp", count=count), ""


def _not_computed(head: Header) -> str:
    """The reason why prediction layers cannot be run; "" if they can."""
    kind, count = head.architecture, head.number("nextn_predict_layers")
    if kind not in _PREDICTS:
        return f'llama.cpp does not compute the prediction layers of a "{kind}".'
    if count == 1 or (count > 1 and kind in _ONE_OF_SEVERAL):
        return ""
    return f'It has {count} prediction layers; of a "{kind}" llama.cpp computes one.'


def is_head(path: Path) -> bool:
    """Whether a GGUF declares itself to be a draft head, which is no model. Never raises."""
    try:
        found = path.stat()
    except OSError:
        return False
    return _kind(path, found.st_size, found.st_mtime) is not None


def find(
    target: Path,
    candidates: Iterable[Path],
    others: Iterable[Path] = (),
    *,
    complete: bool = True,
) -> tuple[DraftHead | None, str]:
    """The first head that fits the model at `target`, or why none does; "" if there is no head.

    A head that fits one of the `others` is not reported as a fault of this model. A compact head is
    completed, which takes a second; with `complete=False` it is not, its path is that of the
    compact file, and only its key is compared. Blocks. Results are remembered while the files stay
    unchanged. Raises BadGGUF for the target.
    """
    why = ""
    ours = header.stamp(target)
    for path in candidates:
        if path == target or not is_head(path):
            continue
        found = _checked(target, ours, path, header.stamp(path), complete=complete)
        if isinstance(found, DraftHead) and not Path(found.path).exists():
            _checked.cache_clear()  # the directory of completed heads was emptied
            found = _checked(target, ours, path, header.stamp(path), complete=complete)
        if isinstance(found, DraftHead):
            return found, ""
        stamp = header.stamp(path)
        if not why and not any(
            _fits(other, header.stamp(other), path, stamp) for other in others if other != target
        ):
            why = found
    mine, fault = _inside(target, ours)
    return mine, "" if mine else why or fault


@functools.lru_cache(maxsize=256)
def _fits(target: Path, ours: tuple[int, float], head: Path, theirs: tuple[int, float]) -> bool:
    """Whether a head was made for that model; a compact one is not completed to find out."""
    try:
        if compact_heads.is_compact(header.parse(head)):
            return compact_heads.made_for(head, target)
        return isinstance(_checked(target, ours, head, theirs, complete=False), DraftHead)
    except BadGGUF:
        return False


@functools.lru_cache(maxsize=64)
def _inside(target: Path, _stamp: tuple[int, float]) -> tuple[DraftHead | None, str]:
    return inside(header.read(target))


@functools.lru_cache(maxsize=256)
def _checked(
    target: Path,
    _ours: tuple[int, float],
    path: Path,
    _theirs: tuple[int, float],
    *,
    complete: bool,
) -> DraftHead | str:
    """The head, or why it does not fit; with `complete`, a compact one is completed first."""
    ours = header.read(target)
    try:
        parsed = header.parse(path)
        compact = compact_heads.is_compact(parsed)
        if compact and not complete and compact_heads.made_for(path, target):
            return DraftHead("eagle3", str(path), compact_heads.layers(parsed))
        return check(ours, compact_heads.complete(path, target) if compact else path)
    except (BadGGUF, BadPair, PullError) as error:
        return error.message


@functools.lru_cache(maxsize=1024)
def _kind(path: Path, _size: int, _modified: float) -> str | None:
    """The kind of a head: its architecture, or "mtp" for prediction layers; None for other files.

    Writers put the architecture first, so the first bytes of most files suffice.
    """
    try:
        with paths.open_regular(path) as file:
            start = file.read(_PEEKED_BYTES)
        architecture = _first_key(start)
        if architecture is not None and architecture not in _KINDS and not _named(path):
            return None
        parsed = header.parse(path)
    except (BadGGUF, OSError):
        return None
    told = parsed.metadata.get("general.architecture")
    if told in _KINDS:
        return str(told)
    return "mtp" if _predicts_only(parsed) else None


def _named(path: Path) -> bool:
    """Whether a name says prediction layers, whose architecture is the same as their model's."""
    words = path.name.lower().replace("_", "-").split("-")
    return any(word in {"mtp", "nextn"} for word in words)


def _first_key(start: bytes) -> str | None:
    """The architecture, if it is the first key of a GGUF; otherwise None."""
    key = b"general.architecture"
    place = 24 + 8 + len(key)
    if start[:4] != b"GGUF" or start[32:place] != key or len(start) < place + 12:
        return None
    kind, length = struct.unpack_from("<IQ", start, place)
    text = start[place + 12 : place + 12 + length]
    return text.decode("utf-8", "replace") if kind == 8 and len(text) == length else None  # noqa: PLR2004 - a string


def _predicts_only(parsed: Parsed) -> bool:
    try:
        rules.has_layers_of_its_own(parsed)
    except BadGGUF:
        return True
    return False


def check(target: Header, path: Path) -> DraftHead:
    """The head in a file, after checking that it fits the target.

    Raises:
        BadGGUF: the file cannot be used.
        BadPair: it was made for another model, or cannot be run; names the first reason.
    """
    parsed = header.parse(path)
    architecture = str(parsed.metadata.get("general.architecture", ""))
    if architecture in _NOT_YET:
        raise BadPair(
            f"{path.name} is {_NOT_YET[architecture]}, which LocalSpec does not run yet.",
            fix="An EAGLE-3 head, or prediction layers (MTP), can be used.",
        )
    try:
        rules.check_head(parsed)
        size = path.stat().st_size
    except BadGGUF as error:
        raise BadGGUF(f"{path.name} cannot be used. {error.message}", fix=error.fix) from None
    except OSError as error:
        raise Unreadable(f"{path.name} cannot be read: {error.strerror}.") from error
    theirs = Header(path.name, parsed.version, parsed.metadata, parsed.tensors, size)
    find_difference = _eagle3 if architecture == "eagle3" else _mtp
    difference = find_difference(target, theirs) or _words(target, theirs)
    if not difference and architecture == "eagle3":
        difference = _draft_words(path, parsed, theirs)
    if difference:
        raise BadPair(
            f"{path.name} is a draft head for another model. {difference}",
            fix="Use a head that was made for this very model.",
        )
    if architecture != "eagle3":
        count = theirs.number("nextn_predict_layers")
        return DraftHead("mtp", str(path), file_bytes=size, count=count)
    names = {tensor.name for tensor in theirs.tensors}
    shares = tuple(name for name in ("token_embd", "output") if f"{name}.weight" not in names)
    return DraftHead("eagle3", str(path), _layers(theirs), shares, size)


def _layers(head: Header) -> tuple[int, ...]:
    value = head.metadata.get("eagle3.target_layers")
    if not isinstance(value, Array) or value.element_type not in {INT32, UINT32}:
        return ()
    return value.numbers()


def _eagle3(target: Header, head: Header) -> str:
    """The first difference between an EAGLE-3 head and its target; "" if there is none."""
    trunk = target.layers - target.number("nextn_predict_layers")
    hidden, width = head.number("target_hidden_size"), head.number("embedding_length")
    layers, ours = _layers(head), target.number("embedding_length")
    names = {tensor.name for tensor in head.tensors}
    if hidden != ours:
        return f"Its target has states of {hidden} numbers, this one of {ours}."
    if len(layers) != EAGLE3_TAPS or not all(0 < layer < trunk for layer in layers):
        said = ", ".join(map(str, layers[:8])) or "none"
        return f"It is fed by layers {said}; this target has {trunk}."
    if not {"token_embd.weight", "output.weight"} <= names and width != ours:
        return f"It shares the target's words, with {width} numbers each; here they have {ours}."
    return _shape(head)


def _shape(head: Header) -> str:
    """The fault for which no target can run an EAGLE-3 head; "" if there is none."""
    named = {tensor.name: tensor for tensor in head.tensors}
    output, words = named.get("output.weight"), named.get("d2t")
    if head.layers != 1:
        return f"It has {head.layers} layers; one is what such a head has."
    if words is not None and (output is None or output.shape[-1:] != words.shape):
        return "Its list of words does not go with its output."
    if words is not None and words.type.name != "I64":
        return f"Its list of words is {words.type.name}; it has to be I64."
    keys, values = (head.number(f"attention.{name}_length", -1) for name in ("key", "value"))
    return "" if keys == values else "Its keys and values have different lengths."


def _mtp(target: Header, head: Header) -> str:
    """The first difference between separate prediction layers and their target; "" for none."""
    if head.architecture != target.architecture:
        return f'It is for a "{head.architecture}", and this is a "{target.architecture}".'
    if difference := _not_computed(head):
        return difference
    theirs, ours = head.number("embedding_length"), target.number("embedding_length")
    if theirs != ours:
        return f"Its target has states of {theirs} numbers, this one of {ours}."
    trunks = [each.layers - each.number("nextn_predict_layers") for each in (head, target)]
    if trunks[0] != trunks[1]:
        return f"Its target has {trunks[0]} layers, this one {trunks[1]}."
    return ""


def _words(target: Header, head: Header) -> str:
    """The first difference between the vocabularies of target and head; "" if there is none."""
    if head.vocabulary_size > target.vocabulary_size:
        return f"It has {head.vocabulary_size} tokens, and the target {target.vocabulary_size}."
    return pairing.check(target, head).difference.replace("in the draft", "in the head")


def _draft_words(path: Path, parsed: Parsed, head: Header) -> str:
    """A sentence if an EAGLE-3 head's list of words leaves its vocabulary. Reads that list."""
    named = {tensor.name: tensor for tensor in parsed.tensors}
    if (words := named.get("d2t")) is None:
        return ""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        start = parsed.data_start + words.offset
        numbers = struct.unpack(f"<{words.num_elements}q", data[start : start + words.num_bytes])
    wrong = next((each for each in numbers if not 0 <= each < head.vocabulary_size), None)
    if wrong is None:
        return ""
    return f"It drafts token {wrong}, and there are {head.vocabulary_size}."
