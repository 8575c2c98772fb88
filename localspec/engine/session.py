"""`Session`: the owner of a request's tokens, from which all lengths and positions are derived."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from localspec.control import trees
from localspec.control.round import SessionStats
from localspec.engine.block_max import BlockMax
from localspec.engine.chain import Breakers
from localspec.engine.images import ImageRows, words
from localspec.engine.likelihood import Likelihood, likelihoods, of_law
from localspec.engine.routing import SPECULATING, Expectation
from localspec.engine.sampling import Sampler
from localspec.engine.verify import Frontier
from localspec.types import (
    Constraint,
    Draft,
    DraftSession,
    FinishReason,
    Origin,
    Probs,
    SamplingParams,
    SourceCount,
    SpeculationParams,
    Token,
    Verified,
)

TARGET = "target"
"""The source of tokens that no draft proposed."""

CONFIDENCE_TOKENS = 6
"""Tokens in the moving average of `Session.target_confidence`; six predict the next one best."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request as the engine takes it: numbers only.

    `client` keys the prefix cache; `adapters` are the scales of the model's LoRA adapters
    (`adapters.py: owner` makes one key of both). `route` is the router's decision; only
    "speculating" opens drafters. `expectation` tells how long the output may become: reading the
    prompt into a draft model pays only for a long output. `prediction` is the output that the
    client expects. `logprobs` asks for the likelihood of each token, with so many alternatives.
    `so_far` is output that was decided elsewhere; the session continues it as its own. `session`
    is the client's name for the conversation. A `brief` prompt is read in short chunks, because it
    may have to stop. `breakers` are sequences that a repetition does not reach over. Without
    `reuse` the whole text is read anew. `borders` are the ends of turns, where later prompts part
    from this one. `images` are those of the prompt, in order; a token follows the last.
    Where the context ends, a request with a `keep` keeps so many of its first tokens, forgets
    `discard` after them (0: half of the rest), and goes on. `gone` counts the first tokens that
    shifts on another worker kept, and the tokens that they forgot.
    With `after_sampling`, likelihoods are those of the law after the sampler chain.
    """

    id: str
    client: str
    prompt: list[Token]
    sampling: SamplingParams
    speculation: SpeculationParams
    max_tokens: int
    route: str = SPECULATING
    expectation: Expectation = field(default_factory=Expectation)
    constraint: Constraint | None = None
    ignore_eos: bool = False
    prediction: Sequence[Token] = ()
    logprobs: int | None = None
    so_far: Sequence[Token] = ()
    session: str = ""
    brief: bool = False
    breakers: Breakers = field(default_factory=dict)
    reuse: bool = True
    after_sampling: bool = False
    borders: tuple[int, ...] = ()
    images: Sequence[ImageRows] = ()
    adapters: tuple[float, ...] = ()
    keep: int | None = None
    discard: int = 0
    gone: tuple[int, int] = (0, 0)

    @property
    def text(self) -> list[Token]:
        """The tokens that the session begins with."""
        kept, forgotten = self.gone
        text = [*self.prompt, *self.so_far]
        return text[:kept] + text[kept + forgotten :]


@dataclass(slots=True)
class Meter:
    """Costs of one request and the work of speculation for it. Clock readings in seconds.

    `predicted` counts output tokens that the request's prediction had right, whether or not they
    were drafted from it.
    """

    admitted_at: float
    first_token_at: float = 0.0
    last_token_at: float = 0.0
    rounds: int = 0
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    host_seconds: float = 0.0
    predicted: int = 0
    sources: dict[str, SourceCount] = field(default_factory=dict)

    def count(self, draft: Draft, committed: Sequence[Token]) -> None:
        """Count a verified draft; accepted are the nodes on the path of the `committed` tokens."""
        accepted = {*trees.path(draft, committed)}
        depths = trees.depths(draft.parents)
        for node, (position, signal) in enumerate(zip(depths, draft.signals, strict=True)):
            source = self.sources.setdefault(signal.source, SourceCount())
            kept = node in accepted
            source.drafted += 1
            source.accepted += kept
            for counts, add in (
                (source.drafted_by_position, 1),
                (source.accepted_by_position, int(kept)),
            ):
                counts.extend([0] * (position + 1 - len(counts)))
                counts[position] += add

    @property
    def drafted(self) -> int:
        """Verified nodes of all sources."""
        return sum(source.drafted for source in self.sources.values())

    @property
    def accepted(self) -> int:
        """Drafted nodes that the target kept."""
        return sum(source.accepted for source in self.sources.values())


@dataclass(slots=True, eq=False)
class Session:
    """One request in its slot, from admission to retirement. Owned by the engine's thread.

    `tokens` is prompt and output; `cached` counts the positions whose keys and values the target
    holds. The tail `tokens[cached:]` is still to be decoded: many tokens during prefill, one after.
    `undone` counts tokens of the tail that were decoded once already: the memory forgot them too,
    because it could not take back only the rejected part of that forward.
    `target_confidence` is how certain the target was of its latest tokens, as a moving average.
    `likelihoods` are those of the tokens not taken yet, where the request asks for them.
    `dropped` counts tokens of the text that shifts of the context have forgotten. After a shift
    only the first `sound` tokens have the memory that reading them anew would give.
    `row` is the row of the latest forward after which its text goes on, counted among its own rows.
    `origin` is where the `cached_tokens` came from. `carried` was drafted for the next round while
    the target verified the last one. `untold` holds what the drafters have not yet been told of the
    latest round; `tell` passes it on before they are asked again, or else during the next forward.
    """

    request: Request
    slot: int
    tokens: list[Token]
    cached: int
    cached_tokens: int
    sampler: Sampler
    meter: Meter
    drafters: dict[str, DraftSession] = field(default_factory=dict)
    stats: SessionStats | None = None
    target_confidence: float | None = None
    likelihoods: list[Likelihood] = field(default_factory=list)
    finish: FinishReason | None = None
    undone: int = 0
    row: int = 0
    dropped: int = 0
    sound: int = 0
    origin: Origin = "slot"
    carried: Draft = field(default_factory=Draft)
    untold: list[Callable[[], None]] = field(default_factory=list)

    @property
    def n_prompt(self) -> int:
        """Tokens of the prompt."""
        return len(self.request.prompt)

    @property
    def n_output(self) -> int:
        """Tokens decided so far."""
        return len(self.tokens) + self.dropped - self.n_prompt

    @property
    def remaining(self) -> int:
        """Output tokens that may still come."""
        return self.request.max_tokens - self.n_output

    @property
    def tail(self) -> int:
        """Committed tokens that the target has not decoded yet; never 0."""
        return len(self.tokens) - self.cached

    @property
    def decoding(self) -> bool:
        """Whether prefill is over: the tail is the latest decided token, besides what is undone."""
        return self.tail <= 1 + self.undone and self.n_output > 0

    @property
    def image(self) -> ImageRows | None:
        """The first image that the target has not read to its end."""
        images = self.request.images
        return next((each for each in images if each.end > self.cached), None) if images else None

    @property
    def at_image(self) -> bool:
        """Whether the target has to read rows of an image before the next token."""
        return (image := self.image) is not None and image.start <= self.cached

    def unseen(self, place: int) -> int:
        """The number of image rows before a place in the text; drafters do not have these rows."""
        return sum(len(each.vectors) for each in self.request.images if each.end <= place)

    def _recent(self) -> list[Token]:
        """The latest tokens, as many as the sampler needs."""
        back = self.sampler.looks_back
        if not back:
            return []
        return (words(self.tokens) if self.request.images else self.tokens)[-back:]

    @property
    def _position(self) -> int:
        """The number of tokens so far, without rows of images. It keys the noise."""
        return len(self.tokens) - self.unseen(len(self.tokens))

    def frontier(self, ends: frozenset[Token]) -> Frontier:
        """Where the text ends now; `ends` are the model's end-of-generation tokens."""
        return Frontier(
            self.sampler,
            self._recent(),
            self._position,
            frozenset() if self.request.ignore_eos else ends,
        )

    def look(
        self, rows: Sequence[BlockMax], draft: Draft, verdict: Verified, *, target_confidence: bool
    ) -> None:
        """Keep what is wanted of the verified rows: target confidence and likelihoods."""
        if target_confidence:
            for node in (-1, *verdict.accepted):
                self.untold.append(partial(self.observe_confidence, rows[node + 1].kept()))
        if self.request.logprobs is not None:
            count = self.request.logprobs
            if self.request.after_sampling:
                laws = self._laws(rows, draft, verdict)
                self.likelihoods += [of_law(law, token, count) for law, token in laws]
            else:
                self.likelihoods += likelihoods(rows, draft, verdict, count)

    def _laws(
        self, rows: Sequence[BlockMax], draft: Draft, verdict: Verified
    ) -> Iterator[tuple[Probs, Token]]:
        """The law that each kept token was drawn from, and the token."""
        recent, path, position = self._recent(), list[Token](), self._position
        tokens = [*(draft.tokens[node] for node in verdict.accepted), verdict.token]
        for node, token in zip((-1, *verdict.accepted), tokens, strict=True):
            yield (
                self.sampler.law(rows[node + 1], recent, path, position + len(path)),
                token,
            )
            path.append(token)

    def ending(self, ends: frozenset[Token], context: int) -> FinishReason | None:
        """The reason why the output ends, in a context of so many tokens; None while it goes on."""
        if self.n_output and self.tokens[-1] in ends and not self.request.ignore_eos:
            return "stop"
        full = len(self.tokens) >= context and self.request.keep is None
        over = self.n_output > 0 and (self.remaining <= 0 or full)
        return "length" if over else None

    def tell(self) -> None:
        """Tell the drafters what they have not yet been told of the latest round."""
        untold, self.untold = self.untold, []
        for each in untold:
            each()

    def observe_confidence(self, row: BlockMax) -> None:
        """Update the target confidence with a committed token; `row` is the row before it."""
        certainty = row.certainty()
        known = certainty if self.target_confidence is None else self.target_confidence
        self.target_confidence = known + (certainty - known) / CONFIDENCE_TOKENS

    def commit(self, draft: Draft, verdict: Verified) -> list[Token]:
        """Append what the target kept, which is returned. The new last token is not decoded yet."""
        kept = [draft.tokens[node] for node in verdict.accepted]
        self.row = self.tail + (verdict.accepted[-1] if verdict.accepted else -1)
        self.cached, self.undone = len(self.tokens) + len(kept), 0
        kept.append(verdict.token)
        self.tokens += kept
        return kept

    def forget(self, keep: int, count: int) -> None:
        """Drop `count` tokens after the first `keep`. Later tokens get the noise as before."""
        if not self.dropped:
            self.sound = keep
        self.sound = min(self.sound, keep)
        del self.tokens[keep : keep + count]
        self.cached -= count
        self.dropped += count
        self.sampler.offset += count
        self.carried = Draft()

    def reusable(self, length: int) -> int:
        """How many of the first `length` tokens another text may take over."""
        return min(length, self.sound) if self.dropped else length

    def holds(self, length: int) -> None:
        """Note that the memory went back to `length` tokens, which may be fewer than `cached`."""
        self.undone += self.cached - length
        self.cached = length
