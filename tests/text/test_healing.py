"""Laws of token healing: an answer begins with the bytes typed, and can always go on."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from localspec.text.healing import (
    LOOKED_AT_CHARS,
    SortedVocabulary,
    TokenHealing,
    behind,
    half_typed,
)

BYTES = [bytes([byte]) for byte in range(256)]
MERGED = [
    "ret",
    " ret",
    " return",
    "return",
    "urn",
    "  ",
    "   ",
    "\tx",
    "()",
    "été",
    "日本",
    "日本語",
]
PIECES = [*BYTES, *(text.encode() for text in MERGED), b"\xe6\x97", b"", b""]
WORDS = SortedVocabulary(PIECES)
letters = st.text("aé日", max_size=4)
written = letters.map(str.encode) | st.sampled_from([b"\xc3", b"\xa9", b"\xe6\x97", b"\xa9\xa5"])
typed = st.text("ret urn(é日本語", min_size=1, max_size=8)


def tokens(text: str, words: SortedVocabulary = WORDS) -> list[int]:
    """The longest token each time, similar to real tokenizers."""
    data, found = text.encode(), list[int]()
    while data:
        known = (
            token for token, piece in enumerate(words.pieces) if piece and data.startswith(piece)
        )
        found.append(max(known, key=lambda token: len(words.pieces[token])))
        data = data[len(words.pieces[found[-1]]) :]
    return found


def walk(held: TokenHealing, words: SortedVocabulary, seed: int) -> bytes:
    """A random answer until everything is allowed; masks are requested before and after."""
    random, out, path = np.random.default_rng(seed), b"", list[int]()
    while (allowed := held.mask(path)) is not None:
        assert allowed.any()
        token = int(random.choice(np.flatnonzero(allowed)))
        out += words.pieces[token]
        path.append(token)
        if random.random() < 0.5:
            held.commit(path)
            path = []
    return out


@given(typed, st.integers(0, 99))
def test_an_answer_begins_with_the_bytes_that_were_typed(text: str, seed: int) -> None:
    """Any random answer begins with the typed bytes."""
    if end := half_typed(text, tokens, WORDS):
        assert walk(TokenHealing(end, WORDS), WORDS, seed).startswith(end.encode())


@given(st.lists(written, min_size=1, max_size=9), letters, st.integers(0, 9))
def test_no_beginning_is_a_dead_end(pieces: list[bytes], text: str, seed: int) -> None:
    """Also in a vocabulary without some bytes: an end that cannot go on is not healed."""
    words, data = SortedVocabulary(pieces), text.encode()
    found = half_typed(text, lambda _: [0], words)
    assert found == (text if any(one.startswith(data) and one != data for one in pieces) else "")
    assert not found or walk(TokenHealing(found, words), words, seed).startswith(data)


@given(typed)
def test_the_first_token_begins_with_what_was_typed(text: str) -> None:
    """No allowed first token is only a part of the typed text."""
    mask = TokenHealing(text, WORDS).mask([])
    assert mask is not None
    assert mask.tolist() == [piece.startswith(text.encode()) for piece in PIECES]


def test_behind_what_was_typed_everything_is_allowed() -> None:
    """Everything is allowed after a path or a commit, and after a rejected path."""
    begun = TokenHealing(" ret", WORDS)
    assert begun.mask([PIECES.index(b" return")]) is None
    assert begun.mask([PIECES.index(b"()")]) is None
    assert begun.mask([PIECES.index(b"")]) is None
    assert begun.mask([]) is not None
    assert begun.forced([]) == ()
    begun.commit([PIECES.index(b" ret")])
    assert begun.mask([]) is None


def test_what_is_half_typed_begins_with_a_token_of_the_text() -> None:
    """It reaches back as far as one token; of blanks it is the last; it is in the last line."""
    for text, end in {
        "": "",
        "    ret": " ret",
        "x.ret": "ret",
        "return": "",
        "xreturn": "",
        "x   ": " ",
        "x\t": "\t",
        "f(": "(",
        "f()": "",
        "an été": "",
        "été, 日本": "日本",
        "日": "日",
        "ret\n": "",
        "ret\n\n ": " ",
        "xyz": "",
    }.items():
        assert half_typed(text, tokens, WORDS) == end, text


@given(st.text("ret urn(é日本語\n\t", max_size=12))
def test_what_is_half_typed_ends_the_text_and_may_go_on(text: str) -> None:
    """It is in the last line, and a longer token begins with it."""
    end = half_typed(text, tokens, WORDS)
    assert text.endswith(end)
    assert "\n" not in end
    assert not end or any(len(p) > len(end.encode()) and p.startswith(end.encode()) for p in PIECES)


def test_of_a_long_line_only_the_end_is_looked_at() -> None:
    """However long it is."""
    asked: list[str] = []

    def noted(line: str) -> list[int]:
        asked.append(line)
        return tokens(line)

    assert half_typed("日本 " * 300_000 + "ret", noted, WORDS) == " ret"
    assert [len(line) for line in asked] == [LOOKED_AT_CHARS]


@given(typed, st.sampled_from(PIECES))
def test_what_is_told_is_what_comes_behind(text: str, last: bytes) -> None:
    """The parts sent are the same token by token and at once; other tokens are sent whole."""
    data, told, said = text.encode(), b"", text.encode() + last
    for token in tokens(said.decode(errors="replace")):
        piece = PIECES[token]
        told += behind(piece, data)
        data = data[len(piece) :]
    assert text.encode() + told == said.decode(errors="replace").encode()
    assert behind(b"other", b"typed") == b"other"
