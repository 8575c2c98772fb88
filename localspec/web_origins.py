"""Parses origins of web pages, and matches them against patterns part by part. Pure.

An origin is a scheme, a host and perhaps a port (RFC 6454). In a pattern, * stands for any text in
the host, except for http and https, which any page can have. Nothing else is special in a pattern.
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
"""Limit of an origin's length: more than a host name and a scheme have together."""


def wrong(pattern: str) -> str:
    """The reason why a pattern names no origin, or every page's; "" if it is valid."""
    found = _ORIGIN.fullmatch(pattern) if len(pattern) <= MAX_CHARS else None
    if found is None:
        return "is no origin"
    if "*" in found["host"] and found["scheme"].lower() in _WEB:
        return "is what any page could have"
    if found["port"] and int(found["port"]) > _LAST_PORT:
        return "has a port that does not exist"
    return ""


def matches(origin: str, patterns: Iterable[str]) -> bool:
    """Whether one of these valid patterns matches a page's origin."""
    if len(origin) > MAX_CHARS or "*" in origin or _ORIGIN.fullmatch(origin) is None:
        return False
    return any(
        re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), origin, re.IGNORECASE)
        for pattern in patterns
        if not wrong(pattern)
    )
