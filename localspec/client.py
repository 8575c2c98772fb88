"""The blocking client of the daemon's API, for the command line and scripts.

Standard library only, because its import time is felt at every call of `localspec`.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from localspec import paths
from localspec.errors import (
    ConfigError,
    DaemonError,
    Forbidden,
    LocalSpecError,
    NotRunning,
    RequestError,
    by_code,
    unreadable,
)

if TYPE_CHECKING:
    from http.client import HTTPConnection, HTTPResponse

MAX_TOKEN_BYTES = 8192

ANSWER_SECONDS = 10.0
"""How long a question that needs no model may take before the daemon counts as stuck."""

HTTP_ERRORS = 400
HTTP_UNAUTHORIZED = 401
MAX_LINE_BYTES = 16 * 1024 * 1024

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Waiting:
    """No text yet, and why: "loading target 42%"."""

    text: str


@dataclass(frozen=True, slots=True)
class Piece:
    """New text of the answer; `origins` gives (length in characters, source) for each token.

    `thinking` is True for thinking, which the server sends apart from the answer.
    """

    text: str
    origins: tuple[tuple[int, str], ...] = ()
    thinking: bool = False


@dataclass(frozen=True, slots=True)
class End:
    """The last event of an answer: why it ended and the figures of the run.

    `usage` is OpenAI's object, `timings` llama-server's, `speculation` the protocol's
    SpeculationReport; each is empty when the server did not send it.
    """

    reason: str
    model: str = ""
    usage: Json = field(default_factory=dict)
    timings: Json = field(default_factory=dict)
    speculation: Json = field(default_factory=dict)


Event: TypeAlias = Waiting | Piece | End


class Client:
    """One daemon's address. Holds no connection: each call opens its own and closes it.

    Methods raise NotRunning when no daemon listens, and otherwise the class of `errors.py` that
    the daemon named.
    """

    def __init__(
        self,
        socket_path: Path | None = None,
        *,
        tcp: tuple[str, int] | None = None,
        token: str = "",
    ) -> None:
        """A client of the socket, by default the user's own, or of a loopback TCP port."""
        self.socket_path = None if tcp else socket_path or paths.socket_path()
        self.tcp = tcp
        self.config_error: ConfigError | None = None
        self._token = token

    @classmethod
    def from_environment(cls) -> Client:
        """The daemon meant by LOCALSPEC_HOST, else by the configuration.

        If the configuration has a mistake, its last good version is used, as by a running daemon,
        and `config_error` is the mistake. Raises ConfigError for a wrong LOCALSPEC_HOST.
        """
        host = os.environ.get("LOCALSPEC_HOST", "")
        if host.startswith("unix://"):
            return cls(Path(host.removeprefix("unix://")))
        if host:
            return cls(tcp=_loopback(host), token=_token())
        if not paths.is_configured():
            return cls()
        from localspec import config  # noqa: PLC0415  the import costs more than a whole call

        settings, error = config.in_force(paths.config_file())
        chosen = settings.server.socket
        found = cls(paths.expanded(chosen) if chosen else None)
        found.config_error = error
        return found

    def __str__(self) -> str:
        if self.socket_path:
            return str(self.socket_path)
        host, port = self.tcp or ("", 0)
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def authorization(self) -> dict[str, str]:
        """The header with the token for a TCP port; empty without a token."""
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def status(self) -> Json:
        """GET /v1/status: process, models, counts."""
        return self._get("/v1/status")

    def cache(self) -> Json:
        """GET /v1/cache: what is kept of prompts that were read."""
        return self._get("/v1/cache")

    def clear_cache(self) -> Json:
        """DELETE /v1/cache: delete all that is kept of prompts."""
        return self._whole("DELETE", "/v1/cache")

    def page(self) -> str:
        """An address that opens the daemon's page in a browser, once and within a minute."""
        return str(self._whole("POST", "/v1/web", {})["url"])

    def models(self) -> list[Json]:
        """GET /v1/models: the models that a request may name."""
        found: list[Json] = self._get("/v1/models").get("data", [])
        return found

    def load(self, model: str | None = None) -> Json:
        """POST /v1/models/load: begin to load `model`, or the default model, and return."""
        return self._whole("POST", "/v1/models/load", {"model": model})

    def chat(
        self, messages: Sequence[Json], *, prediction: str = "", **params: Any
    ) -> Iterator[Event]:
        """Stream an answer to `messages`; `params` are fields of the request.

        `prediction` is the expected answer, such as a file before an edit: text that the answer
        shares with it comes faster. Closing the iterator closes the connection, and with that ends
        the daemon's work.
        """
        body = _chat_body(messages, prediction, params)
        return self._stream("/v1/chat/completions", body, _chat_text)

    def complete(self, prompt: str, **params: Any) -> Iterator[Event]:
        """Stream the continuation of `prompt`, without a chat template."""
        return self._stream("/v1/completions", {"prompt": prompt, **params}, _completion_text)

    def replay(
        self, messages: Sequence[Json], text: str, *, prediction: str = "", **params: Any
    ) -> Json:
        """POST /v1/replay: the protocol's Replayed of `text` as the answer to `messages`.

        It takes about as long as the answer took. `prediction` and `params` are as for `chat`.
        """
        body = {"text": text, "aliases": False, **_chat_body(messages, prediction, params)}
        return self._whole("POST", "/v1/replay", body)

    def _get(self, path: str) -> Json:
        return self._whole("GET", path)

    def _whole(self, method: str, path: str, body: Json | None = None) -> Json:
        with self._exchange(method, path, body) as response:
            try:
                answer = json.loads(response.read())
            except ValueError as error:
                raise _nonsense(f"{path} is not JSON") from error
        if not isinstance(answer, dict):
            raise _nonsense(f"{path} is not a JSON object")
        return answer

    def _stream(self, path: str, body: Json, text_of: Callable[[Json], str]) -> Iterator[Event]:
        options = {"stream_options": {"include_usage": True}, "return_progress": True}
        body = {"stream": True, "aliases": False, **options, **body}
        with self._exchange("POST", path, body) as response:
            yield from _events(_lines(response), text_of)

    @contextmanager
    def _exchange(self, method: str, path: str, body: Json | None = None) -> Iterator[HTTPResponse]:
        """One request and its response, errors mapped; the connection lives as long as this."""
        from http.client import HTTPConnection, HTTPException  # noqa: PLC0415  not for Tab

        data = _encode(body)
        host, port = self.tcp or ("localhost", None)
        connection = HTTPConnection(host, port, timeout=ANSWER_SECONDS)
        try:
            self._connect(connection)
            headers = {"Content-Type": "application/json"} if data else {}
            headers |= self.authorization
            connection.request(method, path, body=data, headers=headers)
            if data:  # a prompt may take minutes to read: from here on silence is not failure
                connection.sock.settimeout(None)
            response = connection.getresponse()
            if response.status >= HTTP_ERRORS:
                raise _error_of(response)
            yield response
        except TimeoutError as error:
            raise DaemonError(
                f"The daemon at {self} did not answer within {ANSWER_SECONDS:g} s.",
                fix="localspec restart",
            ) from error
        except (OSError, HTTPException) as error:
            raise DaemonError(
                f"The connection to the daemon at {self} broke: {error!r}.", fix="localspec logs"
            ) from error
        finally:
            connection.close()

    def _connect(self, connection: HTTPConnection) -> None:
        try:
            if self.socket_path:
                connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                connection.sock.settimeout(ANSWER_SECONDS)
                connection.sock.connect(str(self.socket_path))
            else:
                connection.connect()
        except (FileNotFoundError, ConnectionRefusedError) as error:
            raise NotRunning(f"No daemon listens on {self}.", fix="localspec start") from error
        except PermissionError as error:
            raise Forbidden(
                f"{self} belongs to another user.", fix="localspec start  # your own daemon"
            ) from error
        except OSError as error:
            if isinstance(error, TimeoutError):
                raise
            raise ConfigError(
                f"{self} cannot be connected to: {unreadable(error)}.",
                fix="Check LOCALSPEC_HOST and server.socket.",
            ) from error


