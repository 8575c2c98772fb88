"""LoRA adapters: which files are adapters, and whether one fits a model. Pure Python.

Each rule stands for an assertion of the native loader or graph, which would end the process. An
adapter that the configuration names has the scale given there. An adapter that only lies beside the
model has scale 0: it is loaded, and changes nothing until a request asks for it.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from localspec import paths
from localspec.catalog import header
from localspec.catalog.header import Header
from localspec.catalog.reader import FLOAT32, Parsed, Tensor, refuse
from localspec.errors import BadGGUF, BadPair, ConfigError, escaped
from localspec.wire.values import Adapter

MOST = 16
"""Most adapters of one model: each is read into memory with the model."""
_PEEKED_BYTES = 1 << 16
"""Bytes in which the kind of a file is looked for: writers put it before their long lists."""
_SAYS_ADAPTER = struct.pack("<Q", 12) + b"general.type" + struct.pack("<IQ", 8, 7) + b"adapter"
_MATRICES = frozenset({"F32", "F16", "BF16", "Q8_0"})
"""Types that llama.cpp's converter writes; llama.cpp can multiply by all of them."""
_A, _B = ".lora_a", ".lora_b"
_EMBEDDING = "token_embd.weight"


def is_adapter(path: Path) -> bool:
    """Whether a GGUF declares itself to be an adapter, which is no model. Never raises."""
    try:
        found = path.stat()
    except OSError:
        return False
    return _says_adapter(path, found.st_size, found.st_mtime)


@functools.lru_cache(maxsize=1024)
def _says_adapter(path: Path, _size: int, _modified: float) -> bool:
    try:
        with paths.open_regular(path) as file:
            return _SAYS_ADAPTER in file.read(_PEEKED_BYTES)
    except OSError:
        return False


def given(
    names: Iterable[str],
    table: Mapping[str, Mapping[str, float]],
    folder: Path,
    target: Path,
    beside: Iterable[Path],
) -> list[Adapter]:
    """The adapters of the model at `target`: those of the table, then those beside it that fit.

    A key of the table is a name or a pattern (* is any text); exact names go before patterns.
    Relative paths start from `folder`. Raises ConfigError for an adapter of the table that cannot
    be used, and BadGGUF for the target.
    """
    spelled = [name.lower() for name in names]
    lines = sorted(table.items(), key=lambda line: "*" in line[0])
    pattern, files = next(
        (line for line in lines if any(fnmatchcase(name, line[0].lower()) for name in spelled)),
        ("", {}),
    )
    found = {}
    for name, scale in files.items():
        path = folder / paths.expanded(name)
        try:
            check(target, path)
        except (BadGGUF, BadPair) as error:
            param = f"models.adapters.{pattern}"
            raise ConfigError(
                error.message, fix=f"Correct {param} in the configuration.", param=param
            ) from error
        found[path.resolve()] = Adapter(str(path), scale)
    for path in sorted(beside):
        real = path.resolve()
        if real not in found and len(found) < MOST and is_adapter(path) and fits(target, path):
            found[real] = Adapter(str(path), 0.0)
    if len(found) > MOST:
        raise ConfigError(
            f"models.adapters.{pattern} names {len(found)} adapters; {MOST} may be.",
            param=f"models.adapters.{pattern}",
        )
    return [*found.values()]


def fits(target: Path, path: Path) -> bool:
    """Whether a file is an adapter of that model."""
    try:
        check(target, path)
    except (BadGGUF, BadPair):
        return False
    return True


def check(target: Path, path: Path) -> None:
    """Check that an adapter can be loaded with a model.

    Raises:
        BadGGUF: one of the files cannot be used.
        BadPair: the adapter was made for another model; names the first difference.
    """
    why = _checked(target, header.stamp(target), path, header.stamp(path))
    if isinstance(why, str):
        raise BadPair(why, fix="Use an adapter that was made for this very model.")
    if why is not None:
        raise why


