"""Records of untidy outputs of the families: in any pieces, a client gets the recorded result.

Calls that differ from what the templates show, marks that are only spoken of, and answers that are
cut. Every sentence, function and argument is our own; only the syntax is the families'.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import templates
from text.test_format_records import Record, decoded, opened, read, wanted

HERE = Path(__file__).parent / "untidy"
TOOLS = json.loads((HERE / "tools.json").read_text(encoding="utf-8"))
PLAIN: dict[str, Any] = {"content": "", "reasoning": "", "calls": [], "ends": "stop"}
LINES = (HERE / "records.jsonl").read_text(encoding="utf-8").splitlines()
RECORDS = [PLAIN | {"tools": True} | json.loads(line) for line in LINES]


@pytest.mark.parametrize("one", RECORDS, ids=[one["id"] for one in RECORDS])
def test_an_untidy_record_is_read_whole_and_in_any_pieces(one: Record) -> None:
    """By single bytes, and in pieces that cut characters and marks."""
    stand_in = (templates.STAND_INS / one["template"]).exists()
    family = one["template"].removesuffix(".jinja")
    found = {"template": None, "family": family} if stand_in else {}
    known = {**one, **found, "tools": TOOLS if one["tools"] else []}
    dialogue, offer = opened(known)
    cut, data = one["ends"] == "length", one["emitted"].encode()
    for sizes in ([len(data)], [1], [1, 2, 3], [7], [20]):
        reader = dialogue.reader(offer)
        assert read(reader, decoded(data, sizes, len(data)), cut=cut) == wanted(one), sizes
