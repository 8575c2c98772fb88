"""The end of a text for a draft model that may not read all of it.

Where reading a prompt takes longer than an answer may be behind, a draft model waits, and may wait
to the end. What it needs of a text is mostly near, unless the answer is made of its prompt. One
thing shows that beforehand: the share of the text that its end holds (docs/benchmarks.md).
"""

from __future__ import annotations

from localspec.control.round import Neural

WINDOW = 32
"""Tokens that are read instead of a whole text."""
REPAID = 3.0
"""How many times over reading that has to be repaid: less is known of it than of a whole text."""
_SHARE = 3 / 8
"""With less of the text a draft model is wrong too often."""


def gap(source: Neural) -> int:
    """How many of its oldest pending tokens a source should do without; 0 if it should not."""
    if source.skipped is None or source.pending <= WINDOW:
        return 0
    text = source.pending + source.skipped
    return source.pending - WINDOW if _SHARE * text <= WINDOW else 0