@functools.lru_cache(maxsize=256)
def _checked(
    target: Path, _ours: tuple[int, float], path: Path, _theirs: tuple[int, float]
) -> BadGGUF | str | None:
    """The fault of a file, or the first difference; None if it fits."""
    try:
        parsed = header.parse(path)
        try:
            _is_lora(parsed)
        except BadGGUF as error:
            return BadGGUF(f"{path.name} cannot be used. {error.message}", fix=error.fix)
        difference = _difference(header.read(target), parsed)
    except BadGGUF as error:
        return error
    if not difference:
        return None
    return escaped(f"{path.name} is an adapter for another model. {difference}")


def _is_lora(parsed: Parsed) -> None:
    """Raise BadGGUF unless this is an adapter that llama.cpp can load."""
    if parsed.metadata.get("general.type") != "adapter":
        refuse("It is no adapter.", "Convert one with llama.cpp's convert_lora_to_gguf.py.")
    if parsed.metadata.get("adapter.type") != "lora":
        refuse("It is an adapter, but no LoRA.")
    alpha = parsed.metadata.get("adapter.lora.alpha")
    if parsed.kinds.get("adapter.lora.alpha", FLOAT32) != FLOAT32 or not isinstance(
        alpha, float | None
    ):
        refuse("Its adapter.lora.alpha is no 32-bit number.")
    if alpha is not None and not math.isfinite(alpha):
        refuse(f"Its adapter.lora.alpha is {alpha}.")
    if "adapter.alora.invocation_tokens" in parsed.metadata:
        refuse("It is an activated LoRA, which holds from some token on; that is not served.")
    _holds_matrices(parsed)


def _holds_matrices(parsed: Parsed) -> None:
    for tensor in parsed.tensors:
        if tensor.name.endswith((_A, _B)):
            if tensor.type.name not in _MATRICES:
                refuse(f"Tensor {tensor.name} is {tensor.type.name}, which no adapter can be.")
        elif not tensor.name.endswith("_norm.weight"):  # passed over by llama.cpp
            refuse(f"Tensor {tensor.name} is no part of an adapter.")
    if not any(tensor.name.endswith(_A) for tensor in parsed.tensors):
        refuse("It holds no matrices.")


def _difference(ours: Header, parsed: Parsed) -> str:
    """The first difference between an adapter and a model; "" if there is none."""
    theirs = parsed.metadata.get("general.architecture")
    if theirs != ours.architecture:
        return f'It is for a "{str(theirs)[:40]}", and this is a "{ours.architecture}".'
    if ours.embeds:
        return "This one is an encoder, which has none."
    matrices = {tensor.name: tensor for tensor in ours.tensors}
    named = {tensor.name: tensor for tensor in parsed.tensors}
    changed = {name[: -len(_A)] for name in named if name.endswith((_A, _B))}
    return next(filter(None, (_misfit(base, named, matrices) for base in sorted(changed))), "")


def _misfit(base: str, named: Mapping[str, Tensor], matrices: Mapping[str, Tensor]) -> str:
    """The reason why two matrices cannot change the model's matrix `base`; "" if they can."""
    if base not in matrices:
        return f"It changes {base}, which this model does not have."
    if base + _A not in named or base + _B not in named:
        return f"Of the two matrices that change {base} it has one."
    if base == _EMBEDDING and "output.weight" not in matrices:
        return f"It changes {base}, which is the output of this model too."
    a, b, whole = named[base + _A].shape, named[base + _B].shape, matrices[base].shape
    if _shaped(base, a, b, whole):
        return ""
    return f"For {base}, which is {whole} here, it has matrices of {a} and {b}."


def _shaped(base: str, a: tuple[int, ...], b: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    """Whether the product of two matrices has the shape of `whole`; with experts, one for each."""
    a, b, whole = (shape + (1,) * (4 - len(shape)) for shape in (a, b, whole))
    if base == _EMBEDDING:  # its rows are looked up, so both matrices are transposed
        return a[0] == b[0] and (b[1], a[1]) == whole[:2] and a[2:] == b[2:] == (1, 1)
    return a[1] == b[0] and (a[0], b[1]) == whole[:2] and a[2:] == b[2:] == whole[2:]
