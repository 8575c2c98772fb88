"""Describes one path: its handler, what it takes and what it gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from aiohttp.typedefs import Handler

from localspec.errors import LocalSpecError
from localspec_daemon.api import anthropic_replies, ollama, openai_errors
from localspec_daemon.api.dialect import Json
from localspec_daemon.api.framing import Framing
from localspec_daemon.api.types.anthropic import AnthropicError
from localspec_daemon.api.types.ollama import OllamaError
from localspec_daemon.api.types.openai import Error


@dataclass(frozen=True, slots=True)
class Stream:
    """The framing of a stream, and the type of each of its frames."""

    framing: Framing
    frame: Any


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path.

    `about` is a sentence. `takes` is the type of the request's body, `queries` names its query
    parameters. `gives` is the type of the answer's body, or its media type if that is not JSON;
    None if it has no body. `stream` describes the stream for clients that ask for one. `loads`:
    the request may load a model. `also` are further statuses and the types of their bodies.
    """

    method: str
    path: str
    handler: Handler
    about: str
    takes: Any = None
    gives: Any = None
    stream: Stream | None = None
    queries: tuple[str, ...] = ()
    loads: bool = False
    also: tuple[tuple[int, Any], ...] = ()


def both(route: Route) -> tuple[Route, Route]:
    """The route, and the same below /v1."""
    return route, replace(route, path=f"/v1{route.path}")


@dataclass(frozen=True, slots=True)
class Family:
    """A family of APIs: its name, the function that makes its errors, and their type."""

    name: str
    errors: Callable[[LocalSpecError], Json]
    shape: type[msgspec.Struct]


OPENAI = Family("OpenAI", openai_errors.errors, Error)
ANTHROPIC = Family("Anthropic", anthropic_replies.errors, AnthropicError)
OLLAMA = Family("Ollama", ollama.errors, OllamaError)

_FAMILIES = {"/api/": OLLAMA, "/v1/messages": ANTHROPIC}


def family(path: str, default: Family = OPENAI) -> Family:
    """The family of a path; `default` if the path's prefix names none."""
    return next((own for prefix, own in _FAMILIES.items() if path.startswith(prefix)), default)
