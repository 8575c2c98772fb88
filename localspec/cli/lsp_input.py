"""Reads an editor's messages for `localspec lsp`, and answers malformed ones with LSP's errors.

pygls reads as many bytes as a head announces, and does not answer a message that it cannot read.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, BinaryIO

MAX_BYTES = 64 << 20
"""The largest message: no editor sends a larger document."""
_MAX_LINE_BYTES = 8192
_MAX_LINES = 64

PARSE_ERROR, INVALID_REQUEST = -32700, -32600


class BadHead(Exception):
    """The head of a message is wrong, so that it is unknown where the next one begins."""


class Messages:
    """The sound messages of a stream, each behind a head, as pygls reads them.

    `structure` raises an exception, with a `code`, for a request whose parameters are wrong.
    If the stream cannot be read further it ends, and `broken` says why. Used by one thread at a
    time.
    """

    def __init__(
        self, source: BinaryIO, output: BinaryIO, structure: Callable[[dict[str, Any]], object]
    ) -> None:
        self.broken = ""
        self._source, self._output, self._structure = source, output, structure
        self._lines: list[bytes] = []
        self._body = b""

    def readline(self) -> bytes:
        """The next line of a head; b"" at the end."""
        if self._lines:
            return self._lines.pop()
        body = None if self.broken else self._next()
        if body is None:
            return b""
        self._body, self._lines = body, [b"\r\n"]
        return b"Content-Length: %d\r\n" % len(body)

    def read(self, _count: int) -> bytes:
        """The body behind the head that was read."""
        return self._body

    def _next(self) -> bytes | None:
        """The body of the next sound message; None at the end."""
        try:
            while (length := self._length()) is not None:
                body = self._source.read(length)
                if len(body) < length:  # the editor has gone
                    return None
                if self._is_sound(body):
                    return body
        except BadHead as error:
            self.broken = str(error)
            self._refuse(None, PARSE_ERROR, self.broken)
        return None

    def _length(self) -> int | None:
        """The bytes of the next body; None at the end. Raises BadHead."""
        given = None
        for _ in range(_MAX_LINES):
            line = self._source.readline(_MAX_LINE_BYTES)
            if not line:
                return None
            if len(line) == _MAX_LINE_BYTES:
                raise BadHead("The head of a message has a line that does not end.")
            if not line.strip():
                return _checked(given)
            name, _, value = line.decode("ascii", "replace").partition(":")
            if name.strip().lower() == "content-length":
                given = value.strip()
        raise BadHead("The head of a message does not end.")

    def _is_sound(self, body: bytes) -> bool:
        """Whether a body is a message; if not, it has been answered."""
        try:
            message = json.loads(body)
        except (ValueError, RecursionError):
            self._refuse(None, PARSE_ERROR, "The message is not JSON.")
            return False
        id_ = message.get("id") if isinstance(message, dict) else None
        id_ = id_ if isinstance(id_, str | int) and not isinstance(id_, bool) else None
        if why := _fault(message):
            self._refuse(id_, INVALID_REQUEST, why)
            return False
        if "method" in message and id_ is not None:
            try:
                self._structure(message)
            except Exception as error:  # noqa: BLE001 - of pygls or of what structures its types
                self._refuse(id_, getattr(error, "code", INVALID_REQUEST), str(error))
                return False
        return True

    def _refuse(self, id_: str | int | None, code: int, why: str) -> None:
        error = {"code": code, "message": why}
        answer = json.dumps({"jsonrpc": "2.0", "id": id_, "error": error}).encode()
        self._output.write(b"Content-Length: %d\r\n\r\n%s" % (len(answer), answer))
        self._output.flush()


def _checked(given: str | None) -> int:
    """A Content-Length as a number. Raises BadHead."""
    if given is None:
        raise BadHead("The head of a message has no Content-Length.")
    if not (given.isascii() and given.isdigit()):
        raise BadHead("The Content-Length of a message is no number of bytes.")
    if len(given) > len(str(MAX_BYTES)) or int(given) > MAX_BYTES:
        raise BadHead(f"A message is over {MAX_BYTES >> 20} MiB.")
    return int(given)


def _fault(message: object) -> str:
    """The reason why some JSON is no message; "" if it is one."""
    if not isinstance(message, dict):
        return "The message is not a JSON object."
    asks = "method" in message
    kinds = {str, int} if asks else {str, int, type(None)}  # the id of an error may be null
    faults = {
        'The message has no "jsonrpc": "2.0".': message.get("jsonrpc") != "2.0",
        "The id is neither a string nor a whole number.": type(message.get("id", 0)) not in kinds,
        "The method is not a string.": not isinstance(message.get("method", ""), str),
        "The message has neither a method nor a result.": not asks
        and not {"result", "error"} & message.keys(),
        "The params are neither an object nor a list.": asks
        and not isinstance(message.get("params") or {}, dict | list),
    }
    return next((why for why, holds in faults.items() if holds), "")
