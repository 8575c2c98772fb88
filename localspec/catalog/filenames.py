"""Parses the name of a published file: quantization, part number, and kind of file. Pure.

Names are split into words at hyphens, dots and underscores. Only whole words count: "lorablated" is
no adapter, though it contains "lora".
"""

from __future__ import annotations

import itertools
import re
from typing import NamedTuple

from localspec.errors import ModelError, escaped

_SUFFIX = ".gguf"
_WORDS = re.compile(r"[a-z0-9]+")

_LABEL = re.compile(
    r"(?:^|[-._/ ])"
    r"((?:UD-)?(?:I?Q\d(?:_(?:\d|[KSMLP]|XX?[SL]|NL|K(?:SS?|[LTV])|R\d+))*|TQ\d(?:_\d)?"
    r"|(?:MX|NV)FP\d(?:_MOE)?|BF16|FP?16|FP?32))(?=[-._/ ]|$)",
    re.IGNORECASE,
)
"""Quantizations as `llama-quantize`, unsloth ("UD-Q4_K_XL") and bartowski ("Q6_K_L") write them.
Those of ik_llama.cpp are included so that they are not mistaken for others."""
_UNKNOWN_LABEL = re.compile(r"(?:UD-)?(?:IQ\d_K(?:SS?|[LTV])?|I?Q\d.*_R\d+|Q4_0_[48]_[48]|Q6_0)")
"""Quantizations of ik_llama.cpp alone, or removed from llama.cpp (such as Q4_0_4_4)."""

_SHARD = re.compile(r"(.+?)[-_.](\d{1,5})[-_]of[-_](\d{1,5})([-_.].*)?", re.IGNORECASE)
_SLICE = re.compile(
    r"(.+\.gguf)[-.](?:part|split)[-_.]?(?:(\d{1,5})(?:[-_]?of[-_]?(\d{1,5}))?|([a-z]))",
    re.IGNORECASE,
)
"""Parts made by `gguf-split` ("m-00001-of-00003.gguf", also followed by the quantization), and
files that were cut at any byte ("m.gguf.part1of2", "m.gguf-split-a")."""

MODEL_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,119}")
"""Allowed model names: none can lead out of the models directory."""

PROJECTOR = "a projector for images or sound (mmproj)"
HEAD = "a draft head for another model (MTP, EAGLE, DFlash or an assistant)"
ADAPTER = "a LoRA adapter"
MATRIX = "an importance matrix"
VOCABULARY = "a vocabulary without weights"
INCOMPLETE = "one of several parts of a model, which are not all there"
UNREADABLE = "quantized in a way that llama.cpp cannot read"

_HEADS = frozenset({"eagle3", "dflash", "dspark"})
_HEAD = re.compile(r"(?:eagle[3-9]|dflash|dspark)\d*")
_FIRST_HEADS = frozenset({"mtp", "nextn"})
_HEAD_PAIRS = {("eagle", "3"), ("p", "eagle"), ("mtp", "only"), ("mtp", "head"), ("mtp", "draft")}
_MAYBE_HEADS = frozenset(
    {"mtp", "nextn", "eagle", "eagle2", "assistant", "draft", "drafter", "speculator"}
)
_ADAPTERS = frozenset({"lora", "qlora", "loras", "adapter", "adapters"})
_FOLDERS = {
    **dict.fromkeys(("mmproj", "projector", "projectors"), PROJECTOR),
    **dict.fromkeys(("mtp", "nextn", "draft", "drafts", "drafter", "assistant", "eagle"), HEAD),
    **dict.fromkeys(_HEADS, HEAD),
    **dict.fromkeys(_ADAPTERS, ADAPTER),
    **dict.fromkeys(("imatrix", "imatrices"), MATRIX),
}
_SIZE = re.compile(r"(?<![0-9a-z.])e?(\d+(?:\.\d+)?)([bm])(?![a-z0-9])")
_ACTIVE = re.compile(r"(?<![0-9a-z.])a(\d+(?:\.\d+)?)b(?![a-z0-9])")


def check_model_name(name: str) -> None:
    """Refuse an invalid model name. Raises ModelError."""
    if not MODEL_NAME.fullmatch(name):
        raise ModelError(
            f'"{escaped(name[:80])}" cannot be a model\'s name.',
            fix="Choose one of lower-case letters, digits, dots, hyphens and underscores: --name.",
        )


