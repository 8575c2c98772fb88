"""Admits browsers to the page: a code for the first visit, then a cookie and a key. Pure.

A code is part of an address, and browsers keep addresses in their histories: each code is valid
once, and for a minute.

Browsers send a cookie to every port of this host, with the requests of every page there, so other
programs that listen can read it. Therefore a cookie opens only the page's files, which hold nothing
private, and the exchange of a second code for the key. All other requests of the page also need the
key: its script keeps the key in the storage of its own origin, which includes the port, and sends
it in a header. The daemon keeps hashes of cookies and keys, so open tabs go on after a restart.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Mapping
from typing import NamedTuple

CODE_SECONDS = 60.0
MAX_CODES, MAX_BROWSERS = 16, 64
COOKIE = "localspec"
KEY_HEADER = "X-LocalSpec-Key"


class CodeExchange(NamedTuple):
    """The cookie for a first code, and a second code that the script exchanges for a key."""

    cookie: str
    code: str


class Kept(NamedTuple):
    """Hashes of the cookies and keys that are good, in hexadecimal, the oldest first."""

    cookies: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()


class Passes:
    """Codes, cookies and keys. One thread."""

    def __init__(self, kept: Kept = Kept()) -> None:  # noqa: B008 - it cannot be changed
        """Cookies and keys that are in `kept` are valid from the beginning."""
        self._codes: dict[str, float] = {}
        self._claims: dict[str, float] = {}
        self._cookies = dict.fromkeys(map(bytes.fromhex, kept.cookies[-MAX_BROWSERS:]))
        self._keys = dict.fromkeys(map(bytes.fromhex, kept.keys[-MAX_BROWSERS:]))

    def kept(self) -> Kept:
        """The state that a later daemon needs."""
        return Kept(tuple(map(bytes.hex, self._cookies)), tuple(map(bytes.hex, self._keys)))

    def issue(self, now: float) -> str:
        """A code for one visit. `now` is in seconds of any clock."""
        return _issued(self._codes, now)

    def redeem(self, code: str, now: float) -> CodeExchange | None:
        """The cookie and the second code for this code; None if it is not good any more."""
        if now > self._codes.pop(code, now - 1):
            return None
        return CodeExchange(_added(self._cookies), _issued(self._claims, now))

    def claim(self, code: str, now: float) -> str | None:
        """The key for a second code; None if that is not good any more."""
        return None if now > self._claims.pop(code, now - 1) else _added(self._keys)

    def visits(self, cookies: Iterable[str], headers: Mapping[str, str]) -> bool:
        """Whether a browser with a valid cookie sent this request, and not for another page."""
        if not any(_hash(cookie) in self._cookies for cookie in cookies):
            return False
        own = f"http://{headers.get('Host', '')}"
        if headers.get("Origin", own) != own:
            return False
        return headers.get("Sec-Fetch-Site", "none") in {"none", "same-origin"}

    def admits(self, cookies: Iterable[str], headers: Mapping[str, str]) -> bool:
        """Whether the page's own script sent this request."""
        key = headers.get(KEY_HEADER, "")
        return self.visits(cookies, headers) and _hash(key) in self._keys


def cookie_names(port: int) -> tuple[str, str]:
    """The cookie's two names for the page on this port, so that daemons do not share a cookie.

    If a browser accepts the first name on loopback addresses, no other page can replace the cookie.
    """
    return f"__Host-{COOKIE}-{port}", f"{COOKIE}-{port}"


def _issued(codes: dict[str, float], now: float) -> str:
    code = secrets.token_urlsafe(24)
    codes[code] = now + CODE_SECONDS
    while len(codes) > MAX_CODES:
        del codes[next(iter(codes))]
    return code


def _added(hashes: dict[bytes, None]) -> str:
    value = secrets.token_urlsafe(32)
    hashes[_hash(value)] = None
    while len(hashes) > MAX_BROWSERS:
        del hashes[next(iter(hashes))]
    return value


def _hash(value: str) -> bytes:
    return hashlib.sha256(value.encode("utf-8", "surrogateescape")).digest()
