"""LocalSpec's own dialect: what no other server has. Pure, no HTTP."""

from __future__ import annotations

from typing import Any

import msgspec

from localspec.config import Config
from localspec.wire.messages import Replay, Replayed
from localspec_daemon.api import openai
from localspec_daemon.api.bodies import decode
from localspec_daemon.api.dialect import Asked, Caller
from localspec_daemon.api.openai_types import ChatMessage, Continuation


class ReplayRequest(Continuation, kw_only=True):
    """A body of POST /v1/replay: that of a chat, or without `messages` of a completion, and `text`.

    The text is what answered it.
    """

    text: str
    messages: list[ChatMessage] | None = None


def replay(data: bytes, config: Config, caller: Caller) -> tuple[Asked, Replay]:
    """A body of POST /v1/replay: the request that it replays, and the replay. Raises RequestError.

    The body is that of a chat, or of a completion where it has no `messages`, and the `text` that
    answered it.
    """
    request = decode(data, ReplayRequest)
    read = openai.completion if request.messages is None else openai.chat
    asked = read(data, config, caller)
    return asked, Replay(asked.generates[0], request.text)


def replayed(event: Replayed) -> dict[str, Any]:
    """The answer: the event's fields."""
    return msgspec.structs.asdict(event)