class Name(NamedTuple):
    """The parsed name of one file.

    `whole` is the path of the whole model, and `part` this file's number in it. `parts` is the
    number of parts, 0 where the name does not say. `cut` is True for a piece of a file that was cut
    at any byte. `other` is the kind of a file that is no model; `maybe` is a kind that only the
    file's size can confirm.
    """

    path: str
    whole: str
    label: str
    part: int = 1
    parts: int = 1
    cut: bool = False
    other: str = ""
    maybe: str = ""


def read(path: str) -> Name | None:
    """The parsed name of a file in a repository; None if it is no GGUF."""
    whole, part, count, cut = path, 1, 1, False
    if found := _SLICE.fullmatch(path):
        whole, cut = found[1], True
        part = int(found[2]) if found[2] else ord(found[4].lower()) - ord("a") + 1
        count = int(found[3] or 0)
    elif not path.lower().endswith(_SUFFIX):
        return None
    elif found := _SHARD.fullmatch(path[: -len(_SUFFIX)]):
        whole, part, count = f"{found[1]}{found[4] or ''}.gguf", int(found[2]), int(found[3])
    quantization = label(whole)
    other, maybe = _other(whole, quantization)
    return Name(path, whole, quantization, part, count, cut, other, maybe)


def label(name: str) -> str:
    """The quantization in a name, such as "UD-Q4_K_XL"; "" if there is none."""
    labels: list[str] = _LABEL.findall(name.removesuffix(_SUFFIX))
    return labels[-1].upper().replace("FP16", "F16").replace("FP32", "F32") if labels else ""


def bits(quantization: str) -> int:
    """Approximate bits per weight of a quantization; 0 where unknown."""
    found = re.search(r"FP(4|8)|(\d+)", quantization)
    return int(found[1] or found[2]) if found else 0


def parameters(name: str) -> float:
    """The number of parameters in a name, such as "8b", "e4b" or "270m"; 0 if there is none."""
    found = _SIZE.search(name.lower())
    return float(found[1]) * (1e9 if found[2] == "b" else 1e6) if found else 0.0


def active(name: str) -> float:
    """The parameters that each token uses, from a name: 3e9 for the mixture "30b-a3b"."""
    found = _ACTIVE.search(name.lower())
    return float(found[1]) * 1e9 if found else parameters(name)


def folder(path: str) -> str:
    """The kind that a path's folders imply for all files in them; "" if they imply none."""
    for name in path.lower().split("/")[:-1]:
        if name in _FOLDERS:
            return _FOLDERS[name]
    return ""


def _other(whole: str, quantization: str) -> tuple[str, str]:
    """The kind of a file that is certainly no model, and the kind that it might be."""
    words = _WORDS.findall(whole.lower().rpartition("/")[2].removesuffix(_SUFFIX))
    if what := _surely(words, bare=not quantization):
        return what, ""
    if _UNKNOWN_LABEL.fullmatch(quantization):
        return UNREADABLE, ""
    if not _MAYBE_HEADS.isdisjoint(words):
        return "", HEAD
    return "", "" if _ADAPTERS.isdisjoint(words) else ADAPTER


def _surely(words: list[str], *, bare: bool) -> str:
    """The kind of a file that is certainly no model, from the words of its name; "" otherwise.

    `bare` means that the name has no quantization. A model made with an importance matrix or an
    adapter may be named after it; a quantization in the name shows that the file is a model.
    """
    first = words[0] if words else ""
    if "projector" in words or any(word.startswith("mmproj") for word in words):
        return PROJECTOR
    if first in _FIRST_HEADS or any(map(_HEAD.fullmatch, words)) or _is_named_head(words):
        return HEAD
    for names, what in (
        (frozenset({"imatrix"}), MATRIX),
        (_ADAPTERS, ADAPTER),
        (frozenset({"vocab"}), VOCABULARY),
    ):
        if first in names or (bare and not names.isdisjoint(words)):
            return what
    return ""


def _is_named_head(words: list[str]) -> bool:
    """Whether words together name a draft head: EAGLE-3, P-EAGLE, Gemma 4's assistants."""
    pairs = set(itertools.pairwise(words))
    if pairs & _HEAD_PAIRS:
        return True
    return "assistant" in words and ("mtp" in words or any(w.startswith("gemma") for w in words))
