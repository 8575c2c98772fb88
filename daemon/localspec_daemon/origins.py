"""Which web pages may speak: editors' webviews that `server.origins` names, nobody else. Pure.

A pattern is an origin; a * in it is any text, but not for http and https: those are the schemes
that any page can have.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from multidict import CIMultiDictProxy


def allowed(headers: CIMultiDictProxy[str], patterns: Sequence[str]) -> bool:
    """Whether a request came from no web page, or from one that may speak."""
    origins = headers.getall("Origin", [])
    if not origins:
        return headers.get("Sec-Fetch-Site", "none") in {"none", "same-origin"}
    return len(origins) == 1 and any(fnmatchcase(origins[0], pattern) for pattern in patterns)


def sharing(headers: CIMultiDictProxy[str]) -> dict[str, str]:
    """What tells the browser of an allowed page that the answer is for it; {} for other callers."""
    origin = headers.get("Origin")
    if origin is None:
        return {}
    shared = {"Access-Control-Allow-Origin": origin, "Vary": "Origin"}
    if asked := headers.get("Access-Control-Request-Method"):
        shared |= {
            "Access-Control-Allow-Methods": asked,
            "Access-Control-Allow-Headers": headers.get("Access-Control-Request-Headers", "*"),
            "Access-Control-Allow-Private-Network": "true",
            "Access-Control-Max-Age": "600",
        }
    return shared
