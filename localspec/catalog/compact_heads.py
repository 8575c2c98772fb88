"""Compact EAGLE-3 heads: the trained weights, without the parts that the target's file has too.

The rows of a head's output matrix are rows of the target's own, and its tokenizer is the target's.
A compact GGUF leaves out both, which makes it 19 MB instead of 50 and lets it fit every
quantization of the target. Its key is the SHA-256 of the target's last norm, which every
quantization keeps in F32. `complete` makes the file for llama.cpp and puts it in the user's cache.
Pure Python, before native code sees the file.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import shutil
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from localspec import paths
from localspec.catalog import header, writer
from localspec.catalog.reader import STRING, Array, Parsed, Tensor, refuse
from localspec.catalog.transfer import disk_error
from localspec.errors import BadGGUF, BadPair, Unreadable

ARCHITECTURE = "eagle3"
KEY = "localspec.target"
"""Key of the metadata that holds the digest of the target's last norm."""
NORM = "output_norm.weight"
_MADE_BY = "localspec.completed"
"""Key of a completed file that identifies the two files that it was made from."""
_VOCABULARY = "eagle3.vocab_size"
_WORDS, _OUTPUT = "d2t", "output.weight"
_TABLES = "tokenizer."
_TEMPLATE = "tokenizer.chat_template"
_NO_NUMBER = 0x7C
"""Exponent bits of the upper byte of a half; all of them are set in NaN and infinities."""
_HALVES = {"F16": 2, "Q4_0": 18, "Q5_0": 22, "Q8_0": 34}
"""Types of a head's matrices, and bytes of a block; each block begins with its half."""
_SINGLE, _WIDE = "F32", "I64"


class Sizes(NamedTuple):
    """Dimensions of a head.

    `width` is that of its vectors, `inner` that of its feed-forward layer. `heads` are attention
    heads, `groups` key heads. `words` counts the tokens that it may draft.
    """

    width: int
    inner: int
    heads: int
    groups: int
    words: int

    @property
    def head(self) -> int:
        """The numbers in a vector of one attention head."""
        return self.width // self.heads

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of all trained tensors, outermost first, by llama.cpp's names."""
        width, inner, taps = self.width, self.inner, 3 * self.width
        keys = self.groups * self.head
        block = {
            "attn_norm": (width,),
            "attn_norm_2": (width,),
            "attn_q": (width, 2 * width),
            "attn_k": (keys, 2 * width),
            "attn_v": (keys, 2 * width),
            "attn_output": (width, width),
            "ffn_norm": (width,),
            "ffn_gate": (inner, width),
            "ffn_up": (inner, width),
            "ffn_down": (width, inner),
        }
        outside = {"enc.output_norm": (taps,), "fc": (width, taps), "output_norm": (width,)}
        named = outside | {f"blk.0.{name}": shape for name, shape in block.items()}
        return {f"{name}.weight": shape for name, shape in named.items()}


class Trained(NamedTuple):
    """A compact head before it is written to a file.

    `key` is its target's, and `vocabulary` counts the target's tokens. `layers` are the target's
    layers whose inputs are tapped. `words` are the target's ids of the tokens that the head may
    draft. `weights` maps the name of each tensor of `Sizes.shapes` to its ggml type and bytes.
    """

    name: str
    key: str
    sizes: Sizes
    vocabulary: int
    layers: tuple[int, int, int]
    context: int
    epsilon: float
    rope_base: float
    words: Sequence[int]
    weights: Mapping[str, tuple[str, bytes]]


