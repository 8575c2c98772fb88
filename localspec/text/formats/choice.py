"""Turns OpenAI's `tools` and `tool_choice` into an offer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from localspec.errors import RequestError
from localspec.text.formats.offer import Json, Offer

_NAME = re.compile(r"[\w.:/-]{1,128}", re.ASCII)
_ANY = frozenset({"required", "any"})


def offered(tools: Sequence[Json], choice: str | Json | None, *, parallel: bool) -> Offer:
    """The offer: the functions that an answer may call.

    Tools that are no functions are ignored. Raises RequestError, which names the field.
    """
    functions = [
        _function(index, tool)
        for index, tool in enumerate(tools)
        if tool.get("type", "function") == "function"
    ]
    choice, functions = _allowed(choice, functions)
    wanted = _wanted(choice)
    if wanted == "none":
        return Offer()
    if wanted == "auto":
        return Offer(functions, parallel=parallel)
    if not functions:
        raise _no("tool_choice asks for a call, but there are no functions in tools")
    if wanted in _ANY:
        return Offer(functions, forced=True, parallel=parallel)
    only = wanted.removeprefix("=")
    if only not in {function["name"] for function in functions}:
        raise _no(f"tool_choice names {only[:80]!r}, which tools does not hold")
    return Offer(functions, forced=True, only=only, parallel=False)


def _allowed(
    choice: str | Json | None, functions: list[Json]
) -> tuple[str | Json | None, list[Json]]:
    """The mode and the functions of a choice among some of them; any other choice is unchanged.

    OpenAI's Chat Completions and Responses write such a choice differently.
    """
    match choice:
        case {"type": "allowed_tools", "mode": str(mode), "tools": [*some]} | {
            "type": "allowed_tools",
            "allowed_tools": {"mode": str(mode), "tools": [*some]},
        }:
            shapes = [each.get("function", each) for each in some if isinstance(each, dict)]
            names = [shape.get("name") for shape in shapes if isinstance(shape, dict)]
            return mode, [function for function in functions if function["name"] in names]
    return choice, functions


def _wanted(choice: str | Json | None) -> str:
    """The mode, or "=" and the name of a function. Raises RequestError."""
    match choice:
        case None:
            return "auto"
        case "auto" | "none" | "required" | "any":
            return choice
        case {"type": "function", "function": {"name": str(name)}}:
            return f"={name}"
        case {"type": "function" | "tool", "name": str(name)}:
            return f"={name}"
        case {"type": "auto" | "none" | "required" | "any" as word}:
            return str(word)
    raise _no(f"tool_choice {str(choice)[:80]!r} is not known")


def _function(index: int, tool: Json) -> Json:
    """The function object of one tool. Raises RequestError."""
    given: Any = tool.get("function", tool)
    name = given.get("name") if isinstance(given, dict) else None
    where = f"tools[{index}].function"
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise RequestError(
            f"{where}.name must have 1 to 128 letters, digits and _ . : / -.", param="tools"
        )
    if not isinstance(given.get("parameters") or {}, dict):
        raise RequestError(f"{where}.parameters is not an object.", param="tools")
    return {key: value for key, value in given.items() if key != "type" and value is not None}


def _no(what: str) -> RequestError:
    fix = 'Choose "auto", "none", "required" or one of the functions in tools.'
    return RequestError(f"{what}.", fix=fix, param="tool_choice")
