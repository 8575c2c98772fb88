"""One request from its slot to its last event: text, counts and times."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from localspec.engine.likelihood import Likelihood
from localspec.engine.session import Session
from localspec.engine.step import Advance
from localspec.protocol import (
    Alternative,
    Delta,
    Finished,
    Generate,
    SpeculationReport,
    Timings,
    TokenLogprob,
    Usage,
)
from localspec.text.stream import AnswerText
from localspec.types import FinishReason, Token
from localspec.worker.intake import Order

PROMPT = "prompt"
"""The source of echoed text."""

NEVER_STARTED = "never_started"
"""The routing reason of a request that was cancelled before it was routed."""


@dataclass(slots=True)
class Answer:
    """An admitted request. `completion_tokens` counts what plain decoding would have decoded.

    Tokens after a stop string were never wanted, although a draft may have been accepted beyond
    it; so the count, like the text, does not depend on speculation.
    """

    order: Order
    session: Session
    arrived_at: float
    piece: Callable[[Token], bytes]
    text: AnswerText = field(init=False)
    completion_tokens: int = 0
    _logprobs: deque[TokenLogprob] = field(default_factory=deque)
    finish: FinishReason | None = None

    def __post_init__(self) -> None:
        self.text = AnswerText(self.order.request.stop)

    @property
    def id(self) -> str:
        """The request's id."""
        return self.order.request.id

    @property
    def kept_tokens(self) -> int | None:
        """Output tokens inside the text when a stop string cut it short; None for all."""
        cut = self.text.stopped or not self.order.max_tokens
        return self.text.kept if cut else None

    def opening(self) -> Delta | None:
        """The echoed prompt, if it was asked for."""
        echo = self.order.echo
        return Delta(self.id, echo, [], [(len(echo), PROMPT)]) if echo else None

    def advance(self, advance: Advance) -> Delta | None:
        """Take what a step gave; the text and tokens that may go out, None where there are none.

        `finish` is set when the answer is over: by a stop string before anything the engine says.
        Raises GrammarError where it ends because its grammar gave up.
        """
        tokens = advance.tokens
        if not self.order.max_tokens:  # only the prompt was to be read
            self.finish = "length"
            return None
        self._note(self.session.likelihoods)
        ended = advance.finish == "stop"
        for index, (token, source) in enumerate(zip(tokens, advance.sources, strict=True)):
            self.completion_tokens += 1
            if ended and index == len(tokens) - 1:  # the token that ends generation writes nothing
                if self.order.constraint is not None:
                    self.order.constraint.check_end(tokens[:-1])
                break
            shown = self.order.said.shown.get(token)
            self.text.push(token, self.piece(token) if shown is None else shown, source)
            if self.text.stopped:
                self.finish = "stop"
                return self._delta()
        self.finish = advance.finish
        if self.finish is not None:
            self.text.finish()
        return self._delta()

    def _delta(self) -> Delta | None:
        part = self.text.take()
        logprobs = [self._logprobs.popleft() for _ in part.tokens if self._logprobs]
        return self.order.said.delta(part, logprobs, ended=self.finish is not None)

    def _note(self, likelihoods: list[Likelihood]) -> None:
        """Spell out what the session has learned of its tokens, until their text goes out."""
        for each in likelihoods:
            chosen = Alternative(each.token, self.piece(each.token), each.logprob)
            top = [Alternative(token, self.piece(token), logprob) for token, logprob in each.top]
            self._logprobs.append(TokenLogprob(chosen, top))
        likelihoods.clear()

    def finished(self, reason: FinishReason) -> Finished:
        """The last event, with everything that was counted."""
        session = self.session
        meter = session.meter
        timings = _timings(session, self.completion_tokens)
        return Finished(
            id=self.id,
            reason=reason,
            usage=Usage(
                session.n_prompt, self.completion_tokens, session.cached_tokens, meter.predicted
            ),
            timings=timings,
            speculation=SpeculationReport(
                reason=session.request.route,
                verify=session.request.speculation.verify,
                rounds=meter.rounds,
                drafted=meter.drafted,
                accepted=meter.accepted,
                sources=meter.sources,
                draft_seconds=meter.draft_seconds,
                verify_seconds=meter.verify_seconds,
                host_seconds=meter.host_seconds,
                ttft_seconds=max(0.0, meter.first_token_at - self.arrived_at),
            ),
            seed=session.request.sampling.seed,
            tool_calls=self.order.said.calls,
        )


def _timings(session: Session, completion_tokens: int) -> Timings:
    """llama-server's figures as llama-server computes them: the first token is the prompt's."""
    meter = session.meter
    prompt_n = session.n_prompt - session.cached_tokens
    prompt_ms = max(0.0, meter.first_token_at - meter.admitted_at) * 1000
    predicted_ms = max(0.0, meter.last_token_at - meter.first_token_at) * 1000
    steps = max(0, completion_tokens - 1)
    return Timings(
        cache_n=session.cached_tokens,
        prompt_n=prompt_n,
        prompt_ms=prompt_ms,
        prompt_per_token_ms=_ratio(prompt_ms, prompt_n),
        prompt_per_second=_ratio(prompt_n * 1000, prompt_ms),
        predicted_n=completion_tokens,
        predicted_ms=predicted_ms,
        predicted_per_token_ms=_ratio(predicted_ms, steps),
        predicted_per_second=_ratio(steps * 1000, predicted_ms),
        draft_n=meter.drafted,
        draft_n_accepted=meter.accepted,
    )


def never_started(request: Generate, reason: FinishReason) -> Finished:
    """The last event of a request that ended before it had a slot."""
    return Finished(
        id=request.id,
        reason=reason,
        usage=Usage(0, 0, 0),
        timings=Timings(*[0] * 9),
        speculation=SpeculationReport(
            reason=NEVER_STARTED,
            verify=request.speculation.verify,
            rounds=0,
            drafted=0,
            accepted=0,
            sources={},
            draft_seconds=0.0,
            verify_seconds=0.0,
            host_seconds=0.0,
            ttft_seconds=0.0,
        ),
        seed=request.sampling.seed,
    )


def _ratio(amount: float, by: float) -> float:
    return amount / by if by else 0.0
