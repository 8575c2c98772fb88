"""Runs the worker's loop: commands in, one engine step, events out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Protocol

from localspec.engine.session import Request, Session
from localspec.engine.speculation.verification import StepOutput
from localspec.engine.step import Engine
from localspec.errors import (
    EngineError,
    LocalSpecError,
    NoNumbers,
    NoRoom,
    RequestError,
    ShuttingDown,
    known,
    no_numbers,
)
from localspec.types import FinishReason
from localspec.wire.messages import (
    Cancel,
    Command,
    Detokenize,
    Embed,
    EndThoughts,
    Event,
    Forget,
    Generate,
    Goodbye,
    Load,
    Question,
    QuestionAnswer,
    Quit,
    Render,
    Replay,
    SlotAction,
    Started,
    Tokenize,
)
from localspec.worker import replays
from localspec.worker.answer import Answer, failed, never_started
from localspec.worker.assemble import Loaded
from localspec.worker.demand import Demand
from localspec.worker.heartbeat import heartbeat
from localspec.worker.preparation import PreparedRequest
from localspec.worker.preprocessing import Preprocessing
from localspec.worker.preprocessing import Request as Unread
from localspec.worker.prompt_logprobs import PromptLogprobs
from localspec.worker.questions import answer_question, end_thoughts
from localspec.worker.queue import Queue, Waiting
from localspec.worker.replays import Replays
from localspec.worker.slot_files import SlotFiles
from localspec.worker.totals import Totals

_log = logging.getLogger("localspec.worker")

HEARTBEAT_SECONDS = 1.0


class Line(Protocol):
    """The connection to the supervisor; `channel.Channel` in the real process."""

    def send(self, event: Event) -> None:
        """Send one event."""

    def receive(self, wait_seconds: float) -> Command | None:
        """The next command; None when none came in time, and after `wake`."""

    def wake(self) -> None:
        """Let `receive` return. For any thread."""


class Service:
    """Answers the requests of one loaded model until it is told to quit.

    Everything but preparing requests happens on the thread that loaded the model. A wrong request
    fails alone; an engine that fails ends the process, because its state cannot be trusted any
    more. Its requests do not fail: the supervisor resumes them on another worker.

    Args:
        loaded: The model and its engine.
        line: Commands and events.
        clock: Seconds, monotonic.
    """

    def __init__(self, loaded: Loaded, line: Line, clock: Callable[[], float]) -> None:
        self._loaded = loaded
        self._engine: Engine = loaded.engine
        self._line = line
        self._clock = clock
        self._waiting = Queue()
        self._answers: dict[Session, Answer] = {}
        self._ends: list[EndThoughts] = []
        self._owed: list[StepOutput] = []
        self._over: list[tuple[Answer, LocalSpecError | None]] = []
        self._engine.meanwhile = self._send_outputs
        self._replays = Replays(loaded, line.send, self._wait)
        self._preprocessing = Preprocessing(self._read, line.wake)
        self._slot_files = SlotFiles(
            loaded.engine, loaded.prefixes, loaded.ready.model, line.send, line.wake
        )
        self._totals = Totals()
        self._more_rest = True
        self._demand = Demand(loaded, line.send, clock)
        self._beat_at = clock()

    def run(self) -> None:
        """Serve until `Quit`. Raises the error of an engine that fails."""
        try:
            self._beat(self._clock())
            while self._obey():
                self._collect()
                self._end_thoughts()
                self._admit()
                if not (self._answers or self._replays.active):
                    self._demand.advance(self._waiting)
                self._step()
                self._hurry()
                self._replays.advance()
                self._slot_files.advance()
                self._rest()
                self._beat_if_due()
        except Exception:
            self._replays.clear()
            raise
        else:
            self._flush()
            for session in self._answers:
                self._engine.retire(session)
            over = ShuttingDown("The model is being unloaded.", fix="Send the request again.")
            self._fail_all(over)
            self._loaded.prefixes.keep_all()
            self._line.send(Goodbye())
        finally:
            self._slot_files.close()
            self._preprocessing.close()

    # --- commands ---------------------------------------------------------------------------------

    def _obey(self) -> bool:
        """Carry out all commands received, waiting for one only when there is nothing to do.

        Returns False after `Quit`.
        """
        while (command := self._line.receive(self._patience_seconds())) is not None:
            match command:
                case Generate() | Replay() | Tokenize() | Detokenize() | Render() | Embed():
                    self._take(command)
                case SlotAction():
                    self._slot_files.take(command)
                case EndThoughts():
                    self._ends.append(command)
                case Cancel(id=id_):
                    self._cancel(id_)
                case Forget():
                    self._flush()
                    self._loaded.prefixes.clear()
                case Quit():
                    return False
                case Load():
                    raise EngineError("A worker loads one model; this was a second Load.")
        return True

    def _patience_seconds(self) -> float:
        """Seconds to wait for a command: 0 while there is something to do."""
        if self._busy or (self._more_rest and not self._preprocessing.pending):
            return 0.0
        return max(0.0, self._beat_at + HEARTBEAT_SECONDS - self._clock())

    @property
    def _busy(self) -> bool:
        """Whether a prepared request is not over yet."""
        replays = self._replays
        return bool(self._answers or self._waiting or replays.active or replays.waiting)

    def _rest(self) -> None:
        """Do one short piece of idle work, and note whether there is more of it."""
        idle = not self._busy and not self._preprocessing.pending
        self._loaded.prefixes.store.rest(resting=idle)
        self._more_rest = idle and self._loaded.idle.advance(self._clock())

    def _take(self, request: Unread) -> None:
        """Queue a request for preparation at once: a bad one fails without waiting for a slot."""
        if request.id in self._ids():
            error = RequestError(f"A request with the id {request.id!r} is still running.")
            self._line.send(failed(request.id, error))
        else:
            self._preprocessing.put(request, self._engine.clock())

    def _read(self, request: Unread) -> PreparedRequest | replays.ReplayRequest | QuestionAnswer:
        """Prepare a request; on a preprocessing thread."""
        if isinstance(request, Replay):
            return self._replays.read(request)
        if isinstance(request, Question):
            return answer_question(request, self._loaded.model, self._loaded.preparer)
        prepared = self._loaded.preparer.prepare(request)
        if request.reuse:
            self._loaded.prefixes.fetch(prepared.owner, prepared.prompt)
        return prepared

    def _collect(self) -> None:
        """Queue prepared requests for a slot; answer those that cannot be served."""
        for read in self._preprocessing.taken():
            match read.result:
                case PreparedRequest(to_score=True) as prepared:
                    self._replays.take(PromptLogprobs(prepared, read.arrived_at))
                case PreparedRequest() as prepared:
                    self._wait(prepared, read.arrived_at)
                case replays.ReplayRequest() as replay:
                    self._replays.take(replay)
                case QuestionAnswer() as answer:
                    self._line.send(answer)
                case error:
                    self._line.send(failed(read.request.id, error))

    def _end_thoughts(self) -> None:
        """End the thoughts of the requests that were named, as soon as each has been prepared."""
        ends, self._ends = self._ends, []
        for asked in ends:
            if asked.request in self._preprocessing.ids():
                self._ends.append(asked)
            else:
                running = (*self._answers.values(), *self._waiting)
                self._line.send(end_thoughts(asked, (each.prepared for each in running)))

    def _wait(self, prepared: PreparedRequest, arrived_at: float) -> None:
        """Queue a request for a slot."""
        self._waiting.put(Waiting(prepared, arrived_at))
        for outdated in self._waiting.outdated():
            self._line.send(never_started(outdated.prepared.request, "length"))

    def _ids(self) -> Iterator[str]:
        yield from (waiting.id for waiting in self._waiting)
        yield from (answer.id for answer in self._answers.values())
        yield from self._replays.ids()
        yield from self._slot_files.ids()
        yield from self._preprocessing.ids()

    def _cancel(self, id_: str) -> None:
        self._flush()
        if dropped := self._replays.cancel(id_):
            if isinstance(dropped, PromptLogprobs):
                self._line.send(never_started(dropped.prepared.request, "cancelled"))
            return
        if self._slot_files.cancel(id_):
            return
        if unread := self._preprocessing.cancel(id_):
            if isinstance(unread, Generate):
                self._line.send(never_started(unread, "cancelled"))
            return
        if waiting := self._waiting.take(id_):
            self._line.send(never_started(waiting.prepared.request, "cancelled"))
            return
        for answer in self._answers.values():
            if answer.id == id_:
                self._end(answer, "cancelled")
                return

    # --- requests ---------------------------------------------------------------------------------

    def _admissible(self) -> Iterator[Waiting]:
        """The waiting requests that wait for a slot alone, in turn."""
        busy = any(not answer.prepared.warms for answer in self._answers.values())
        for waiting in self._waiting.turns(busy=busy):
            prepared = waiting.prepared
            if self._demand.waits(prepared):
                if not self._answers:
                    return
                continue  # the check cannot begin before they end
            sharing, session = self._engine.prefix_sharing, prepared.request.session
            if sharing.ready(prepared.owner, prepared.prompt, session):
                yield waiting

    def _admit(self) -> None:
        """Give slots to waiting requests, except those whose prompt another request is reading."""
        if self._waiting.pressing:
            self._step_back()
        for waiting in self._admissible():
            prepared = waiting.prepared
            request = prepared.request
            self._waiting.take(waiting.id)
            try:
                self._demand.check(prepared)
                session = self._engine.admit(self._request(prepared))
            except Exception as error:
                if isinstance(error, EngineError) and not isinstance(error, NoRoom):
                    raise  # taking over a prefix failed: what memory holds is unknown
                _log.exception("request %s failed and ends alone", request.id)
                self._line.send(failed(request.id, known(error)))
                continue
            answer = Answer(prepared, session, waiting.arrived_at, self._loaded.model.piece)
            answer.exactness = self._loaded.ready.exactness
            self._answers[session] = answer
            self._totals.prompt_tokens += session.n_prompt
            self._line.send(
                Started(
                    answer.id,
                    session.n_prompt,
                    session.cached_tokens,
                    prepared.relaxed,
                    prepared.prompt,
                    prepared.prompt_text,
                    session.slot,
                    session.origin,
                )
            )
            if reading := answer.reading(session.meter.admitted_at):
                self._line.send(reading)
            if opening := answer.opening():
                self._line.send(opening)
            if answer.finish is not None:  # the worker before died with only `Finished` unsent
                self._end(answer, answer.finish)

    def _step_back(self) -> None:
        """Take the slots of warm-ups for requests that want text. Slots keep what was read."""
        if not any(answer.prepared.warms for answer in self._answers.values()):
            return
        self._flush()
        for session, answer in list(self._answers.items()):
            if answer.prepared.warms:
                del self._answers[session]
                self._engine.retire(session)
                self._wait(answer.prepared, answer.arrived_at)

    def _hurry(self) -> None:
        """End requests whose prompts take too long; warm-ups read the rest of them."""
        now = self._engine.clock()
        for answer in [each for each in self._answers.values() if each.overdue(now)]:
            self._end(answer, "length")
            self._wait(answer.prepared.as_warm_up(), now)

    def _request(self, prepared: PreparedRequest) -> Request:
        """The engine's request, routed as late as possible, with all that was learned."""
        return prepared.routed(*self._loaded.router.route(prepared))

    def _step(self) -> None:
        """Make one step of the engine. Its outputs are sent at once, or while a device computes.

        In the latter case a stop string may be found after the next forward has begun; what that
        forward gives for the ended answer is dropped.
        """
        outputs = self._engine.step()
        self._flush()
        for answer in self._answers.values():
            if reading := answer.reading(self._engine.clock()):
                self._line.send(reading)
        self._owed = [output for output in outputs if output.session in self._answers]
        if not self._engine.waits or any(output.finish for output in self._owed):
            self._flush()

    def _flush(self) -> None:
        """Send all outputs and end finished answers. Not while a forward is computing."""
        self._send_outputs()
        over, self._over = self._over, []
        for answer, failure in over:
            if failure is None:
                assert answer.finish is not None  # noqa: S101 - it is over because of that
                self._end(answer, answer.finish)
            else:
                del self._answers[answer.session]
                self._engine.retire(answer.session)
                self._line.send(failed(answer.id, failure))

    def _send_outputs(self) -> None:
        """Send the outputs of steps, and note the answers that are over."""
        owed, self._owed = self._owed, []
        for output in owed:
            answer = self._answers[output.session]
            failure = self._send_output(answer, output)
            if failure is not None or answer.finish is not None:
                self._over.append((answer, failure))

    def _send_output(self, answer: Answer, output: StepOutput) -> LocalSpecError | None:
        """Send an answer's output of a step. Returns the error that ends the answer, if any."""
        before = answer.completion_tokens
        try:
            delta = None if output.failure else answer.take(output)
        except Exception as error:  # noqa: BLE001 - only the text failed; the engine is untouched
            _log.exception("request %s failed and ends alone", answer.id)
            return known(error)
        self._totals.completion_tokens += answer.completion_tokens - before
        if delta is not None:
            self._line.send(delta)
        if isinstance(output.failure, NoNumbers):  # the engine knows no files
            return no_numbers(self._loaded.model.file)
        return output.failure

    def _end(self, answer: Answer, reason: FinishReason) -> None:
        """Free the slot and send the last event."""
        del self._answers[answer.session]
        self._engine.retire(answer.session, answer.kept_tokens)
        event = answer.finished(reason)
        self._totals.finished(event)
        self._loaded.router.learn(answer.prepared, event)
        self._line.send(event)
        _log.info(
            "finished id=%s reason=%s prompt=%d cached=%d output=%d drafted=%d accepted=%d "
            "route=%s tokens_per_second=%.1f",
            event.id,
            event.reason,
            event.usage.prompt_tokens,
            event.usage.cached_tokens,
            event.usage.completion_tokens,
            event.speculation.drafted,
            event.speculation.accepted,
            event.speculation.reason,
            event.timings.predicted_per_second,
        )

    def _fail_all(self, error: LocalSpecError) -> None:
        """Fail every request, waiting or active."""
        for id_ in list(self._ids()):
            self._line.send(failed(id_, error))
        self._waiting.clear()
        self._answers.clear()
        self._replays.clear()
        self._slot_files.clear()

    # --- heartbeat --------------------------------------------------------------------------------

    def _beat_if_due(self) -> None:
        now = self._clock()
        if self._demand.announce() or now - self._beat_at >= HEARTBEAT_SECONDS:
            self._beat(now)

    def _beat(self, now: float) -> None:
        self._line.send(
            heartbeat(
                self._loaded,
                self._totals,
                self._totals.rate(now - self._beat_at),
                steps=self._engine.steps + self._replays.steps + self._loaded.decision.step.done,
                active=len(self._answers) + self._replays.active,
                waiting=len(self._waiting) + self._replays.waiting + self._preprocessing.pending,
            )
        )
        self._beat_at = now