def _chat_body(messages: Sequence[Json], prediction: str, params: Json) -> Json:
    # "none" leaves thoughts in the text: they are shown in place, and a replay needs all of it.
    body = {"messages": list(messages), "reasoning_format": "none", **params}
    if prediction:
        body["prediction"] = {"type": "content", "content": prediction}
    return body


def _encode(body: Json | None) -> bytes:
    if body is None:
        return b""
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except ValueError as error:
        raise RequestError(f"The request cannot be written as JSON: {error}.") from error


def _lines(response: HTTPResponse) -> Iterator[bytes]:
    while line := response.readline(MAX_LINE_BYTES + 1):
        if len(line) > MAX_LINE_BYTES:
            raise _nonsense("a line of the stream has no end")
        yield line.rstrip(b"\r\n")
    raise DaemonError("The daemon broke off in the middle of the answer.", fix="localspec logs")


def _events(lines: Iterator[bytes], text_of: Callable[[Json], str]) -> Iterator[Event]:
    """Server-sent events of an OpenAI stream as events of this module."""
    end = End("")
    for line in lines:
        if line.startswith(b":") and line[1:].strip():
            yield Waiting(line[1:].strip().decode(errors="replace"))
        if not line.startswith(b"data:"):
            continue
        data = line[5:].strip()
        if data == b"[DONE]":
            yield end
            return
        chunk = _chunk(data)
        if reading := _reading(chunk):
            yield Waiting(reading)
        if thought := _thought(chunk):
            yield Piece(thought, thinking=True)
        text = text_of(chunk)
        if text:
            origins = tuple((length, source) for length, source in chunk.get("origins") or ())
            yield Piece(text, origins)
        end = _updated(end, chunk)


