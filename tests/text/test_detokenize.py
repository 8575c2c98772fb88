"""Laws of the detokenizer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from localspec.text.detokenize import Detokenizer


def cut(data: bytes, widths: list[int]) -> list[bytes]:
    """`data` in pieces of the given widths, the last taking the rest."""
    pieces, start = [], 0
    for width in widths:
        pieces.append(data[start : start + width])
        start += width
    return [*pieces, data[start:]]


WIDTHS = st.lists(st.integers(0, 5), max_size=30)


@given(st.text(), WIDTHS)
def test_valid_text_survives_any_cutting(text: str, widths: list[int]) -> None:
    """However the bytes of a text are cut, the pieces give it back and nothing is left over."""
    decoder = Detokenizer()
    out = [decoder.push(piece) for piece in cut(text.encode(), widths)]
    assert "".join(out) == text
    assert decoder.flush() == ""


@given(st.binary(max_size=40), WIDTHS)
def test_any_bytes_become_what_a_decoder_of_the_whole_makes_of_them(
    data: bytes, widths: list[int]
) -> None:
    """Invalid bytes are replaced exactly as when the whole text is decoded at once."""
    decoder = Detokenizer()
    out = [decoder.push(piece) for piece in cut(data, widths)]
    assert "".join(out) + decoder.flush() == data.decode("utf-8", errors="replace")


@given(st.characters(min_codepoint=0x80, exclude_categories=["Cs"]))
def test_a_character_waits_for_its_last_byte(character: str) -> None:
    """No byte but the last of a character lets anything out."""
    decoder = Detokenizer()
    *begun, last = character.encode()
    assert [decoder.push(bytes([byte])) for byte in begun] == [""] * len(begun)
    assert decoder.push(bytes([last])) == character


def test_a_character_that_is_never_completed_is_replaced_at_the_end() -> None:
    """The end of an answer turns a begun character into U+FFFD, once."""
    decoder = Detokenizer()
    assert decoder.push("é".encode()[:1]) == ""
    assert decoder.flush() == "\ufffd"
    assert decoder.flush() == ""
