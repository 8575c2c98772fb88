"""Every error a user can meet, in one tree.

    LocalSpecError                 500  exit 1
    ├── ConfigError                400  exit 78   a key, a value or a file of settings
    ├── RequestError               400  exit 2    the request itself is wrong
    │   ├── ContextOverflow        400            prompt and answer do not fit the context
    │   ├── TemplateError          400            the chat template refused the messages
    │   ├── GrammarError           400            the grammar gave up in the middle of an answer
    │   ├── Poisonous              422            it killed two workers and is refused for a while
    │   ├── UnknownModel           404            no such model here or in the catalog
    │   ├── NotServed              400            another server's service, and not one of this
    │   └── TooLarge               413            body or prompt over the size limit
    ├── ModelError                 422  exit 65   a file that cannot serve as a model
    │   ├── BadGGUF                422            not a GGUF, truncated, absurd
    │   │   └── Unreadable         422            the disk or the system refused to read it
    │   ├── BadPair                422            draft and target cannot speculate together
    │   ├── NoNumbers              422            its forwards give NaN or infinity
    │   └── OutOfMemory            507  exit 75   no device has room for it now
    ├── PullError                  502  exit 69   no source could deliver the file
    │   ├── ChecksumMismatch       502            bytes differ from the catalog's SHA-256
    │   └── DiskFull               507            not enough room for the file
    ├── DaemonError                503  exit 69   the daemon cannot answer now
    │   ├── NotRunning             503            no daemon listens on the socket
    │   ├── AlreadyRunning         409  exit 1    another daemon owns the socket
    │   ├── Loading                503  exit 75   the model is still loading
    │   ├── Busy                   429  exit 75   queue full
    │   ├── WorkerCrashed          502            the native code died under a request
    │   ├── RemoteUnavailable      503            a remote that holds layers does not answer
    │   ├── UpstreamUnavailable    503            the server that a model lives on does not answer
    │   ├── UpstreamFailed         502            that server gave an error or a broken answer
    │   └── ShuttingDown           503            no new work is taken
    ├── Forbidden                  403  exit 77   this caller has no access
    └── EngineError                500  exit 70   llama.cpp refused or failed
        └── NoRoom                 507            no memory for more tokens now

A message says what happened and why; `fix` is the command or the change that helps.
`code` is the machine-readable name that the API puts into `error.code`.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
from pathlib import PurePath
from typing import ClassVar

_COMMANDS = re.compile(
    r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Control characters, those that change the direction of text, and lone surrogates, which cannot
be encoded."""

_SECRETS = re.compile(
    r"(?<=://)[^\s/@\"'<>]+(?=@)"  # user and password of an address
    r"|(?<=[?&;])(?:[\w-]{0,40}(?:token|key|secret|signature|password)|sig|auth)=[^\s&#\"'<>]+"
    r"|\b(?:bearer|basic)\s+[\w.~+/=-]{8,}"
    r"|(?-i:\b(?:hf_|sk-|ghp_|github_pat_))[\w-]{8,}",  # case matters: HF_HUB_OFFLINE
    re.IGNORECASE,
)
"""Credentials: in an address, in a header that was repeated, or alone."""

MAX_MESSAGE_CHARS = 2000
"""The length of an error's text, before escaping: two screens of a terminal. Longer texts come from
files, templates, models and other servers, and may have forty megabytes."""
MAX_PARAM_CHARS = 200


def escaped(text: str) -> str:
    r"""`text` on one line, safe for terminals and logs.

    The contents of files (names, tokenizers, templates) are foreign text: control
    characters and those that turn the direction of writing are shown as `\x1b`, newlines as `\n`.
    """
    return _visible(text).replace("\n", "\\n")


def bounded(text: str, most: int = MAX_MESSAGE_CHARS) -> str:
    """`text`, or its beginning and the count of characters that were left out."""
    if len(text) <= most:
        return text
    return f"{text[:most]}... ({len(text) - most} more characters)"


def redacted(text: str) -> str:
    """`text` with stars in place of credentials."""
    return _SECRETS.sub(lambda found: f"{_kind(found[0])}***", text)


