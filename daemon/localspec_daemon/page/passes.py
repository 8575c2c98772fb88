"""Who has opened the page: one-time codes for a browser's first visit, cookies for the rest. Pure.

A code is in an address, and addresses are kept in histories: it is good once, and for a minute. The
cookie is the browser's own until the daemon ends. It goes to any port of this host, so it is not
enough for what changes anything or tells anything: the request must also come from the page's own
origin (`admits`).
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping

CODE_SECONDS = 60.0
MAX_CODES, MAX_BROWSERS = 16, 64
COOKIE = "localspec"


class Passes:
    """Codes and cookies of one daemon's life. One thread."""

    def __init__(self) -> None:
        self._codes: dict[str, float] = {}
        self._hashes: dict[bytes, None] = {}

    def issue(self, now: float) -> str:
        """A code for one visit. `now` is in seconds of any clock."""
        code = secrets.token_urlsafe(24)
        self._codes[code] = now + CODE_SECONDS
        while len(self._codes) > MAX_CODES:
            del self._codes[next(iter(self._codes))]
        return code

    def redeem(self, code: str, now: float) -> str | None:
        """The cookie's value for whoever brings this code; None if it is not good any more."""
        if now > self._codes.pop(code, now - 1):
            return None
        value = secrets.token_urlsafe(32)
        self._hashes[_hash(value)] = None
        while len(self._hashes) > MAX_BROWSERS:
            del self._hashes[next(iter(self._hashes))]
        return value

    def admits(self, cookie: str | None, headers: Mapping[str, str]) -> bool:
        """Whether the page itself sent this request, from a browser that has a cookie."""
        if cookie is None or _hash(cookie) not in self._hashes:
            return False
        own = f"http://{headers.get('Host', '')}"
        if headers.get("Origin", own) != own:
            return False
        return headers.get("Sec-Fetch-Site", "none") in {"none", "same-origin"}


def _hash(value: str) -> bytes:
    return hashlib.sha256(value.encode("utf-8", "surrogateescape")).digest()
