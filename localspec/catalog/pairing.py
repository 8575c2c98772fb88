"""Checks whether a draft can propose for a target, from the two headers.

Speculation exchanges token ids, so each id must mean the same text in both models. A draft with
another tokenizer can write its text anew in the target's tokens (`drafters/_translated.py`), at the
cost of some agreement. Families pad their vocabularies to different sizes, so ids beyond the
shorter vocabulary are allowed only if they are padding that no text uses. Such ids must be neither
proposed to the target nor given to the draft; `shared_tokens` is the first of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from localspec.catalog import compact_heads, header
from localspec.catalog.header import Header
from localspec.catalog.memory import show_bytes
from localspec.catalog.reader import Array
from localspec.errors import BadPair, escaped

_UNUSED = 5  # llama.cpp's type of tokens that no tokenizer produces
_PADDING = re.compile(rb"(\[PAD-?\d+\]|<\|?(pad|unused|dummy|reserved)[^<>]*\|?>|)")
_USEFUL_SHARE = 0.7
"""Largest useful share of the target's bytes: a token's time is about its bytes read, and not every
drafted token is accepted."""
_SAME_SIZE = 1.1
"""Largest ratio of sizes taken as equal: files of models of one size differ by their headers."""
_NO_TEXT = {"clip", "eagle3", "gemma4-assistant", "t5encoder", "wavtokenizer-dec"}
"""Architectures of encoders and of parts of models, which write no text. `_writes_text` adds those
named after BERT."""
# llama.cpp's defaults for files that do not say.
_DEFAULT_BOS = {"llama": 1, "gpt2": 11, "bert": 101}
_DEFAULT_EOS = {"llama": 2, "gpt2": 11, "t5": 1}


@dataclass(frozen=True, slots=True)
class Pairing:
    """The result of a check.

    `difference` is a sentence about the first difference; "" if there is none. `shared_tokens`
    counts the ids, from 0 up, that mean the same in both models. `by_text` tells that their
    tokenizers differ: the draft writes its text anew in the target's tokens, and only coupled
    verification can be used.
    """

    can_speculate: bool
    difference: str
    shared_tokens: int
    by_text: bool = False

    def demand(self) -> None:
        """Raise BadPair unless the two can speculate together."""
        if not self.can_speculate:
            raise self._refusal()

    def demand_same_tokens(self) -> None:
        """Raise BadPair unless each token means the same in both."""
        if not self.can_speculate or self.by_text:
            raise self._refusal()

    def _refusal(self) -> BadPair:
        return BadPair(
            f"This draft cannot propose for this target. {self.difference}",
            fix="Use a smaller model of the target's own family as its draft.",
        )


def check(target: Header, draft: Header) -> Pairing:
    """Compare tokenizer kind, vocabulary, and the tokens that begin and end a text."""
    shared = min(target.vocabulary_size, draft.vocabulary_size)
    difference = (
        _tokenizer(target, draft)
        or _texts(target, draft, shared)
        or _surplus(target, draft, shared)
        or _special(target, draft, "bos", _DEFAULT_BOS)
        or _special(target, draft, "eos", _DEFAULT_EOS)
    )
    if other := other_target(target, draft):
        return Pairing(False, other, 0)
    if not difference:
        return Pairing(True, "", shared)
    writes = all(map(_writes_text, (target, draft)))
    return Pairing(writes, difference, 0 if writes else shared, by_text=writes)


def other_target(target: Header, draft: Header) -> str:
    """A sentence if the draft was made from another model's layers than this target's; else ""."""
    made_of = draft.metadata.get(compact_heads.KEY)
    if made_of is None or target.path is None:
        return ""
    try:
        same = made_of == compact_heads.key_of(target.path)
    except KeyError:
        same = False
    return "" if same else f"{draft.file} was made of the layers of another model than this one."


def _writes_text(model: Header) -> bool:
    """Whether a model writes texts: it has a tokenizer, and is neither an encoder nor a part."""
    reads_both_ways = model.metadata.get(f"{model.architecture}.attention.causal") is False
    no_text = model.architecture in _NO_TEXT or model.architecture.endswith("bert")
    return (
        bool(model.tokens())
        and model.tokenizer not in {"", "none"}
        and not (reads_both_ways or no_text)
    )


def check_draft(target: Header, draft: Path) -> Header:
    """The header of a draft, checked for being loaded with that target.

    Loading, planning, showing, importing and examining a pair all use this check.

    Raises:
        BadGGUF: the file cannot be used.
        BadPair: it cannot draft for this target, or is so large that it could only cost time.
    """
    theirs = header.read(draft)
    if not _writes_text(theirs):
        Pairing(False, "It is an encoder, or a part of a model, and writes no text.", 0).demand()
    check(target, theirs).demand()
    if useless := _too_large(target, theirs):
        raise BadPair(useless, fix="Use a smaller model of the target's own family as its draft.")
    return theirs


def _too_large(target: Header, draft: Header) -> str:
    if draft.file_bytes <= _SAME_SIZE * target.file_bytes:
        return ""
    return (
        f"The draft is larger than its target, {show_bytes(draft.file_bytes)} and "
        f"{show_bytes(target.file_bytes)}: it would only cost time, and is not loaded."
    )


def doubt(target: Header, draft: Header) -> str:
    """The reason why a pair that can speculate will gain little; "" if there is none."""
    if useless := _too_large(target, draft):
        return useless
    if draft.weight_bytes <= _USEFUL_SHARE * target.weight_bytes:
        return ""
    share = draft.weight_bytes / target.weight_bytes
    return (
        f"the draft has {share:.2f} of the target's bytes, and a draft is worth its time below "
        f"about {_USEFUL_SHARE:g}; the daemon will seldom use it."
    )


def _tokenizer(target: Header, draft: Header) -> str:
    if target.tokenizer == draft.tokenizer:
        return ""
    return f'The tokenizers differ: "{escaped(target.tokenizer)}" and "{escaped(draft.tokenizer)}".'


def _texts(target: Header, draft: Header, shared: int) -> str:
    ours, theirs = target.tokens(), draft.tokens()
    if ours[:shared] == theirs[:shared]:
        return ""
    token = next(index for index in range(shared) if ours[index] != theirs[index])
    sizes = ""
    if len(ours) != len(theirs):
        sizes = f"The vocabularies have {len(ours)} and {len(theirs)} tokens. "
    return (
        f"{sizes}Token {token} differs: {_show(ours[token])} in the target, "
        f"{_show(theirs[token])} in the draft."
    )


def _surplus(target: Header, draft: Header, shared: int) -> str:
    longer, owner = (target, "target") if target.vocabulary_size > shared else (draft, "draft")
    types = longer.metadata.get("tokenizer.ggml.token_type")
    kinds = types.numbers() if isinstance(types, Array) else ()
    for token, text in enumerate(longer.tokens()[shared:], shared):
        unused = token < len(kinds) and kinds[token] == _UNUSED
        if not unused and not _PADDING.fullmatch(text):
            return (
                f"The vocabularies have {target.vocabulary_size} and {draft.vocabulary_size} "
                f"tokens: token {token}, {_show(text)}, is only in the {owner}."
            )
    return ""


def _special(target: Header, draft: Header, which: str, defaults: dict[str, int]) -> str:
    key = f"tokenizer.ggml.{which}_token_id"
    ours = target.metadata.get(key, defaults.get(target.tokenizer))
    theirs = draft.metadata.get(key, defaults.get(draft.tokenizer))
    if ours == theirs:
        return ""
    verb = "begins" if which == "bos" else "ends"
    return (
        f"Text {verb} with token {ours} in the target and with token {theirs} in the draft "
        f"({which.upper()})."
    )


def _show(text: bytes) -> str:
    return repr(text[:40].decode("utf-8", "replace"))
