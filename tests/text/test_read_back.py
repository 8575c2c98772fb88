"""A call that a template writes into the history is read as that call, as if a model wrote it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import templates
from text.test_format_records import decoded, read

from localspec.wire.messages import Message

_ENDS = re.compile(
    r"<\|im_end\|>|<\|END_OF_TURN_TOKEN\|>|<\|eot_id\|>|\[e~\[|<｜end▁of▁sentence｜>|</assistant>"  # noqa: RUF001
)
"""Ends of a turn, at which generation ends; behind them is the next prompt's head."""
_SILENT = {"NVIDIA-Nemotron-Nano-v2"}
"""Templates that write no call of the last turn."""
PATHS = [path for path in templates.everything() if path.stem not in _SILENT]


@pytest.mark.parametrize("path", PATHS, ids=[path.stem for path in PATHS])
@pytest.mark.parametrize(
    "arguments",
    [
        {"a": "007", "b": "true", "c": "null", "d": "[1]"},
        {"a": 'He said "no".\nLine two, it\'s \\ back', "b": "Größe 🚢 Привет", "c": "a\n\n  b\tc"},
        {"a": "if a < b && c > d: {x: [1]}", "b": "<b>x</b> & </i>"},
        {"a": "", "b": " spaced "},
        {},
    ],
    ids=["other-types", "quotes", "code", "blanks", "nothing"],
)
def test_what_a_template_writes_of_a_call_is_read_as_that(
    path: Path, arguments: dict[str, Any]
) -> None:
    """Strings stay strings, whatever they look like, and keep every character."""
    properties = {key: {"type": "string"} for key in arguments}
    schema = {"type": "object", "properties": properties, "required": [*arguments]}
    tools = [{"name": "put_entry", "description": "Puts.", "parameters": schema}]
    function = {"name": "put_entry", "arguments": json.dumps(arguments, ensure_ascii=False)}
    call = {"id": "call00001", "type": "function", "function": function}
    asked = [Message("user", "Please help.")]
    dialogue = templates.dialogue(path)
    turn = dialogue.turn(templates.chat(asked, tools))
    called = [*asked, Message("assistant", "", {"tool_calls": [call]})]
    whole = dialogue.turn(templates.chat(called, tools)).prompt
    shared = len(os.path.commonprefix([turn.prompt, whole]))  # noqa: RUF071 - of characters
    mark = whole.rfind("<", 0, shared)
    begun = mark if mark >= 0 and ">" not in whole[mark:shared] else shared
    written = _ENDS.split(whole[begun:])[0]
    for sizes in ([len(whole) * 4], [1], [3, 9]):
        got = read(dialogue.reader(turn.offer), decoded(written.encode(), sizes, 5), cut=False)
        assert got.calls == [("put_entry", json.dumps(arguments, sort_keys=True))], written
