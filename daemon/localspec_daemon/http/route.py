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
    """Frames, and what each of them is."""

    framing: Framing
    frame: Any


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path.

    `about` is a sentence. `takes` is the type of the body, `queries` what may stand behind a
    question mark. `gives` is the type of the answer, or its media type where that is no JSON; None
    where there is no answer but an error. `stream` is what comes instead, to those who ask for it.
    `loads`: a model may have to be loaded for it. `also` are further statuses and their types.
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
    """A family of APIs by its errors: its name, how they are made, and their type."""

    name: str
    errors: Callable[[LocalSpecError], Json]
    shape: type[msgspec.Struct]


OPENAI = Family("OpenAI", openai_errors.errors, Error)
ANTHROPIC = Family("Anthropic", anthropic_replies.errors, AnthropicError)
OLLAMA = Family("Ollama", ollama.errors, OllamaError)

_FAMILIES = {"/api/": OLLAMA, "/v1/messages": ANTHROPIC}


def family(path: str, default: Family = OPENAI) -> Family:
    """The family of a path; OpenAI's where nothing else is said."""
    return next((own for prefix, own in _FAMILIES.items() if path.startswith(prefix)), default)
