"""How model families write thoughts, text and calls: described as data, parsed by one reader.

`table.py` has the families. `recognise.py` finds a chat template's family by rendering,
`reading.py` parses an answer, `writing.py` writes calls of a history, and `lark.py` makes a
grammar of the allowed answers: `starts.py` has where calls begin, `bound.py` their arguments.
"""

from __future__ import annotations

from localspec.text.formats.offer import Offer
from localspec.text.formats.parts import Format
from localspec.text.formats.reading import reading
from localspec.text.formats.tape import Kind, Piece, Reader

__all__ = ["Format", "Kind", "Offer", "Piece", "Reader", "reading"]
