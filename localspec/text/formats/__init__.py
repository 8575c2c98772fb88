"""How the families of models write thoughts, words and calls: as data, read by one reader.

`table.py` has the families. `recognise.py` finds out by rendering which of them a chat template
belongs to, `reading.py` reads an answer, `writing.py` writes calls of a history, and `lark.py`
makes a grammar of what may be called.
"""

from __future__ import annotations

from localspec.text.formats.offer import Offer
from localspec.text.formats.parts import Format
from localspec.text.formats.reading import reading
from localspec.text.formats.tape import Kind, Piece, Reader

__all__ = ["Format", "Kind", "Offer", "Piece", "Reader", "reading"]