def _kind(secret: str) -> str:
    """The part of a secret that names its kind, such as "bearer " or "token="."""
    name, separator, _ = secret.partition("=")
    if separator and "://" not in name and re.fullmatch(r"[\w-]+", name):
        return name + separator
    known = re.match(r"(?:bearer|basic)\s+|hf_|sk-|ghp_|github_pat_", secret, re.IGNORECASE)
    return known[0] if known else ""


def _safe(text: str) -> str:
    """A text as errors carry it: without secrets, not even parts of cut ones, bounded, escaped."""
    seen = 2 * MAX_MESSAGE_CHARS
    return _visible(bounded(redacted(text[:seen]) + text[seen:]))


def _visible(text: str) -> str:
    return _COMMANDS.sub(lambda found: repr(found[0])[1:-1], text)


class LocalSpecError(Exception):
    """Root of the tree.

    Args:
        message: What happened and why, one or two sentences.
        fix: The command or change that helps; may be empty.
        param: The request field or configuration key at fault, if one is.
        details: Extra JSON fields for the API's error object (n_ctx and the like).

    All texts go to terminals, logs and frames, and may quote foreign text: each is cut to a
    bound, secrets in it are stars, and control characters other than newlines are escaped.
    """

    status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1
    code: ClassVar[str] = "internal_error"
    kind: ClassVar[str] = "server_error"

    def __init__(
        self,
        message: str,
        *,
        fix: str = "",
        param: str | None = None,
        details: dict[str, int | str] | None = None,
    ) -> None:
        self.message, self.fix = _safe(message), _safe(fix)
        super().__init__(self.message)
        self.param = None if param is None else _visible(bounded(param, MAX_PARAM_CHARS))
        self.details = {
            key: _visible(bounded(value, MAX_PARAM_CHARS)) if isinstance(value, str) else value
            for key, value in (details or {}).items()
        }

    def __str__(self) -> str:
        return f"{self.message} {self.fix}".rstrip()


def known(error: Exception) -> LocalSpecError:
    """`error` itself; for one outside the tree a LocalSpecError that calls it a bug."""
    if isinstance(error, LocalSpecError):
        return error
    return LocalSpecError(f"A bug: {error!r}.", fix="`localspec logs` has the details.")


class ConfigError(LocalSpecError):
    status, exit_code, code, kind = 400, 78, "config_error", "invalid_request_error"


class RequestError(LocalSpecError):
    status, exit_code, code, kind = 400, 2, "invalid_request", "invalid_request_error"


class ContextOverflow(RequestError):
    code, kind = "context_length_exceeded", "exceed_context_size_error"


class TemplateError(RequestError):
    code = "template_error"


class GrammarError(RequestError):
    code = "grammar_error"


class Poisonous(RequestError):
    status, code = 422, "poisonous"


class UnknownModel(RequestError):
    status, code = 404, "model_not_found"


class NotServed(RequestError):
    code = "not_supported"


class TooLarge(RequestError):
    status, code = 413, "too_large"


class ModelError(LocalSpecError):
    status, exit_code, code, kind = 422, 65, "model_error", "invalid_request_error"


class BadGGUF(ModelError):
    code = "bad_gguf"


class Unreadable(BadGGUF):
    """A file that could not be read; it may be sound, so nobody deletes it."""

    code = "unreadable"


class BadPair(ModelError):
    code = "bad_pair"


class NoNumbers(ModelError):
    code = "no_numbers"


class OutOfMemory(ModelError):
    status, exit_code, code, kind = 507, 75, "out_of_memory", "server_error"


class PullError(LocalSpecError):
    status, exit_code, code = 502, 69, "pull_failed"


class ChecksumMismatch(PullError):
    code = "checksum_mismatch"


class DiskFull(PullError):
    status, code = 507, "disk_full"


class DaemonError(LocalSpecError):
    status, exit_code, code, kind = 503, 69, "unavailable", "unavailable_error"


class NotRunning(DaemonError):
    code = "not_running"


class AlreadyRunning(DaemonError):
    status, exit_code, code = 409, 1, "already_running"


class Loading(DaemonError):
    exit_code, code = 75, "loading"


class Busy(DaemonError):
    status, exit_code, code, kind = 429, 75, "busy", "rate_limit_error"


