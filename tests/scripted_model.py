"""A tiny model that says by heart what it is given: real weights, run by the real llama.cpp.

Each token has a direction of its own in the residual stream, the layers add nothing, and the output
head of a token looks for the direction of the one before it. So a test of a client knows what a
model answers that is free to choose: that it calls a function, for one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import tiny

from localspec.bench.shapes import byte_alphabet

MARKS = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
CALL = ('<tool_call>\n{"name": "gu', 'ess", "arguments": {"wo', 'rd": "left"}}\n</tool_call>')
"""Where functions are offered it calls `guess`."""
RESULT = ("So it ", "is left.")
SPEECH = ("One ", "two ", "three.")
ENDLESS = ("tick ", "tock ")
"""The words that it repeats when asked "for ever"."""
MIDDLE = ("urn a ", "+ b\n")
ANSWERS = {"\r": CALL, "\t": RESULT, "\n": SPEECH, "\v": ENDLESS, MARKS[2]: MIDDLE}
"""By the end of a prompt."""
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }} {{ message.content }}<|im_end|>"
    "{% endfor %}{% set last = messages[-1].content %}"
    "{{ '\\v' if 'for ever' in last else '\\t' if '<tool_response>' in last "
    "else '\\r' if '<tools>' in messages[0].content else '\\n' }}"
)
_SURE = 4.0
_CONTEXT = 16384
"""Templates are some thousand tokens long here, where most tokens are single characters."""
_TAG = re.compile(r"<[^<>\s]{1,40}>")
"""A mark that is one token of a real vocabulary."""
_LEAST = 3
"""Characters of other tokens: single ones are in the vocabulary already."""


def build(path: Path) -> Path:
    """Write the model of `ANSWERS` to `path` and return it."""
    return _write(path, TEMPLATE, ANSWERS, marks=MARKS, ends=True)


def turning(path: Path, template: str, answers: Mapping[str, str]) -> Path:
    """Write a model that says each text behind a prompt that ends with its character.

    Marks in angle brackets are tokens of their own, as in the families' vocabularies, where a text
    has them once; any token is there once, because the next one depends on it alone.
    """
    pieces = {end: _tokens(text, end) for end, text in answers.items()}
    both = [piece for each in pieces.values() for piece in each]
    for piece in {piece for piece in both if both.count(piece) > 1}:
        raise ValueError(f"{piece!r} comes in two answers, and what follows depends on it alone")
    return _write(path, template, pieces, context=_CONTEXT)


def turns(result: str, mark: str) -> str:
    """The end of a template, behind a family's own: `mark` where the messages hold `result`.

    What a model of `turning` says next depends on the last character alone.
    """
    spelled = mark.replace("\n", "\\n").replace("\t", "\\t")
    return "{% if '" + result + "' in messages | string %}{{ '" + spelled + "' }}{% endif %}"


def _tokens(text: str, end: str) -> list[str]:
    """The text in tokens of which none comes twice."""
    tags = {tag for tag in _TAG.findall(text) if text.count(tag) == 1 and not end.endswith(tag)}
    tags.difference_update(tiny.SPECIALS)
    found: list[str] = []
    at = 0
    while at < len(text):
        tag = _TAG.match(text, at)
        size = len(tag[0]) if tag and tag[0] in tags else _LEAST
        while size < len(text) - at and text[at : at + size] in found:
            size += 1
        found.append(text[at : at + size])
        at += size
    while len(found[-1]) < _LEAST or found[-1] in found[:-1]:  # the end is joined to what is before
        found[-2:] = [found[-2] + found[-1]]
    return found


def _spelled(piece: str) -> str:
    """A token as the vocabulary spells it."""
    alphabet = byte_alphabet()
    return piece if _TAG.fullmatch(piece) else "".join(alphabet[byte] for byte in piece.encode())


def _write(
    path: Path,
    template: str,
    answers: Mapping[str, Sequence[str]],
    *,
    marks: Sequence[str] = (),
    ends: bool = False,
    context: int = 4096,
) -> Path:
    """A model with these answers, by what stands before them.

    Args:
        path: The file.
        template: Its chat template.
        answers: Pieces by the character, or the one of `marks`, that is before them.
        marks: More control tokens.
        ends: What ends JSON is likely where nothing follows.
        context: Tokens of a text.
    """
    pieces = [_spelled(piece) for answer in answers.values() for piece in answer]
    normal = {piece for piece in pieces if not _TAG.fullmatch(piece)}
    writer, vocabulary = tiny.begun(
        path, "llama", template=template, specials=(*pieces, *marks), normal=normal, context=context
    )
    mark = {text: vocabulary - len(marks) + at for at, text in enumerate(marks)}
    said = vocabulary - len(marks) - len(pieces)
    width = max(64, 32 * (sum(map(len, answers.values())) // 32 + 2))
    embedding = np.zeros((vocabulary, width), dtype=np.float32)
    head = np.zeros((vocabulary, width), dtype=np.float32)
    embedding[:, 0] = 1.0
    head[said - 1, 0] = _SURE  # <|im_end|> comes where nothing follows, or what ends JSON soonest
    if ends:
        head[[ord(char) for char in '"}]'], 0] = _SURE / 2
        head[[ord(char) for char in " \t\r\n"], 0] = -_SURE
    direction = 0
    for end, answer in answers.items():
        tokens = [mark.get(end) or ord(end), *range(said, said + len(answer))]
        said += len(answer)
        follows = [*tokens[1:], *([tokens[1]] if answer == ENDLESS else [])]
        for before, token in zip(tokens, follows, strict=False):
            direction += 1
            embedding[before] = np.eye(width)[direction]
            head[token, direction] = _SURE
    writer.add_embedding_length(width)
    writer.add_block_count(1)
    writer.add_feed_forward_length(width)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_rope_dimension_count(width // 2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tensor("token_embd.weight", embedding)
    writer.add_tensor("output.weight", head)
    writer.add_tensor("output_norm.weight", np.ones(width, dtype=np.float32))
    for norm in ("attn_norm", "ffn_norm"):
        writer.add_tensor(f"blk.0.{norm}.weight", np.ones(width, dtype=np.float32))
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        zeros = np.zeros((width, width), dtype=np.float32)
        writer.add_tensor(f"blk.0.{name}.weight", zeros)
    return tiny.ended(writer, path)
