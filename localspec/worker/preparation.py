"""Prepares requests for the engine: renders, tokenizes, checks and bounds them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from localspec import ranges
from localspec.chain import SamplingParams
from localspec.engine.adapters import Scales, owner
from localspec.engine.chain import Breakers, repeats
from localspec.engine.images import ImageRows, words
from localspec.engine.kv.slots import common_prefix
from localspec.engine.routing import Expectation
from localspec.engine.session import Request
from localspec.engine.shifting import gone
from localspec.errors import RequestError
from localspec.text import grammar
from localspec.text.breakers import breakers
from localspec.text.constraint import GrammarConstraint
from localspec.text.dialogue import Dialogue, Turn
from localspec.text.formats import Offer
from localspec.text.healing import TokenHealing
from localspec.text.spelling import spelled_by
from localspec.text.thought_limit import Marks, ThoughtLimit
from localspec.types import Drafter, Token
from localspec.wire.messages import Generate, Tokenize
from localspec.wire.values import Adapter, TokenLogprob
from localspec.worker import limits
from localspec.worker.context_shift import NO_SHIFT, Shift
from localspec.worker.grammars import Grammars
from localspec.worker.images import Images, Seen
from localspec.worker.output_parser import OutputParser
from localspec.worker.prompts import GENERATION, Prompts, overflow

if TYPE_CHECKING:
    from localspec.engine.llama.model import Model


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A checked request: prompt and prediction in tokens, its room, and its grammar."""

    request: Generate
    sampling: SamplingParams
    breakers: Breakers
    prompt: list[Token]
    prediction: list[Token]
    max_tokens: int
    constraint: GrammarConstraint | TokenHealing | ThoughtLimit | None
    relaxed: list[str]
    """Keys of the schema that the constraint does not enforce."""
    prompt_text: str
    """The prompt as text, where `request.tells_prompt`; else empty."""
    echo: str
    """The prompt as text, for a completion that asked for it; else empty."""
    typed: str
    """The half-typed word with which the answer begins; it is not sent back to the client."""
    parser: OutputParser
    """Splits the answer's text into words, thoughts and calls."""
    scored: list[TokenLogprob] | None = None
    """Log-probabilities of the prompt, once computed for an echo."""
    scoring_seconds: float = 0.0
    """Seconds that computing these took."""
    keep: int | None = None
    """First tokens that a context shift keeps; None where the answer ends with the context."""
    gone: tuple[int, int] = (0, 0)
    """Of an answer that another worker shifted: the first tokens kept, and those forgotten."""
    adapters: Scales = ()
    """The scale of each adapter of the model."""
    borders: tuple[int, ...] = ()
    """Where a later prompt is likely to part from this one: places for checkpoints of states."""
    images: Sequence[ImageRows] = ()
    """The rows of the prompt's images, at their places."""

    @property
    def owner(self) -> str:
        """The key under which its text is kept: the client and the adapters."""
        return owner(self.request.client, self.adapters)

    @property
    def warms(self) -> bool:
        """Whether it is a warm-up: its prompt is only read, for a later request to reuse."""
        return not self.max_tokens and not self.echo

    def full(self, tokens: int) -> bool:
        """Whether an answer of this many tokens fills the context, and more were wanted."""
        wanted = self.request.max_tokens
        return tokens >= self.max_tokens and (wanted is None or wanted > self.max_tokens)

    def as_warm_up(self) -> PreparedRequest:
        """A warm-up that reads the rest of a prompt whose time limit has passed."""
        request = self.request
        on = msgspec.structs.replace(request, id=f"{request.id}+", max_tokens=0, echo=False)
        return replace(self, request=on, max_tokens=0, echo="")  # the echo has been sent

    def routed(self, reason: str, expectation: Expectation) -> Request:
        """The engine's request, with the router's reason and its expectation of the answer."""
        request = self.request
        return Request(
            id=request.id,
            client=self.owner,
            prompt=self.prompt,
            sampling=self.sampling,
            speculation=request.speculation,
            max_tokens=self.max_tokens,
            route=reason,
            expectation=expectation,
            constraint=self.constraint,
            ignore_eos=request.ignore_eos,
            prediction=self.prediction,
            logprobs=request.logprobs,
            so_far=request.so_far.tokens if request.so_far else (),
            session=request.session,
            brief=self.warms or request.prompt_seconds is not None,
            breakers=self.breakers,
            reuse=request.reuse,
            after_sampling=request.after_sampling,
            borders=self.borders,
            images=self.images,
            adapters=self.adapters,
            keep=self.keep,
            discard=request.discard,
            gone=self.gone,
        )

    @property
    def to_score(self) -> bool:
        """Whether the log-probabilities of its prompt are still to be computed."""
        request = self.request
        unread = self.scored is None and not request.so_far
        return bool(self.echo) and request.logprobs is not None and unread


