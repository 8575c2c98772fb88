"""Laws of an answer's text: nothing lost, no character cut, each character's source known."""

from __future__ import annotations

import codecs

from hypothesis import given
from hypothesis import strategies as st

from localspec.text.stream import AnswerText, Part

PIECES = st.lists(
    st.one_of(st.text("ab\né", max_size=4).map(str.encode), st.binary(max_size=3)), max_size=20
)
STOPS = st.lists(st.text("ab\né", min_size=1, max_size=4), max_size=3)


def stream(pieces: list[bytes], stops: list[str], every: int = 1) -> tuple[AnswerText, list[Part]]:
    """Push the pieces as tokens 0, 1, ... of source "s0", "s1", ...; take after every few."""
    text, parts = AnswerText(stops), []
    for token, piece in enumerate(pieces):
        text.push(token, piece, f"s{token}")
        if token % every == 0:
            parts.append(text.take())
        if text.stopped:
            break
    text.finish()
    parts.append(text.take())
    return text, parts


@given(PIECES, STOPS, st.integers(1, 4))
def test_origins_account_for_every_character(
    pieces: list[bytes], stops: list[str], every: int
) -> None:
    """The lengths of a part's origins add up to its text, and each character is its source's."""
    for part in stream(pieces, stops, every)[1]:
        assert sum(length for length, _ in part.origins) == len(part.text)
        assert all(length > 0 for length, _ in part.origins)


@given(PIECES, st.integers(1, 4))
def test_without_stop_strings_every_token_and_character_goes_out_once(
    pieces: list[bytes], every: int
) -> None:
    """All tokens in order, all text in order, whatever the rhythm of taking."""
    text, parts = stream(pieces, [], every)
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    assert "".join(part.text for part in parts) == decoder.decode(b"".join(pieces))
    assert [token for part in parts for token in part.tokens] == list(range(len(pieces)))
    assert text.kept == len(pieces)


@given(PIECES, STOPS)
def test_after_a_stop_string_the_kept_tokens_are_inside_the_text(
    pieces: list[bytes], stops: list[str]
) -> None:
    """The kept tokens' bytes begin the text, and the next token's would reach past its end."""
    text, parts = stream(pieces, stops)
    out = "".join(part.text for part in parts)
    kept = b"".join(pieces[: text.kept]).decode("utf-8", errors="ignore")
    assert [token for part in parts for token in part.tokens] == list(range(text.kept))
    if text.stopped:
        assert len(kept) <= len(out)
        more = b"".join(pieces[: text.kept + 1]).decode("utf-8", errors="replace")
        assert len(more) > len(out)


def test_a_token_cut_by_a_stop_string_gives_its_beginning() -> None:
    """Of a token with text and the stop string, the text is sent and the token does not count."""
    text = AnswerText(["\n\n"])
    text.push(7, b"} ", "model")
    text.push(8, b"x\n\n", "lookup")
    assert text.stopped
    assert text.take() == Part("} x", [7], [(2, "model"), (1, "lookup")])
    assert text.kept == 1


def test_half_a_character_at_the_end_is_left_out() -> None:
    """An answer cut inside of a character ends before it; its token counts."""
    _, parts = stream([b"a", "\u00e9".encode()[:1]], [])
    assert "".join(part.text for part in parts) == "a"
    assert [token for part in parts for token in part.tokens] == [0, 1]


def test_text_held_back_keeps_its_source() -> None:
    """A beginning of a stop string that turns out harmless goes out under its own source."""
    text = AnswerText(["<end>"])
    text.push(1, b"a<", "target")
    assert text.take() == Part("a", [], [(1, "target")])
    text.push(2, b"b", "model")
    assert text.take() == Part("<b", [1, 2], [(1, "target"), (1, "model")])