def _chunk(data: bytes) -> Json:
    try:
        chunk = json.loads(data)
    except ValueError as error:
        raise _nonsense("a chunk of the stream is not JSON") from error
    if not isinstance(chunk, dict):
        raise _nonsense("a chunk of the stream is not an object")
    if isinstance(chunk.get("error"), dict):
        raise _error_from(chunk["error"])
    return chunk


def _reading(chunk: Json) -> str:
    """How far a prompt is read, in words; "" where the chunk is about something else."""
    told = chunk.get("prompt_progress")
    if not isinstance(told, dict) or not all(isinstance(n, int) for n in told.values()):
        return ""
    total, done = told.get("total", 0), told.get("processed", 0)
    if total - done <= 1:  # the last token is read with the answer's first
        return ""
    read, seconds = done - told.get("cache", 0), told.get("time_ms", 0) / 1000
    rate = f", {read / seconds:.0f} tokens/s" if read > 0 and seconds > 0 else ""
    return f"reading the prompt {done / total:.0%}{rate}"


def _updated(end: End, chunk: Json) -> End:
    choices = chunk.get("choices") or [{}]
    return End(
        choices[0].get("finish_reason") or end.reason,
        chunk.get("model") or end.model,
        chunk.get("usage") or end.usage,
        chunk.get("timings") or end.timings,
        chunk.get("speculation") or end.speculation,
    )


def _chat_text(chunk: Json) -> str:
    choices = chunk.get("choices") or [{}]
    return (choices[0].get("delta") or {}).get("content") or ""


def _thought(chunk: Json) -> str:
    """The thoughts in a chunk; "" if it has none."""
    choices = chunk.get("choices") or [{}]
    return (choices[0].get("delta") or {}).get("reasoning_content") or ""


def _completion_text(chunk: Json) -> str:
    choices = chunk.get("choices") or [{}]
    return choices[0].get("text") or ""


def other_version(daemon: str) -> str:
    """A sentence about a daemon of another version than this command; "" for one of the same."""
    from importlib import metadata  # noqa: PLC0415  slow to import, and only errors ask

    with suppress(metadata.PackageNotFoundError):  # a checkout that is not installed
        if (own := metadata.version("localspec")) != daemon:
            return f"The daemon is LocalSpec {daemon}, and this command {own}: localspec restart"
    return ""


def _error_of(response: HTTPResponse) -> LocalSpecError:
    """The error of a response; its `fix` mentions it if the daemon is of another version."""
    error = _told(response)
    name, _, version = response.headers.get("Server", "").partition("/")
    if name == "localspec" and (said := other_version(version)):
        error.fix = f"{error.fix}\n{said}".strip()
    return error


def _told(response: HTTPResponse) -> LocalSpecError:
    try:
        error = _error_from(json.loads(response.read())["error"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return _nonsense(f"HTTP {response.status} without an error object")
    if response.status == HTTP_UNAUTHORIZED:
        return Forbidden(error.message, fix=error.fix)
    return error


def _error_from(fields: Json) -> LocalSpecError:
    known = {"message", "type", "param", "code", "fix"}
    return by_code(str(fields.get("code")))(
        str(fields.get("message") or "The daemon gave no reason."),
        fix=str(fields.get("fix") or ""),
        param=fields.get("param"),
        details={key: value for key, value in fields.items() if key not in known},
    )


def _nonsense(what: str) -> DaemonError:
    return DaemonError(
        f"The answer is not from a LocalSpec daemon of this version: {what}.",
        fix="localspec restart",
    )


def _loopback(host: str) -> tuple[str, int]:
    from localspec import config  # noqa: PLC0415  the import costs more than a whole call

    address = host.removeprefix("http://").rstrip("/").replace("localhost:", "127.0.0.1:")
    try:
        return config.tcp_address(address)
    except ConfigError as error:
        raise ConfigError(
            f'LOCALSPEC_HOST = "{host}" is neither unix:///path nor a loopback host:port.',
            fix="Reach another machine through ssh -L.",
        ) from error


def _token() -> str:
    """The secret in LOCALSPEC_API_KEY_FILE, by default the one that this user's daemon made."""
    chosen = os.environ.get("LOCALSPEC_API_KEY_FILE")
    path = Path(chosen) if chosen else paths.state_dir() / "token"
    try:
        token = paths.read_named(path, MAX_TOKEN_BYTES + 1).decode().strip()
    except FileNotFoundError:
        if not chosen:
            return ""
        raise ConfigError(f"LOCALSPEC_API_KEY_FILE names {path}, which does not exist.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The token in {path} cannot be read: {unreadable(error)}.") from error
    if len(token) > MAX_TOKEN_BYTES or not (token.isascii() and token.isprintable()):
        raise ConfigError(
            f"{path} is not one line with a token.",
            fix="Let LOCALSPEC_API_KEY_FILE name the file `token` in the daemon's state directory.",
        )
    return token
