"""One request from its slot to its last event: text, counts and times."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from localspec.engine.likelihood import Likelihood
from localspec.engine.session import Session
from localspec.engine.speculation.verification import StepOutput
from localspec.errors import LocalSpecError
from localspec.text.healing import behind
from localspec.text.stream import AnswerText, Part
from localspec.types import FinishReason, Token
from localspec.wire.messages import (
    Delta,
    Failed,
    Finished,
    Generate,
    Reading,
    SoFar,
    SpeculationReport,
    Spent,
)
from localspec.wire.values import Alternative, Timings, TokenLogprob, Usage
from localspec.worker.preparation import PreparedRequest

PROMPT = "prompt"
"""The source that is reported for echoed text."""

NEVER_STARTED = "never_started"
"""The routing reason of a request that was cancelled before it was routed."""


@dataclass(slots=True)
class Answer:
    """An admitted request. `completion_tokens` counts what plain decoding would have decoded.

    Tokens of a draft that were accepted beyond a stop string are not counted, so that the count,
    like the text, does not depend on speculation. An answer that began on another worker continues
    after the tokens decided there and keeps its counts and times.
    """

    prepared: PreparedRequest
    session: Session
    arrived_at: float
    piece: Callable[[Token], bytes]
    text: AnswerText = field(init=False)
    _typed: bytes = field(init=False)
    """The bytes of the client's half-typed word that no token has written yet."""
    completion_tokens: int = 0
    exactness: str = "standard"
    """The exactness that the worker claims: "standard" or "strict"."""
    _logprobs: deque[TokenLogprob] = field(default_factory=deque)
    finish: FinishReason | None = None
    _read: int = -1
    """Tokens of the prompt that the latest `Reading` counted."""

    def __post_init__(self) -> None:
        self.text = AnswerText(self.prepared.request.stop, self.prepared.request.indent)
        self._typed = self.prepared.typed.encode()
        if so_far := self.prepared.request.so_far:
            self._go_on(so_far)
        elif self.prepared.scored is not None:  # what its own scoring read does not count
            self.session.cached_tokens = 0
            self.session.meter.admitted_at -= self.prepared.scoring_seconds

    @property
    def id(self) -> str:
        """The request's id."""
        return self.prepared.request.id

    def overdue(self, now: float) -> bool:
        """Whether reading the prompt has taken longer than its client allows."""
        most, meter = self.prepared.request.prompt_seconds, self.session.meter
        if most is None or self.prepared.warms or meter.first_token_at:
            return False
        return now - meter.admitted_at >= most

    @property
    def kept_tokens(self) -> int | None:
        """The number of output tokens before the stop string that cut the text; None for all."""
        cut = self.text.stopped or not self.prepared.max_tokens
        return self.text.kept if cut else None

    def opening(self) -> Delta | None:
        """The echoed prompt, if it was asked for."""
        echo = self.prepared.echo
        if not echo or self.prepared.request.so_far:
            return None
        return Delta(self.id, echo, [], [(len(echo), PROMPT)], self.prepared.scored or [])

    def reading(self, now: float) -> Reading | None:
        """The progress of reading the prompt; None if not requested or not advanced."""
        request, session = self.prepared.request, self.session
        read = min(session.cached, session.n_prompt)
        if not request.tells_reading or request.so_far or read <= self._read:
            return None
        self._read = read
        return Reading(self.id, read, max(0.0, now - session.meter.admitted_at))

    def take(self, output: StepOutput) -> Delta | None:
        """Take a step's tokens. Returns the event for the client, None if there is none to send.

        Sets `finish` when the answer is over; a stop string takes precedence over the engine's
        reason. Raises GrammarError where the answer ends because its grammar gave up.
        """
        if not self.prepared.max_tokens:  # only the prompt was to be read
            self.finish = "length"
            return None
        self._note(self.session.likelihoods)
        count = self._take_tokens(output.tokens, output.sources, output.finish)
        constraint = self.prepared.constraint
        if output.finish == "stop" and not self.text.stopped and constraint is not None:
            constraint.check_end(output.tokens[:-1])
        part = self.text.take()
        logprobs = [self._logprobs.popleft() for _ in part.tokens if self._logprobs]
        delta = self._delta(part, logprobs)
        if not count:
            return delta
        return msgspec.structs.replace(
            delta or Delta(self.id, "", []),
            decided=output.tokens[:count],
            decided_by=output.sources[:count],
            held=list(self._logprobs),
            spent=self._spent(),
        )

    def _delta(self, part: Part, logprobs: list[TokenLogprob]) -> Delta | None:
        """The part as an event; an answer that a stop string or a limit ended counts as cut."""
        ended = self.finish is not None
        cut = ended and (self.finish != "stop" or self.text.stopped)
        return self.prepared.parser.delta(part, logprobs, ended=ended, cut=cut)

    def _take_tokens(
        self, tokens: list[Token], sources: list[str], finish: FinishReason | None
    ) -> int:
        """Take tokens into the text up to a stop string. Returns how many were taken."""
        for index, (token, source) in enumerate(zip(tokens, sources, strict=True)):
            self.completion_tokens += 1
            if finish == "stop" and index == len(tokens) - 1:
                break  # the token that ends generation writes nothing
            piece = self.piece(token)
            shown = self.prepared.parser.shown.get(token, behind(piece, self._typed))
            self.text.push(token, shown, source)
            self._typed = self._typed[len(piece) :]
            if self.text.stopped:
                self.finish = "stop"
                return index + 1
        self.finish = finish or ("length" if self._late else None)
        if self.finish is not None:
            self.text.finish()
        return len(tokens)

    @property
    def _late(self) -> bool:
        """Whether the deadline has passed and the text has a whole line; editors show lines."""
        most, meter = self.prepared.request.predict_seconds, self.session.meter
        if most is None or not self.text.has_line:
            return False
        return meter.last_token_at - meter.first_token_at >= most

    def _note(self, likelihoods: list[Likelihood]) -> None:
        """Keep the session's new log-probabilities until the text of their tokens goes out."""
        typed = self._typed
        for each in likelihoods:
            self._logprobs.append(spelled(each, self.piece, typed))
            typed = typed[len(self.piece(each.token)) :]
        likelihoods.clear()

    def _go_on(self, so_far: SoFar) -> None:
        """Continue an answer of another worker: its text was sent, its counts and times go on."""
        self._take_tokens(so_far.tokens, so_far.sources, self.session.finish)
        self._delta(self.text.take(), [])
        self._logprobs.extend(so_far.held)
        self.session.cached_tokens = so_far.cached_tokens
        self.session.origin = so_far.origin
        spent, meter = so_far.spent, self.session.meter
        if so_far.tokens:
            meter.last_token_at = meter.admitted_at
            meter.first_token_at = meter.last_token_at - spent.decode_seconds
            meter.admitted_at = meter.first_token_at - spent.prompt_seconds
            self.arrived_at = meter.first_token_at - spent.ttft_seconds
        meter.rounds, meter.predicted = spent.rounds, spent.predicted
        meter.draft_seconds, meter.verify_seconds = spent.draft_seconds, spent.verify_seconds
        meter.host_seconds, meter.sources = spent.host_seconds, spent.sources
        if so_far.tokens:
            self.session.sampler.aim = spent.aim

    def _spent(self) -> Spent:
        meter = self.session.meter
        return Spent(
            ttft_seconds=max(0.0, meter.first_token_at - self.arrived_at),
            prompt_seconds=max(0.0, meter.first_token_at - meter.admitted_at),
            decode_seconds=max(0.0, meter.last_token_at - meter.first_token_at),
            rounds=meter.rounds,
            draft_seconds=meter.draft_seconds,
            verify_seconds=meter.verify_seconds,
            host_seconds=meter.host_seconds,
            predicted=meter.predicted,
            sources=meter.sources,
            aim=self.session.sampler.aim,
        )

    def finished(self, reason: FinishReason) -> Finished:
        """The last event, with all counts and times."""
        session, spent = self.session, self._spent()
        meter = session.meter
        timings = _timings(session, spent, self.completion_tokens)
        return Finished(
            id=self.id,
            reason=reason,
            usage=Usage(
                session.n_prompt,
                self.completion_tokens,
                session.cached_tokens,
                spent.predicted,
                round(self.prepared.parser.thought_share * self.completion_tokens),
            ),
            timings=timings,
            speculation=SpeculationReport(
                reason=session.request.route,
                verify=session.request.speculation.verify,
                rounds=spent.rounds,
                drafted=meter.drafted,
                accepted=meter.accepted,
                sources=spent.sources,
                draft_seconds=spent.draft_seconds,
                verify_seconds=spent.verify_seconds,
                host_seconds=spent.host_seconds,
                ttft_seconds=spent.ttft_seconds,
                exactness=self.exactness,
            ),
            seed=session.request.sampling.seed,
            tool_calls=self.prepared.parser.calls,
            stop=self.text.stop,
            full=session.dropped > 0
            or (reason == "length" and self.prepared.full(self.completion_tokens)),
        )


def _timings(session: Session, spent: Spent, completion_tokens: int) -> Timings:
    """llama-server's figures, as it computes them: the first token's time is prompt time."""
    meter = session.meter
    prompt_n = session.n_prompt - session.cached_tokens
    prompt_ms, predicted_ms = spent.prompt_seconds * 1000, spent.decode_seconds * 1000
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
        **Timings.origins(session.cached_tokens, session.origin),
    )


def spelled(each: Likelihood, piece: Callable[[Token], bytes], typed: bytes = b"") -> TokenLogprob:
    """A likelihood with the bytes of its tokens, without those that the client had typed."""
    chosen = Alternative(each.token, behind(piece(each.token), typed), each.logprob)
    top = [Alternative(token, behind(piece(token), typed), logprob) for token, logprob in each.top]
    return TokenLogprob(chosen, top)


def failed(id_: str, error: LocalSpecError) -> Failed:
    """An error as an event for the supervisor."""
    return Failed(id_, error.code, error.message, error.fix, error.param, error.details)


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