class WorkerCrashed(DaemonError):
    status, code, kind = 502, "worker_crashed", "server_error"


class RemoteUnavailable(DaemonError):
    code = "remote_unavailable"


class UpstreamUnavailable(DaemonError):
    code = "upstream_unavailable"


class UpstreamFailed(DaemonError):
    status, code, kind = 502, "upstream_failed", "server_error"


class ShuttingDown(DaemonError):
    code = "server_shutdown"


class Forbidden(LocalSpecError):
    status, exit_code, code, kind = 403, 77, "forbidden", "permission_error"


class EngineError(LocalSpecError):
    exit_code, code = 70, "engine_error"


class NoRoom(EngineError):
    status, code = 507, "no_room"


def of_system(error: OSError, where: object = None) -> LocalSpecError:
    """The system's refusal as a sentence: a read-only home, a full disk, a link in the way.

    `where` is the path it happened at, when the error does not say.
    """
    if not where and not error.filename and error.errno == errno.ENOENT and _is_nowhere():
        return LocalSpecError("The current directory was deleted.", fix="cd")
    place = where or error.filename or "a file"
    look = "LOCALSPEC_DEBUG=1 shows where." if place == "a file" else f"ls -ld {place}"
    said = f"{str(place)[:1].upper()}{str(place)[1:]} cannot be used: {error.strerror or error}."
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
            folder = PurePath(str(place)).parent
            disk = shlex.quote(str(folder)) if folder.is_absolute() else "~"
            return DiskFull(f"There is no room for {place}: {error.strerror}.", fix=f"df -h {disk}")
        case errno.EROFS:
            fix = "Set HOME, or the directory's XDG_*_HOME, to a place that can be written."
            return Forbidden(said, fix=fix)
        case errno.EACCES | errno.EPERM:
            return Forbidden(said, fix=look)
        case errno.ELOOP:
            reason = f"{place} is a symbolic link, which could lead anywhere."
            return Forbidden(reason, fix=f"rm {place}  # or put there what it leads to")
    return LocalSpecError(said, fix=look)


def _is_nowhere() -> bool:
    """Whether this process's directory was deleted."""
    try:
        os.getcwd()  # noqa: PTH109 - its error has no other path
    except FileNotFoundError:
        return True
    return False


def unreadable(error: Exception) -> str:
    """Why a file could not be read, in words that go behind a colon and end without a dot."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 text, by its byte {error.start}"
    return str(error)


def no_numbers(file: str = "The model") -> NoNumbers:
    """The error of a model whose logits or vectors are of no use."""
    return NoNumbers(
        f"{file} gives no usable numbers (NaN, infinity, or all the same): the file is damaged, or "
        "this build of llama.cpp computes it wrongly.",
        fix="`localspec models verify` compares files with their SHA-256; a damaged one goes by "
        "`localspec models rm`, and is pulled again.",
    )


def no_embeddings(model: str) -> NotServed:
    """The error of a text model that is asked for embeddings."""
    return NotServed(
        f"{model} writes text and gives no embeddings.",
        fix="Name a model that does, such as the one that this fetches: localspec models pull "
        "nomic-ai/nomic-embed-text-v1.5-GGUF",
        param="model",
    )


def no_ranks(model: str) -> NotServed:
    """The error of a model that is asked to rank and cannot."""
    return NotServed(
        f"{model} does not rank documents.",
        fix="Name a model that does, such as the one that this fetches: localspec models pull "
        "gpustack/bge-reranker-v2-m3-GGUF",
        param="model",
    )


def no_text(model: str) -> NotServed:
    """The error of an embedding model that is asked for text."""
    return NotServed(
        f"{model} gives embeddings and writes no text.",
        fix="Name another model; `localspec models list` shows all.",
        param="model",
    )


def by_code(code: str) -> type[LocalSpecError]:
    """The class with this `code`, for errors that crossed a process boundary.

    Unknown codes give the root, so that a newer peer can never break an older one.
    """
    pending: list[type[LocalSpecError]] = [LocalSpecError]
    while pending:
        found = pending.pop()
        if found.code == code:
            return found
        pending.extend(found.__subclasses__())
    return LocalSpecError
