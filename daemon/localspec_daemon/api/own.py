"""LocalSpec's own dialect: POST /v1/replay. Pure, no HTTP."""

from __future__ import annotations

from typing import Any

import msgspec

from localspec.config import Config
from localspec.wire.messages import Replay, Replayed
from localspec_daemon.api import openai
from localspec_daemon.api.bodies import decode
from localspec_daemon.api.dialect import Caller, ParsedRequest
from localspec_daemon.api.openai_types import ChatMessage, Continuation


class ReplayRequest(Continuation, kw_only=True):
    """A body of POST /v1/replay: a chat's, or a completion's if it has no `messages`, with `text`.

    `text` is the answer to be replayed.
    """

    text: str
    messages: list[ChatMessage] | None = None


def replay(data: bytes, config: Config, caller: Caller) -> tuple[ParsedRequest, Replay]:
    """Parses a body of POST /v1/replay into the request and its replay. Raises RequestError."""
    request = decode(data, ReplayRequest)
    read = openai.completion if request.messages is None else openai.chat
    parsed = read(data, config, caller)
    return parsed, Replay(parsed.generates[0], request.text)


def replayed(event: Replayed) -> dict[str, Any]:
    """Returns the fields of the event, which are the answer."""
    return msgspec.structs.asdict(event)
