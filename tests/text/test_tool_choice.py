"""Tests of OpenAI's `tool_choice`."""

from __future__ import annotations

from typing import Any

import pytest

from localspec.errors import RequestError
from localspec.text.formats.choice import offered

TOOLS = [{"type": "function", "function": {"name": name}} for name in ("one", "two", "three")]
SOME: Any = [{"type": "function", "name": "two"}, {"type": "function", "name": "gone"}]


@pytest.mark.parametrize(("mode", "forced"), [("auto", False), ("required", True)])
def test_a_choice_among_some_is_as_chats_and_responses_write_it(mode: str, forced: bool) -> None:
    """Other functions are not offered."""
    in_chats = {"mode": mode, "tools": [{"type": "function", "function": SOME[0]}]}
    for choice in (
        {"type": "allowed_tools", "mode": mode, "tools": SOME},
        {"type": "allowed_tools", "allowed_tools": in_chats},
    ):
        offer = offered(TOOLS, choice, parallel=True)
        assert [function["name"] for function in offer.functions] == ["two"]
        assert offer.forced == forced


def test_a_choice_among_none_calls_nothing_and_forces_nothing() -> None:
    """If a call is required, an empty choice is an error."""
    nobody: Any = {"type": "allowed_tools", "mode": "auto", "tools": SOME[1:]}
    assert not offered(TOOLS, nobody, parallel=True).functions
    with pytest.raises(RequestError, match="no functions"):
        offered(TOOLS, nobody | {"mode": "required"}, parallel=True)
