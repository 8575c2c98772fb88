"""Laws of the detokenizer."""

from __future__ import annotations

import codecs

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
    """However the bytes of a text are cut, the pieces give it back."""
    decoder = Detokenizer()
    out = [decoder.push(piece) for piece in cut(text.encode(), widths)]
    assert "".join(out) == text


@given(st.binary(max_size=40), WIDTHS)
def test_any_bytes_become_what_a_decoder_of_the_whole_makes_of_them(
    data: bytes, widths: list[int]
) -> None:
    """Invalid bytes are replaced as in one decoding of the whole; incomplete characters wait."""
    decoder = Detokenizer()
    out = [decoder.push(piece) for piece in cut(data, widths)]
    whole = codecs.getincrementaldecoder("utf-8")(errors="replace").decode(data)
    assert "".join(out) == whole
    assert data.decode("utf-8", errors="replace") in {whole, whole + "\ufffd"}


@given(st.characters(min_codepoint=0x80, exclude_categories=["Cs"]))
def test_a_character_waits_for_its_last_byte(character: str) -> None:
    """No byte but the last of a character lets anything out."""
    decoder = Detokenizer()
    *begun, last = character.encode()
    assert [decoder.push(bytes([byte])) for byte in begun] == [""] * len(begun)
    assert decoder.push(bytes([last])) == character
