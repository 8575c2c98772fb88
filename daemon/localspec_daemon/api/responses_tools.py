"""The functions of a response: out of their namespaces for models, and back. Pure, no HTTP.

Models know one list of functions. Codex offers some in namespaces, and does not know a call that
comes back without its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from localspec_daemon.api.dialect import Json


def flat(namespace: Any, name: Any) -> Any:
    """A function's name among all others; what is no name stays as it came."""
    named = isinstance(namespace, str) and isinstance(name, str) and namespace and name
    return f"{namespace}__{name}" if named else name


def functions(given: Sequence[Json]) -> Iterator[Json]:
    """In the shape of chats, under flat names; other kinds of tools are not ours to run."""
    for namespace, tool in _told(given):
        names = ("name", "description", "parameters", "strict")
        function = {name: tool[name] for name in names if tool.get(name) is not None}
        if "name" in function:
            function["name"] = flat(namespace, function["name"])
        yield {"type": "function", "function": function}


def places(given: Sequence[Json]) -> dict[str, tuple[str, str]]:
    """Namespace and name of those that have a namespace, by their flat names."""
    return {
        flat(namespace, tool["name"]): (namespace, tool["name"])
        for namespace, tool in _told(given)
        if namespace and isinstance(tool.get("name"), str)
    }


def _told(given: Sequence[Json], namespace: str = "") -> Iterator[tuple[str, Json]]:
    """All functions, each with its namespace."""
    for tool in given:
        inner = tool.get("tools")
        if tool.get("type") == "namespace" and isinstance(inner, list):
            within = str(tool.get("name") or "")
            yield from _told([one for one in inner if isinstance(one, dict)], within)
        elif tool.get("type") == "function":
            yield namespace, tool
