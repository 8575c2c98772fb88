"""Client of the Hugging Face Hub: API requests, and downloads that resume at any byte.

HF_ENDPOINT replaces the Hub's address; HF_HUB_OFFLINE forbids all requests to it. Files of other
servers are fetched in the same way, without the user's token.
"""

from __future__ import annotations

import http.client
import os
import re
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

import msgspec

from localspec.catalog import hub_cache
from localspec.catalog.entries import HubFile
from localspec.catalog.transfer import CHUNK_BYTES, NoAnswer, Partial, Version

DEFAULT_ENDPOINT = "https://huggingface.co"
PATIENCE_SECONDS: Final = 6.0  # DNS, connection, TLS and the listing together
STALL_SECONDS: Final = 20.0  # a download is cut after this long without a byte
MAX_LISTING_BYTES = 8 * 1024 * 1024
_LOST = (OSError, http.client.HTTPException)  # URLError and time-outs are OSErrors


class Refused(Exception):
    """The Hub answered a request with this HTTP status."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"it answered {status} {reason}")
        self.status = status


def fetch(source: HubFile, partial: Partial, *, patience_seconds: float = PATIENCE_SECONDS) -> None:
    """Append the missing bytes to `partial`. Raises NoAnswer, DiskFull."""
    _check_listing(source, partial.entry.sha256, patience_seconds)
    path = urllib.parse.quote(f"{source.repo}/resolve/main/{source.file}")
    fetch_url(f"{_endpoint()}/{path}", partial)


def fetch_url(url: str, partial: Partial) -> None:
    """Append the missing bytes from a URL of any server. Raises NoAnswer, DiskFull."""
    partial.keep_only(url)
    while partial.missing_bytes:
        before = partial.num_bytes
        reason = _append(url, partial)
        if partial.missing_bytes and partial.num_bytes <= before:
            raise NoAnswer(reason)


def length(url: str) -> int:
    """The size in bytes of the file at `url`. Raises NoAnswer, Refused."""
    found = _within(PATIENCE_SECONDS, url, _head_length)
    if not found:  # the header is missing or no number
        raise NoAnswer("the server does not say how long the file is")
    return int(found)


def request(path: str, patience_seconds: float = PATIENCE_SECONDS) -> bytes:
    """The Hub's response to an API request. Raises NoAnswer, Refused."""
    found = _within(patience_seconds, f"{_endpoint()}/{path}", _body)
    assert isinstance(found, bytes)  # noqa: S101 - what _body gives
    return found


def _endpoint() -> str:
    if hub_cache.is_set("HF_HUB_OFFLINE"):
        raise NoAnswer("HF_HUB_OFFLINE is set")
    endpoint = _configured()
    if urllib.parse.urlsplit(endpoint).scheme not in {"http", "https"}:
        raise NoAnswer(f"HF_ENDPOINT={endpoint} is not an http address")
    return endpoint


def _configured() -> str:
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or DEFAULT_ENDPOINT


def _within(
    patience_seconds: float, url: str, work: Callable[[str, float], bytes | int]
) -> bytes | int:
    """Run `work` with a time limit. Raises NoAnswer, Refused."""
    result: list[bytes | int | Exception] = []

    def run() -> None:
        try:
            result.append(work(url, patience_seconds))
        except urllib.error.HTTPError as error:
            error.close()
            result.append(Refused(error.code, error.reason))
        except _LOST as error:
            result.append(error)

    # Name resolution has no time-out of its own, and each address would get the whole time-out.
    thread = threading.Thread(target=run, daemon=True, name="localspec-hub-request")
    thread.start()
    thread.join(patience_seconds)
    server = "/".join(url.split("/")[:3])
    if not result:
        raise NoAnswer(f"{server} did not answer within {patience_seconds:g} s")
    match result[0]:
        case Refused() as refused:
            raise refused
        case Exception() as error:
            raise NoAnswer(f"{server} cannot be reached: {_reason(error)}") from error
        case found:
            return found


