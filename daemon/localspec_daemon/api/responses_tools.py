"""Translates functions of a response out of their namespaces for models, and back. Pure, no HTTP.

Models know one flat list of functions. Codex puts some into namespaces, and rejects a call that
comes back without its namespace.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from localspec_daemon.api.dialect import Json


def flat(namespace: Any, name: Any) -> Any:
    """Returns a function's name in the flat list; an invalid name stays unchanged."""
    named = isinstance(namespace, str) and isinstance(name, str) and namespace and name
    return f"{namespace}__{name}" if named else name


def functions(given: Sequence[Json]) -> Iterator[Json]:
    """Yields the functions in the shape of chats, with flat names, and no other tools."""
    for namespace, tool in _functions(given):
        names = ("name", "description", "parameters", "strict")
        function = {name: tool[name] for name in names if tool.get(name) is not None}
        if "name" in function:
            function["name"] = flat(namespace, function["name"])
        yield {"type": "function", "function": function}


def places(given: Sequence[Json]) -> dict[str, tuple[str, str]]:
    """Returns namespace and name of the functions that have a namespace, by flat name."""
    return {
        flat(namespace, tool["name"]): (namespace, tool["name"])
        for namespace, tool in _functions(given)
        if namespace and isinstance(tool.get("name"), str)
    }


def _functions(given: Sequence[Json], namespace: str = "") -> Iterator[tuple[str, Json]]:
    """Yields all functions, each with its namespace."""
    for tool in given:
        inner = tool.get("tools")
        if tool.get("type") == "namespace" and isinstance(inner, list):
            within = str(tool.get("name") or "")
            yield from _functions([one for one in inner if isinstance(one, dict)], within)
        elif tool.get("type") == "function":
            yield namespace, tool
