"""Addresses of servers as they are written: host:port, and the base of an API."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

MAX_PORT = 65535


def host_and_port(text: str) -> tuple[str, int] | None:
    """("10.0.0.2", 50052) from "10.0.0.2:50052"; None for anything else.

    A host is a name or an IPv4 address, as llama.cpp's RPC requires.
    """
    found = re.fullmatch(r"([A-Za-z0-9](?:[A-Za-z0-9._-]{0,252}[A-Za-z0-9])?):([0-9]{1,5})", text)
    if not found or not 0 < int(found[2]) <= MAX_PORT:
        return None
    return found[1], int(found[2])


def is_base_url(url: str) -> bool:
    """Whether `url` is the address of an API: http or https, a host, no user and no query."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, for example
        return False
    printable = url.isascii() and url.isprintable() and not set(url) & set(' \\"<>')
    return usable and printable and not set("@?#") & set(url)
