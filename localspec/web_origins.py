"""Origins of web pages, and patterns that name some: parsed, and compared part by part. Pure.

An origin is a scheme, a host and perhaps a port (RFC 6454). A pattern is one, in which a * stands
for any text of the host, but not with http and https: those are the schemes that any page can have.
Nothing else has a meaning in a pattern.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_ORIGIN = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://"
    r"(?P<host>\[[0-9a-f:.]+\]|[a-z0-9._~*-]+)"
    r"(?::(?P<port>[0-9]{1,5}))?",
    re.ASCII | re.IGNORECASE,
)
_WEB = frozenset({"http", "https"})
_LAST_PORT = 65535
MAX_CHARS = 500
"""Of an origin: more than a name of a host and a scheme have together."""


def wrong(pattern: str) -> str:
    """Why a pattern names no origin, or that of any page; empty where it is one."""
    found = _ORIGIN.fullmatch(pattern) if len(pattern) <= MAX_CHARS else None
    if found is None:
        return "is no origin"
    if "*" in found["host"] and found["scheme"].lower() in _WEB:
        return "is what any page could have"
    if found["port"] and int(found["port"]) > _LAST_PORT:
        return "has a port that does not exist"
    return ""


def matches(origin: str, patterns: Iterable[str]) -> bool:
    """Whether one of these patterns, which are not `wrong`, is for a page of this origin."""
    if len(origin) > MAX_CHARS or "*" in origin or _ORIGIN.fullmatch(origin) is None:
        return False
    return any(
        re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), origin, re.IGNORECASE)
        for pattern in patterns
        if not wrong(pattern)
    )