def compact(head: Trained) -> bytes:
    """The bytes of a head's compact file."""
    sizes = head.sizes
    described: dict[str, str | int | float | bool | list[str] | list[int]] = {
        "general.architecture": ARCHITECTURE,
        "general.name": head.name,
        KEY: head.key,
        "eagle3.context_length": head.context,
        "eagle3.embedding_length": sizes.width,
        "eagle3.block_count": 1,
        "eagle3.feed_forward_length": sizes.inner,
        "eagle3.attention.head_count": sizes.heads,
        "eagle3.attention.head_count_kv": sizes.groups,
        "eagle3.attention.layer_norm_rms_epsilon": head.epsilon,
        "eagle3.rope.freq_base": head.rope_base,
        "eagle3.rope.dimension_count": sizes.head,
        _VOCABULARY: head.vocabulary,
        "eagle3.target_layers": list(head.layers),
        "eagle3.target_hidden_size": sizes.width,
        "eagle3.norm_before_fc": True,
        "eagle3.norm_before_residual": False,
    }
    shapes = sizes.shapes()
    tensors = [writer.Tensor(name, shapes[name], kind) for name, (kind, _) in head.weights.items()]
    tensors.append(writer.Tensor(_WORDS, (len(head.words),), _WIDE))
    data = [given for _, given in head.weights.values()]
    data.append(struct.pack(f"<{len(head.words)}q", *head.words))
    return writer.header(described, tensors) + b"".join(
        part + writer.padding(len(part)) for part in data
    )


def is_compact(parsed: Parsed) -> bool:
    """Whether a GGUF is a compact head, which has to be completed before it is loaded."""
    keys = parsed.metadata
    return keys.get("general.architecture") == ARCHITECTURE and KEY in keys and _MADE_BY not in keys


def layers(head: Parsed) -> tuple[int, ...]:
    """The target's layers whose inputs the head is given, as its file says."""
    told = head.metadata.get("eagle3.target_layers")
    return tuple(told.numbers()) if isinstance(told, Array) else ()


def key(target: Parsed, data: memoryview) -> str:
    """A model's key, from its file's bytes. Raises KeyError if it has no last norm."""
    named = {tensor.name: tensor for tensor in target.tensors}
    norm = named[NORM]
    start = target.data_start + norm.offset
    return hashlib.sha256(data[start : start + norm.num_bytes]).hexdigest()


def key_of(target: Path) -> str:
    """The key of the model in a file. Raises BadGGUF, and KeyError if it has no last norm."""
    parsed = header.parse(target)  # before mapping, so that an empty or broken file is refused
    with _mapped(target) as data, memoryview(data) as view:
        return key(parsed, view)


def made_for(made: Path, target: Path) -> bool:
    """Whether the target's key is the one that `made` names. Raises BadGGUF."""
    try:
        return header.parse(made).metadata[KEY] == key_of(target)
    except KeyError:
        return False


