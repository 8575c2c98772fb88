"""A tiny model that says by heart what it is given: real weights, run by the real llama.cpp.

Each token has a direction of its own in the residual stream, the layers add nothing, and the output
head of a token looks for the direction of the one before it. So a test of a client knows what a
model answers that is free to choose: that it calls a function, for one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
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
_PARTS = re.compile(rf"{_TAG.pattern}|[^<>=\":\]]{{0,4}}[>=\":\]]|[^<]{{1,5}}|<", re.DOTALL)
"""Marks, and of other text a few characters up to where something may end."""
_LEAST = 4
"""Characters of a token that is said; the parts of those are tokens of their own."""
_APART = "\0"
"""In no answer."""


def build(path: Path) -> Path:
    """Write the model of `ANSWERS` to `path` and return it."""
    return _write(path, TEMPLATE, ANSWERS, marks=MARKS, ends=True)


def turning(path: Path, template: str, answers: Mapping[str, str]) -> Path:
    """Write a model that says each text behind a prompt that ends so, by the last character of it.

    Marks in angle brackets are tokens of their own, as in the families' vocabularies, which it says
    where a text has them once: any token is said once, because the next one depends on it alone.
    The tokenizer makes the same ones of a text: a grammar forces those, and the model goes on
    behind them. Where it forces the beginning of one, it has to find that in a few tokens.
    """
    shown = {tag for tag in _TAG.findall(template) if tag.startswith("<|")}
    said = "".join((*answers.values(), *tiny.SPECIALS))
    others = sorted(tag for tag in shown if tag not in said)  # llama.cpp looks for `<|return|>`
    return _write(path, template, tokens(answers), marks=others, context=_CONTEXT, own=True)


def tokens(answers: Mapping[str, str]) -> dict[str, list[str]]:
    """The tokens that a model of `turning` says, by what stands before them."""
    everything = _APART.join(answers.values())
    return {end: _tokens(text, everything, answers) for end, text in answers.items()}


def turns(result: str, mark: str) -> str:
    """The end of a template, behind a family's own: `mark` where the messages hold `result`.

    What a model of `turning` says next depends on the last character alone.
    """
    spelled = mark.replace("\n", "\\n").replace("\t", "\\t")
    return "{% if '" + result + "' in messages | string %}{{ '" + spelled + "' }}{% endif %}"


def _tokens(text: str, everything: str, ends: Collection[str]) -> list[str]:
    """The text in tokens, each of which stands at one place of all answers and ends no prompt.

    What would stand at two is joined to what is before it: a grammar forces text up to where a
    name, a value or a mark ends, and there the model chooses.
    """
    found: list[str] = []
    begun = ""
    for part in _PARTS.findall(text):
        piece = begun + part
        while (len(piece) < _LEAST or everything.count(piece) > 1) and found:
            piece = found.pop() + piece
        short = len(piece) < _LEAST or everything.count(piece) > 1
        begun = piece if short or _ended(piece, ends) else ""
        if not begun:
            found.append(piece)
    return [*found, begun] if begun else found


def _ended(piece: str, ends: Iterable[str]) -> bool:
    """Whether a prompt ends with the piece."""
    return any(end.endswith(piece) for end in ends)


def _inner(pieces: Iterable[str], ends: Iterable[str]) -> list[str]:
    """The parts of pieces that are no pieces, and with which no prompt ends."""
    parts = {part for piece in pieces for part in _PARTS.findall(piece) if len(part) > 1}
    return sorted(one for one in parts.difference(pieces) if not _ended(one, ends))


def _spelled(piece: str, *, greedy: bool) -> str:
    """A normal token as the vocabulary spells it."""
    if greedy:
        return "".join(f"\\x{byte:02x}" for byte in piece.encode())
    alphabet = byte_alphabet()
    return "".join(alphabet[byte] for byte in piece.encode())


def _write(
    path: Path,
    template: str,
    answers: Mapping[str, Sequence[str]],
    *,
    marks: Sequence[str] = (),
    ends: bool = False,
    context: int = 4096,
    own: bool = False,
) -> Path:
    """A model with these answers, by what stands before them.

    Args:
        path: The file.
        template: Its chat template.
        answers: Pieces by the text before them: its last character counts, or a mark of `marks`.
        marks: More control tokens.
        ends: What ends JSON is likely where nothing follows.
        context: Tokens of a text.
        own: The tokenizer makes the same pieces of a text, with parts of them beside them.
    """
    pieces = [piece for answer in answers.values() for piece in answer]
    plain = {piece for piece in pieces if not _TAG.fullmatch(piece)}
    inner = _inner(plain, answers) if own else ()
    spelled = {piece: _spelled(piece, greedy=own) for piece in (*plain, *inner)}
    specials = [spelled.get(piece, piece) for piece in (*inner, *pieces)]
    writer, vocabulary = tiny.begun(
        path, "llama", template=template, specials=(*specials, *marks), context=context,
        normal=set(spelled.values()), greedy=own,
    )  # fmt: skip
    mark = {text: vocabulary - len(marks) + at for at, text in enumerate(marks)}
    said = vocabulary - len(marks) - len(pieces)
    width = max(64, 32 * (sum(map(len, answers.values())) // 32 + 2))
    embedding = np.zeros((vocabulary, width), dtype=np.float32)
    head = np.zeros((vocabulary, width), dtype=np.float32)
    embedding[:, 0] = 1.0
    head[said - len(inner) - 1, 0] = (
        _SURE  # <|im_end|> comes where nothing follows, or what ends JSON soonest
    )
    if ends:
        head[[ord(char) for char in '"}]'], 0] = _SURE / 2
        head[[ord(char) for char in " \t\r\n"], 0] = -_SURE
    direction = 0
    for end, answer in answers.items():
        last = next((token for text, token in mark.items() if end.endswith(text)), ord(end[-1]))
        tokens = [last, *range(said, said + len(answer))]
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
