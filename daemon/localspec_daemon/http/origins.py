"""Decides which web pages may send requests: those that `server.origins` names. Pure.

`localspec/web_origins.py` defines the patterns.
"""

from __future__ import annotations

from collections.abc import Sequence

from multidict import CIMultiDictProxy

from localspec import web_origins


def allowed(headers: CIMultiDictProxy[str], patterns: Sequence[str]) -> bool:
    """Whether a request came from no web page, or from an allowed one."""
    origins = headers.getall("Origin", [])
    if not origins:
        return headers.get("Sec-Fetch-Site", "none") in {"none", "same-origin"}
    return len(origins) == 1 and web_origins.matches(origins[0], patterns)


def sharing(headers: CIMultiDictProxy[str]) -> dict[str, str]:
    """The CORS headers for an allowed page; {} for other callers."""
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