def complete(head: Path, target: Path) -> Path:
    """The file that llama.cpp loads, made from a compact head and its target if it is missing.

    Only the user can read it. It has the head's name, in a directory named after the paths and
    current states of both files; when either file changes, a new one replaces it.

    Raises:
        BadGGUF: a file cannot be used.
        BadPair: the head was made for another model; names the first difference.
        DiskFull, PullError: the file cannot be written.
    """
    try:
        files = [path.resolve() for path in (head, target)]
        stamps = "".join(f"{path}\0{_stamp(path)}\0" for path in files)
    except OSError as error:
        raise Unreadable(f"{head.name} or its target cannot be read: {error.strerror}.") from error
    pair = _digest("\0".join(map(str, files)))
    made = _digest(stamps)
    place = paths.cache_dir() / "heads" / f"{pair}-{made}" / head.name
    if _is_whole(place, made):
        return place
    whole = _completed(head, target, made)
    try:
        paths.make_private(place.parent.parent)
        paths.write_atomically(place, whole)
        for other in place.parent.parent.glob(f"{pair}-*"):
            if other != place.parent:
                shutil.rmtree(other, ignore_errors=True)
    except OSError as error:
        raise disk_error(error, place, len(whole)) from error
    return place


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _stamp(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ino


def _is_whole(place: Path, made: str) -> bool:
    """Whether a completed file is there, whole, and made from these files."""
    with contextlib.suppress(BadGGUF):
        return header.parse(place).metadata.get(_MADE_BY) == made
    return False


def _completed(head: Path, target: Path, made: str) -> bytes:
    """The bytes of the completed file. Raises BadGGUF, BadPair."""
    ours, model = header.parse(head), header.parse(target)
    vocabulary = header.read(target).vocabulary_size
    with _mapped(head) as data, _mapped(target) as model_data:
        words = _checked(head.name, ours, data)
        difference = _difference(ours, model, vocabulary, model_data)
        rows = _named(model, _OUTPUT) or _named(model, "token_embd.weight")
        if rows is None or rows.shape[0] != ours.metadata["eagle3.embedding_length"]:
            difference = difference or "This one has no output matrix of that width."
        if rows is not None:
            difference = difference or _word_difference(words, vocabulary, rows)
        if difference or rows is None:
            raise BadPair(
                f"{head.name} is a draft head for another model than {target.name}. {difference}",
                fix="Use a head that was made for this very model.",
            )
        values = {
            name: writer.packed(value, ours.kinds[name])
            for name, value in ours.metadata.items()
            if name != "general.alignment" and not name.startswith(_TABLES)
        }
        values[_MADE_BY] = writer.packed(made, STRING)
        values |= {
            name: writer.packed(value, model.kinds[name])
            for name, value in model.metadata.items()
            if name.startswith(_TABLES) and not name.startswith(_TEMPLATE)
        }
        kept = [tensor for tensor in ours.tensors if tensor.name != _OUTPUT]
        tensors = [
            writer.Tensor(tensor.name, tensor.shape[::-1], tensor.type.name) for tensor in kept
        ]
        tensors.append(writer.Tensor(_OUTPUT, (len(words), rows.shape[0]), rows.type.name))
        parts = [_bytes(ours, tensor, data) for tensor in kept]
        parts.append(_gathered(model, rows, model_data, words))
    return writer.assemble(values, tensors) + b"".join(
        part + writer.padding(len(part)) for part in parts
    )


@contextlib.contextmanager
def _mapped(path: Path) -> Iterator[mmap.mmap]:
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data
    except OSError as error:
        raise Unreadable(f"{path.name} cannot be read: {error.strerror}.") from error


def _named(parsed: Parsed, name: str) -> Tensor | None:
    return next((tensor for tensor in parsed.tensors if tensor.name == name), None)


def _bytes(parsed: Parsed, tensor: Tensor, data: mmap.mmap) -> bytes:
    start = parsed.data_start + tensor.offset
    return data[start : start + tensor.num_bytes]


def _gathered(parsed: Parsed, rows: Tensor, data: mmap.mmap, words: Sequence[int]) -> bytes:
    """The rows of a matrix for these words, as stored, one after the other."""
    size = rows.num_bytes // (rows.num_elements // rows.shape[0])
    start = parsed.data_start + rows.offset
    return b"".join(data[start + word * size : start + (word + 1) * size] for word in words)


def _checked(name: str, parsed: Parsed, data: mmap.mmap) -> tuple[int, ...]:
    """The head's words, after all checks of a compact file. Raises BadGGUF."""
    try:
        sizes = _sizes(parsed)
        _check_shapes(parsed, sizes)
        for tensor in parsed.tensors:
            if not _are_numbers(tensor, _bytes(parsed, tensor, data)):
                refuse(f"Tensor {tensor.name} holds what is no number.")
    except BadGGUF as error:
        raise BadGGUF(f"{name} cannot be used. {error.message}", fix=error.fix) from None
    words = _named(parsed, _WORDS)
    assert words is not None  # noqa: S101 - among the shapes
    return struct.unpack(f"<{words.num_elements}q", _bytes(parsed, words, data))


def _sizes(parsed: Parsed) -> Sizes:
    if parsed.metadata.get("general.architecture") != ARCHITECTURE or KEY not in parsed.metadata:
        refuse("It is no EAGLE-3 head that was made for the rows of its target.")
    names = ("embedding_length", "feed_forward_length", "attention.head_count")
    width, inner, heads = (_count(parsed, f"eagle3.{name}") for name in names)
    groups = _count(parsed, "eagle3.attention.head_count_kv")
    if width % heads or heads % groups:
        refuse(f"{heads} attention heads of {groups} groups cannot share {width} numbers.")
    if (count := _count(parsed, "eagle3.block_count")) != 1:
        refuse(f"It has {count} layers; one is what such a head has.")
    words = _named(parsed, _WORDS)
    if words is None or words.type.name != _WIDE or len(words.shape) != 1:
        refuse("It has no list of words.")
    return Sizes(width, inner, heads, groups, words.num_elements)


def _count(parsed: Parsed, name: str) -> int:
    value = parsed.metadata.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        refuse(f"Key {name} is no number of anything.")
    return value


def _check_shapes(parsed: Parsed, sizes: Sizes) -> None:
    """Check that all tensors of a head are there, and nothing else. Raises BadGGUF."""
    wanted = sizes.shapes() | {_WORDS: (sizes.words,)}
    there = {tensor.name: tensor for tensor in parsed.tensors}
    for name, shape in wanted.items():
        if name not in there:
            refuse(f"Tensor {name} is missing.")
        if (found := there[name].shape[::-1]) != shape:
            refuse(f"Tensor {name} has the shape {found}; it has to be {shape}.")
        kinds = {_SINGLE} if len(shape) == 1 else {_SINGLE, *_HALVES}
        if name != _WORDS and (kind := there[name].type.name) not in kinds:
            refuse(f"Tensor {name} is {kind}; {', '.join(sorted(kinds))} can be used.")
    if more := sorted(there.keys() - wanted.keys()):
        refuse(f"Tensor {more[0]} has no place in it.")


def _are_numbers(tensor: Tensor, data: bytes) -> bool:
    """Whether every weight is finite: neither NaN nor infinite."""
    if tensor.type.name == _WIDE:
        return True
    if tensor.type.name == _SINGLE:
        exponents = zip(data[3::4], data[2::4], strict=True)
        return not any(high & 0x7F == 0x7F and low & 0x80 for high, low in set(exponents))  # noqa: PLR2004 - all eight bits of an exponent
    return all(
        upper & _NO_NUMBER != _NO_NUMBER for upper in set(data[1 :: _HALVES[tensor.type.name]])
    )


def _difference(head: Parsed, target: Parsed, vocabulary: int, data: mmap.mmap) -> str:
    """The first difference between a head and its target; "" if there is none."""
    architecture = target.metadata["general.architecture"]
    width = target.metadata[f"{architecture}.embedding_length"]
    theirs = head.metadata.get("eagle3.target_hidden_size")
    if theirs != width or head.metadata["eagle3.embedding_length"] != width:
        return f"Its target has states of {theirs} numbers, this one of {width}."
    ours: Any = target.metadata[f"{architecture}.block_count"]
    tapped = layers(head)
    if len(tapped) != 3 or not all(0 < each < ours for each in tapped):  # noqa: PLR2004 - EAGLE-3
        said = ", ".join(map(str, tapped[:8])) or "none"
        return f"It is fed by layers {said}; this target has {ours}."
    if (tokens := head.metadata.get(_VOCABULARY)) != vocabulary:
        return f"Its target has {tokens} tokens, this one {vocabulary}."
    try:
        with memoryview(data) as view:
            same = head.metadata[KEY] == key(target, view)
    except KeyError:
        return "This one has no last norm."
    return "" if same else "Their last norms differ."


def _word_difference(words: Sequence[int], vocabulary: int, rows: Tensor) -> str:
    """A sentence about the first word of a head that is no token of its target; "" for none."""
    most = min(vocabulary, rows.num_elements // rows.shape[0])
    wrong = next((each for each in words if not 0 <= each < most), None)
    return "" if wrong is None else f"It drafts token {wrong}, and there are {most}."
