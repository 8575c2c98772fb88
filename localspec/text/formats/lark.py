"""Makes the Lark grammar of answers that are restricted to the offered functions.

It allows calls in each way in which `reading.py` finds one of the family, in tidy spelling, if
their arguments obey the schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from localspec.text.formats import messages
from localspec.text.formats.offer import Offer
from localspec.text.formats.parts import Format, Pair
from localspec.text.formats.spelled import (
    BLANKS,
    GAP,
    RuleList,
    Spelling,
    bounded,
    escaped,
    quoted,
    without,
)
from localspec.text.formats.starts import Start, Starts
from localspec.text.formats.tape import BLANK
from localspec.types import Token


def grammar(form: Format, offer: Offer, tokens: Mapping[str, Token]) -> str:
    """Lark for answers that call offered functions; with text only where no call is forced.

    `tokens` maps marks to single tokens of the vocabulary, which no characters can spell.
    """
    spelling = Spelling(tokens)
    if form.heads:
        return messages.grammar(form, form.heads, offer, spelling)
    return _Answer(form, offer, spelling).grammar()


@dataclass(slots=True)
class _Answer:
    """An answer of thoughts, words and calls, separated by marks."""

    form: Format
    offer: Offer
    spelling: Spelling
    rules: RuleList = field(default_factory=RuleList)
    starts: Starts = field(init=False)

    def __post_init__(self) -> None:
        self.starts = Starts(self.form, self.offer, self.spelling, self.rules)

    def grammar(self) -> str:
        """The whole grammar."""
        self._answer()
        pairs = self.form.thoughts if self.offer.thinks or self.offer.thinking else ()
        if not pairs:
            return "\n".join(["start: answer", *self.rules])
        again, ended = [], []
        for index, pair in enumerate(pairs):
            opening = " ".join(self.spelling.marks(pair.opening))
            again.append(f"{opening} t{index}")
            if self._thought(f"t{index}", [pair]):
                ended.append(f"{opening} t{index}_end")
        # An unsure model would think again and again before it writes what it must.
        often = "?" if self.offer.text_rule else "*"
        thought = (
            "" if self.offer.text_rule and self.offer.thinking else f"({' | '.join(again)}){often}"
        )
        begun = f"{thought} ({' | '.join(['answer', *ended])})"
        if self.offer.thinking:
            calls = " | t_end" if self._thought("t", pairs) else ""
            repeated = [one for pair in pairs for one in self._repeated(pair)]
            begun = f"{' '.join(repeated)} (t {begun}{calls})"
        return "\n".join([f"start: {begun}", *self.rules])

    def _repeated(self, pair: Pair) -> list[str]:
        """The mark of thoughts that the prompt has begun, which some models write again."""
        if self.spelling.is_text(pair.opening):
            return []  # it is text of the thoughts
        return [f"({' '.join(self.spelling.marks(pair.opening))})?"]

    # -- words and calls

    def _answer(self) -> None:
        """The rule `answer`: what stands behind thoughts."""
        if not self.offer.functions:
            self._words([])
            self.rules.append(f"answer: {self.offer.text_rule or 'words'}")
            return
        starts = self.starts.of_words()
        self.rules.append(f"calls: {self._calls(starts)}")
        if self.offer.forced:
            self.rules.append("answer: calls")
        elif self.offer.text_rule:
            self.rules.append(f"answer: {self.offer.text_rule} | calls")
        else:
            self._words(starts)
            self.rules.append("answer: words")

    def _calls(self, starts: Sequence[Start]) -> str:
        """Lark for calls and nothing else."""
        one = " | ".join(f"{bounded(GAP + start.pattern)} {start.behind}" if start.pattern
                         else f"{BLANKS} {start.behind}" for start in starts)  # fmt: skip
        betweens = {way.between.strip(BLANK) for way in self.form.ways if not way.opening} - {""}
        commas = (" ".join(self.spelling.marks(text)) for text in sorted(betweens))
        comma = "".join(f"({text})? " for text in commas)
        self.rules.append(f"a_call: {one}")
        return f"a_call ({comma}a_call)* {BLANKS}" if self.offer.parallel else f"a_call {BLANKS}"

    def _words(self, starts: Sequence[Start]) -> None:
        """The rule `words`: words, with calls among them."""
        openings = [escaped(pair.opening.strip(BLANK)) for pair in self._thoughts()
                    if self.spelling.is_text(pair.opening)]  # fmt: skip
        self.rules.append(f"TEXT: {without([*self.starts.not_words(), *openings])}")
        alone = [f"{bounded(GAP + one.pattern)} {one.behind}" for one in starts if one.alone]
        anywhere = self._up_to("called", [one for one in starts if not one.alone], "TEXT")
        marks = self._own_marks()
        firsts = f"({' | '.join(alone)})" if alone else ""
        own = f"TEXT ({' | '.join(marks)})" if marks else ""
        if self.offer.parallel:
            again = f"{own} {firsts}?" if own and firsts else own
            more = " | ".join(filter(None, (anywhere, again)))
            made = f"{firsts + '?' if firsts else ''} {f'({more})*' if more else ''} TEXT"
        else:
            owns = f"({own})*" if own else ""
            either = " | ".join(filter(None, (firsts, f"{owns} {anywhere}" if anywhere else "")))
            made = f"({either})? {owns} TEXT"
        self.rules.append(f"words: {made}")

    def _up_to(self, name: str, starts: Sequence[Start], text: str) -> str:
        """Add the rule `name`: a text up to where calls begin, and the calls; "" without starts."""
        behind: dict[str, list[str]] = {}
        for start in starts:
            behind.setdefault(start.pattern, []).append(start.behind)
        ways = []
        for index, (pattern, calls) in enumerate(behind.items()):
            terminal = f"{name.upper()}_{index}"
            self.rules.append(
                f"{terminal}: {text} /{pattern}/" if pattern else f"{terminal}: {text}"
            )
            ways.append(f"{terminal} ({' | '.join(calls)})")
        if ways:
            self.rules.append(f"{name}: {' | '.join(ways)}")
        return name if ways else ""

    def _own_marks(self) -> list[str]:
        """Lark for single tokens that words may contain, and for thoughts that begin anywhere."""
        single = self.spelling.single
        marks = [mark for pair in self.form.words for mark in (pair.opening, pair.closing)]
        texts = [mark.strip(BLANK) for mark in (*marks, *self.form.dropped)]
        found = [" ".join(self.spelling.exact(text)) for text in texts
                 if any(one in text for one in single)]  # fmt: skip
        for index, pair in enumerate(self._thoughts()):
            if pair.own and not self.spelling.is_text(pair.opening):
                found.append(f"{' '.join(self.spelling.marks(pair.opening))} t{index}")
        return list(dict.fromkeys(found))

    # -- thoughts

    def _thoughts(self) -> Sequence[Pair]:
        return self.form.thoughts if self.offer.thinks or self.offer.thinking else ()

    def _thought(self, name: str, pairs: Iterable[Pair]) -> bool:
        """Add the rule `name` for thoughts up to their closing mark.

        True if there is also `name`_end, for thoughts that calls end. Thoughts may mention a call:
        one that a closing mark follows was only mentioned.
        """
        closings = list(dict.fromkeys(pair.closing.strip(BLANK) for pair in pairs))
        marks = [*map(escaped, closings)]
        text = f"{name.upper()}_TEXT"
        if not self.offer.functions:
            self.rules.append(f"{text}: {without(marks)}")
            self.rules.append(f"{name}: {self._closed(text, closings)}")
            return False
        starts = self.starts.of_thoughts()
        inside = [one.pattern for one in starts if not one.behind.startswith("<[")]
        self.rules.append(f"{text}: {without([*marks, *inside])}")
        called = self._up_to(f"{name}_called", starts, text)
        self.rules.append(
            f"{name}: {f'{called}*' if called else ''} ({self._closed(text, closings)})"
        )
        if not called:
            return False
        end = f"{called}+" if self.offer.parallel else called
        if not self.offer.forced:
            outside = self.starts.not_words()
            self.rules.append(f"{name.upper()}_LAST: {without([*marks, *inside, *outside])}")
            end += f" {name.upper()}_LAST"
        self.rules.append(f"{name}_end: {end} {BLANKS}")
        return True

    def _closed(self, text: str, closings: Sequence[str]) -> str:
        """Lark for a text up to one of the marks; adds the terminals that it needs."""
        ways = []
        for index, closing in enumerate(closings):
            before, rest = self.spelling.parted(closing)
            name = f"{text}_{index}"
            self.rules.append(f"{name}: {text} {quoted(before)}" if before else f"{name}: {text}")
            ways.append(" ".join([name, *rest]))
        return " | ".join(ways)