class RequestPreparer:
    """Turns requests into prepared requests. Model lifetime; any thread.

    Args:
        model: The vocabulary.
        context: Tokens that one session may hold now.
        drafters: The sources that a request may choose from, by name.
        prompts: Tokenizes prompts.
        grammars: Makes constraints.
        images: Reads the images of requests.
        adapters: The LoRA adapters that the model was loaded with.
        shift: Whether the context is shifted.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - all that a request is prepared with
        self,
        model: Model,
        context: Callable[[], int],
        drafters: Mapping[str, Drafter],
        prompts: Prompts,
        grammars: Grammars,
        images: Images,
        adapters: Sequence[Adapter] = (),
        shift: Shift = NO_SHIFT,
    ) -> None:
        self._model = model
        self._images = images
        self._context = context
        self._drafters = frozenset(drafters)
        self._coupled_only = {
            name: why
            for name, each in drafters.items()
            if (why := getattr(each, "coupled_only", ""))
        }
        self._prompts = prompts
        self._dialogue = Dialogue(
            prompts.template, prompts.render, model.control, prompts.quoted_functions
        )
        self._grammars = grammars
        self._adapters, self._shift = adapters, shift
        self._known_breakers: dict[tuple[str, ...], Breakers] = {}
        """The breakers of the latest request that had any: finding them reads every token."""

    @property
    def facts(self) -> dict[str, Any]:
        """The format of calls, a warning about the template, and whether the model reads images.

        As fields of `Ready`.
        """
        known = self._dialogue.recognised
        format_ = {"format": known.form.name, "format_warning": known.warning}
        return {**format_, "sees": self._images.sees, "projector": self._images.sentence}

    def prepare(self, request: Generate) -> PreparedRequest:
        """The request in the engine's terms.

        Raises:
            RequestError: Something in it is out of range, or its grammar cannot be served.
            TemplateError: The chat template refused or failed.
            ContextOverflow: The prompt leaves no room for an answer.
            TooLarge: A text in it is over a cap.
        """
        limits.check(
            request,
            n_vocab=self._model.n_vocab,
            drafters=self._drafters,
            coupled_only=self._coupled_only,
        )
        context = self._context()
        request, seen = self._images.read(request)
        turn = self._turn(request)
        prompt = request.so_far.prompt if request.so_far else self._tokens(request, turn, seen)
        if not prompt:
            raise RequestError("The prompt is empty.", fix="Send some text.", param="prompt")
        limits.check_scores(request, len(prompt))
        room = context - len(prompt)
        if room < 1:
            raise overflow(len(prompt), context, "messages" if turn else "prompt")
        images = seen.placed(prompt)
        keep = self._shift.keep(request, len(prompt), sees=bool(images))
        longest = room if keep is None else self._shift.longest
        typed = self._prompts.typed(request)
        grammar_, relaxed = self._constraint(request, turn, typed)
        constraint = self._limited(request, turn, grammar_)
        if constraint and request.so_far:
            constraint.commit(request.so_far.tokens)
        sampling = self._sampling(request)
        return PreparedRequest(
            request=request,
            sampling=sampling,
            breakers=self._breakers(sampling),
            prompt=prompt,
            prediction=self._prediction(request, typed, room),
            max_tokens=longest if request.max_tokens is None else min(request.max_tokens, longest),
            keep=keep,
            gone=_gone(request, len(prompt), context, keep),
            constraint=constraint,
            relaxed=relaxed,
            prompt_text=self._spelled(prompt) if request.tells_prompt else "",
            echo=self._echo(request, prompt),
            typed=typed,
            parser=self._parser(request, turn),
            adapters=limits.scales(request, self._adapters),
            borders=self._borders(request, prompt, seen) if self._model.has_state else (),
            images=images,
        )

    def _borders(self, request: Generate, prompt: Sequence[Token], seen: Seen) -> tuple[int, ...]:
        """The tokens before the last question, and before the last message: clients edit these."""
        messages = request.messages or []
        asked = [at for at, message in enumerate(messages) if message.role == "user"]
        if request.so_far or not asked:
            return ()
        lengths = {self._before(request, at, prompt, seen) for at in (asked[-1], len(messages) - 1)}
        return tuple(sorted(lengths - {0}))

    def _before(self, request: Generate, at: int, prompt: Sequence[Token], seen: Seen) -> int:
        """The tokens of the prompt before message `at`; 0 where the template does not tell."""
        earlier = msgspec.structs.replace(
            request,
            messages=(request.messages or [])[:at],
            template_kwargs={**request.template_kwargs, GENERATION: False},
            prefill="",
        )
        try:
            before = self._tokens(earlier, self._turn(earlier), seen) if at else []
        except RequestError:  # the template wants a question last
            return 0
        return common_prefix(before, prompt)

    def _sampling(self, request: Generate) -> SamplingParams:
        """The sampling, with biases of texts turned into those of tokens. Raises RequestError."""
        biases = dict(request.sampling.logit_bias)
        for text, bias in request.biased_texts:
            for token in self.words(text, "logit_bias"):
                biases[token] = ranges.bias_sum(biases.get(token, 0.0), bias)
        sampling = msgspec.structs.replace(request.sampling, logit_bias=biases)
        limits.check_sampling(sampling, self._model.n_vocab)
        return sampling

    def _breakers(self, sampling: SamplingParams) -> Breakers:
        if not repeats(sampling):
            return {}
        texts = sampling.dry_sequence_breakers
        if texts not in self._known_breakers:
            pieces = [*map(self._model.spelled, range(self._model.n_vocab))]
            self._known_breakers = {texts: breakers(texts, pieces, self._model.plain_tokens)}
        return self._known_breakers[texts]

    def _prediction(self, request: Generate, typed: str, room: int) -> list[Token]:
        expected = request.prediction
        return self.words(typed + expected if expected else "", "prediction", room)

    def _parser(self, request: Generate, turn: Turn | None) -> OutputParser:
        dialogue = self._dialogue
        reader = dialogue.reader(turn.offer) if turn and request.reasoning_apart else None
        return OutputParser(request.id, reader, dialogue.call_id, dialogue.shown if reader else {})

    def _constraint(
        self, request: Generate, turn: Turn | None, typed: str
    ) -> tuple[GrammarConstraint | TokenHealing | None, list[str]]:
        """The grammar of the answer: of its words alone, or of thoughts, words and calls.

        Without one, the constraint that the answer begins with what was typed.
        """
        wanted = request.response_format
        alone, relaxed = self._grammars.constraint(wanted, typed)
        offer = turn.offer if turn else Offer()
        if offer.functions or offer.thinks or offer.thinking:
            offer = replace(offer, text_rule=grammar.rule(wanted) if wanted else "")
        if not offer.constrains:
            return alone or self._prompts.held(typed), relaxed
        return self._grammars.calls(partial(self._dialogue.grammar, offer), offer.callable), relaxed

    def _limited(
        self, request: Generate, turn: Turn | None, inner: GrammarConstraint | TokenHealing | None
    ) -> GrammarConstraint | TokenHealing | ThoughtLimit | None:
        """The constraint, inside a limit of thoughts if the answer may have thoughts."""
        pair, most = self._dialogue.thoughts, request.max_thoughts
        limited = most is not None or request.reasoning_control
        if not limited or turn is None or pair is None:
            return inner
        model, shown = self._model, self._dialogue.shown
        opening, closing = pair.opening.strip(), pair.closing.strip()
        begun, said = turn.offer.thinking, request.prefill.strip()
        if said:  # the client has begun the answer
            begun = (begun or said.startswith(opening)) and closing not in said
            if not begun:
                return inner

        def read(text: str) -> list[Token]:
            return model.tokenize(text, add_special=False, parse_special=True)

        def piece(token: Token) -> bytes:
            return shown.get(token) or model.piece(token)

        ends = spelled_by(closing, read, piece)
        if not ends:
            return inner
        marks = Marks(opening.encode(), closing.encode(), tuple(ends))
        limit = ThoughtLimit(most, marks, begun, piece, model.n_vocab, inner)
        if request.thoughts_over:
            limit.end()
        return limit

    def prompt(self, request: Generate) -> tuple[str, list[Token]]:
        """The prompt of a request as text and as tokens. Raises TooLarge, TemplateError."""
        request, seen = self._images.read(request)
        turn = self._turn(request)
        text = self._prompts.text(turn.prompt, request.prefill) if turn else request.prompt or ""
        return text, self._tokens(request, turn, seen)

    def tokenized(self, question: Tokenize) -> list[Token]:
        """The tokens of a text. Raises TooLarge."""
        return self._prompts.tokenized(question)

    def _turn(self, request: Generate) -> Turn | None:
        """The prompt of a chat, with special tokens quoted, and what its answer may do."""
        chat = request.messages is not None
        return self._dialogue.turn(self._prompts.quoted(request)) if chat else None

    def _tokens(self, request: Generate, turn: Turn | None, seen: Seen) -> list[Token]:
        rendered = turn.prompt if turn else None
        return self._prompts.tokens(request, rendered, self._context(), seen.tokens)

    def words(self, text: str, param: str, most: int | None = None) -> list[Token]:
        """The first `most` tokens of a text; special tokens in it are read as plain text.

        Raises TooLarge.
        """
        return self._prompts.words(text, param, self._context() if most is None else most)

    def _echo(self, request: Generate, prompt: list[Token]) -> str:
        if not request.echo or request.messages is not None:
            return ""
        if request.prompt is not None:
            return request.prompt
        return b"".join(map(self._model.piece, prompt)).decode("utf-8", errors="replace")

    def _spelled(self, prompt: list[Token]) -> str:
        """The text of tokens, special ones spelled out."""
        return b"".join(map(self._model.spelled, words(prompt))).decode("utf-8", errors="replace")


def _gone(request: Generate, prompt: int, context: int, keep: int | None) -> tuple[int, int]:
    if keep is None or request.so_far is None:
        return 0, 0
    return gone(prompt + len(request.so_far.tokens), context, keep, request.discard)
