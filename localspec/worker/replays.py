"""Replays finished texts through the engine, between its steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any

from localspec.engine.replay import Reading, Script, replay
from localspec.errors import ContextOverflow, NoRoom, RequestError
from localspec.types import Token
from localspec.wire.messages import Event, Failed, Fork, Replay, Replayed
from localspec.worker import preparation
from localspec.worker.assemble import Loaded
from localspec.worker.prompt_logprobs import PromptLogprobs


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """A checked replay."""

    id: str
    script: Script

    def work(self, loaded: Loaded) -> Generator[None, None, Reading]:
        """Replay the text, one short piece of work for each `next`."""
        return replay(loaded.engine, self.script, loaded.profile.acceptance.estimate)


@dataclass(frozen=True, slots=True)
class _Running:
    """The request that has a slot."""

    request: ReplayRequest | PromptLogprobs
    work: Generator[None, None, Any]


class Replays:
    """Replays and echoes of one model, one at a time, first come, first served.

    Model lifetime; the engine's thread. Requests come first: a replay waits while no slot is free,
    and each `advance` is one short piece of work, so that streams go on.

    Args:
        loaded: The model and its engine.
        send: Takes the last event of a replay.
        scored: Takes an echo whose log-probabilities are known, and when it arrived.
    """

    def __init__(
        self,
        loaded: Loaded,
        send: Callable[[Event], None],
        scored: Callable[[preparation.PreparedRequest, float], None],
    ) -> None:
        self._loaded = loaded
        self._send = send
        self._scored = scored
        self._waiting: deque[ReplayRequest | PromptLogprobs] = deque()
        self._running: _Running | None = None
        self.steps = 0
        """Pieces of work done; a sign of life."""

    @property
    def waiting(self) -> int:
        """Replays without a slot yet."""
        return len(self._waiting)

    @property
    def active(self) -> int:
        """1 while a replay has a slot."""
        return int(self._running is not None)

    def ids(self) -> Iterator[str]:
        """The ids of all replays that have not ended."""
        if self._running is not None:
            yield self._running.request.id
        yield from (request.id for request in self._waiting)

    def read(self, asked: Replay) -> ReplayRequest:
        """Check a replay. For any thread.

        Raises:
            RequestError: As `RequestPreparer.prepare`, and where the text does not fit.
        """
        loaded = self._loaded
        prepared = loaded.preparer.prepare(asked.request)
        prompt = prepared.prompt
        if prepared.images:
            raise RequestError(
                "A prompt with images cannot be replayed.", fix="Leave them out.", param="messages"
            )
        text = loaded.preparer.words(prepared.typed + asked.text, "text")
        context = loaded.engine.context
        if len(prompt) + len(text) > context:
            raise ContextOverflow(
                f"Prompt and text have {len(prompt)} and {len(text)} tokens; the context holds "
                f"{context}.",
                fix="Replay less of the text, or raise engine.context in config.toml.",
                param="text",
                details={"n_prompt_tokens": len(prompt), "n_ctx": context},
            )
        wish = asked.request.speculation
        most = loaded.engine.max_draft
        if wish.max_draft is not None:
            most = min(most, wish.max_draft)
        script = Script(
            prepared.owner,
            prompt,
            prepared.prediction,
            text,
            wish.drafters,
            most,
            prepared.adapters,
        )
        return ReplayRequest(asked.id, script)

    def take(self, request: ReplayRequest | PromptLogprobs) -> None:
        """Queue a request."""
        self._waiting.append(request)

    def cancel(self, id_: str) -> ReplayRequest | PromptLogprobs | None:
        """Drop a request and send no last event, as its client has gone. None without one."""
        running = self._running
        if running is not None and running.request.id == id_:
            self._stop()
            return running.request
        for request in self._waiting:
            if request.id == id_:
                self._waiting.remove(request)
                return request
        return None

    def clear(self) -> None:
        """Drop all requests, before the model is closed."""
        self._waiting.clear()
        self._stop()

    def advance(self) -> None:
        """Do one piece of work, if there is any and a slot for it.

        Raises:
            EngineError: the target failed.
        """
        loaded = self._loaded
        if self._running is None:
            if not self._waiting or not loaded.engine.free_slots:
                return
            request = self._waiting.popleft()
            self._running = _Running(request, request.work(loaded))
        self.steps += 1
        running = self._running
        try:
            next(running.work)
        except StopIteration as done:
            self._running = None
            if isinstance(running.request, PromptLogprobs):
                self._scored(done.value, running.request.arrived_at)
            else:
                self._send(self._replayed(running.request, done.value))
        except NoRoom as error:  # the slot was given back, nothing was decoded
            self._running = None
            self._send(Failed(running.request.id, error.code, error.message, error.fix))

    def _stop(self) -> None:
        """Free the slot of the running request."""
        if self._running is not None:
            self._running.work.close()
            self._running = None

    def _replayed(self, request: ReplayRequest, reading: Reading) -> Replayed:
        likelier, other = map(self._written, reading.likeliest)
        script = request.script
        return Replayed(
            id=request.id,
            prompt_tokens=len(script.prompt),
            cached_tokens=reading.cached_tokens,
            tokens=len(script.text),
            max_draft=script.max_draft,
            gaps=reading.gaps,
            margins=reading.margins[:-1],
            after=Fork((likelier, other), reading.margins[-1]),
            drafters=reading.traces,
        )

    def _written(self, token: Token) -> str:
        return self._loaded.model.special_text(token)