def _body(url: str, timeout_seconds: float) -> bytes:
    with _open(url, timeout_seconds) as response:
        return bytes(response.read(MAX_LISTING_BYTES))


def _head_length(url: str, timeout_seconds: float) -> int:
    with _open(url, timeout_seconds, method="HEAD") as response:
        said = str(response.headers.get("Content-Length") or "").strip()
        return int(said) if re.fullmatch(r"[0-9]{1,18}", said) else 0


def _check_listing(source: HubFile, sha256: str, patience_seconds: float) -> None:
    """Refuse a file that the Hub lists with another SHA-256.

    A mirror without listings is accepted: the downloaded bytes are checked in any case.
    """
    try:
        listing = request(
            f"api/models/{urllib.parse.quote(source.repo)}/tree/main", patience_seconds
        )
    except Refused:
        return
    listed = _listed_sha256(listing, source.file)
    if listed is not None and listed != sha256:
        raise NoAnswer(
            f"the Hub's {source.file} has SHA-256 {listed}: it is not the catalog's file"
        )


def _listed_sha256(listing: bytes, file: str) -> str | None:
    try:
        for item in msgspec.json.decode(listing, type=list[dict[str, Any]]):
            if item.get("path") == file:
                return str(item["lfs"]["oid"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return None
    return None


def _append(url: str, partial: Partial) -> str:
    """Append from one connection; returns why it ended."""
    start, validator = partial.num_bytes, partial.version.validator
    headers = {"Range": f"bytes={start}-"} if start else {}
    if start and validator:
        headers["If-Range"] = validator  # a file that has changed is sent from its first byte
    try:
        with _open(url, STALL_SECONDS, headers) as response:
            other = start > 0 and not _continues(response, start, validator)
            if other:
                partial.restart()
            if not other or response.status != HTTPStatus.PARTIAL_CONTENT:
                return _receive(url, response, partial)
        return _append(url, partial)  # the part of another file; now from its first byte
    except urllib.error.HTTPError as error:
        error.close()
        return f"it answered {error.code} {error.reason}{_hint(error.code)}"
    except _LOST as error:
        return f"the connection was lost after {partial.num_bytes} bytes: {_reason(error)}"


def _receive(url: str, response: Any, partial: Partial) -> str:
    if not partial.num_bytes:
        partial.begin(Version(url, _validator(response)))
    while chunk := response.read1(CHUNK_BYTES):
        partial.append(chunk)
    return f"the file ended after {partial.num_bytes} bytes"


def _validator(response: Any) -> str:
    """The strong ETag of a response, else its date; "" if it has neither."""
    tag = str(response.headers.get("ETag") or "").strip()
    strong = tag if tag.startswith('"') else ""  # a weak one is the same for other bytes
    return strong or str(response.headers.get("Last-Modified") or "").strip()


def _hint(status: int) -> str:
    if status not in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        return ""
    if hub_cache.token():
        return "; its owner has to admit you, whom your token names"
    return "; set HF_TOKEN"


def _continues(response: Any, start: int, validator: str) -> bool:
    begins = str(response.headers.get("Content-Range", "")).startswith(f"bytes {start}-")
    same = not validator or _validator(response) in {"", validator}  # not all know If-Range
    return response.status == HTTPStatus.PARTIAL_CONTENT and begins and same


def _open(
    url: str, timeout_seconds: float, headers: dict[str, str] | None = None, method: str = "GET"
) -> Any:
    # S310 is about file: and other schemes: the opener below knows http and https only.
    request = urllib.request.Request(url, headers=headers or {}, method=method)  # noqa: S310 - see above
    request.add_header("User-Agent", "localspec")
    token = hub_cache.token()
    # Only for the Hub itself, never for the storage host that it redirects to or another server.
    if token and url.startswith(f"{_configured()}/"):
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler,
        urllib.request.HTTPHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPRedirectHandler,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.HTTPErrorProcessor,
        urllib.request.UnknownHandler,
    ):
        opener.add_handler(handler())
    return opener.open(request, timeout=timeout_seconds)


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", error) or type(error).__name__)
