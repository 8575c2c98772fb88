"""The Lark grammar of answers that are messages with heads."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from localspec.text.formats.offer import Offer
from localspec.text.formats.parts import Format, Heads
from localspec.text.formats.spelled import BLANKS, RuleList, Spelling, escaped, quoted, without
from localspec.text.formats.starts import Starts

_CALLED = re.compile(r"(?:functions\.)?\{name\}")


def grammar(form: Format, heads: Heads, offer: Offer, spelling: Spelling) -> str:
    """Lark for messages of thoughts, words and calls."""
    return _Messages(form, heads, offer, spelling).grammar()


@dataclass(slots=True)
class _Messages:
    form: Format
    heads: Heads
    offer: Offer
    spelling: Spelling
    rules: RuleList = field(default_factory=RuleList)
    starts: Starts = field(init=False)

    def __post_init__(self) -> None:
        self.starts = Starts(self.form, self.offer, self.spelling, self.rules)

    def grammar(self) -> str:
        """The whole grammar."""
        offer, heads = self.offer, self.heads
        ends = [*map(escaped, (*heads.closings, *heads.begins))]
        called = self.starts.not_words() if offer.functions and self.form.ways else []
        self.rules.append(f"TEXT: {without(ends)}")
        self.rules.append(f"WORDS: {without([*ends, *called])}")
        for name, text in (("thought", "TEXT"), ("said", "WORDS")):
            self.rules.append(f"{name}: {self._ended(text, heads.closings)} | {text}")
            self.rules.append(f"{name}_again: {self._ended(text, self._agains())}")
        before = [f"{self._exact(heads.thinks)} thought_again"]
        if not offer.forced:
            before.append(f"{self._exact(heads.before or heads.says)} said_again")
        says = self._exact(heads.says)
        says = (
            f"{says} {offer.text_rule} ({self._closings()})?" if offer.text_rule else f"{says} said"
        )
        # An unsure model would begin message after message before it writes the one that it must.
        once = " ".join(f"({one})?" for one in before) if offer.text_rule else ""
        first = once or f"({' | '.join(before)})*"
        if not offer.functions:
            return "\n".join([f"start: {first} {says}", *self.rules])
        self._calls()
        again = " | ".join(" ".join(self.spelling.exact(text)) for text in self._agains())
        self.rules.append(f"again: {again}")
        calls = "call (again call)*" if offer.parallel else "call"
        if offer.forced:
            made = f"{first} {calls} ({self._closings()})?"
        elif offer.parallel:
            among = f"{once} (call again)*" if once else f"({' | '.join([*before, 'call again'])})*"
            made = f"{among} (call ({self._closings()})? | {says})"
        else:
            made = f"{first} (call ({self._closings()})? | {says})"
        return "\n".join([f"start: {made}", *self.rules])

    def _calls(self) -> None:
        """The rule `call`: a message with a call."""
        heads = dict.fromkeys((self.heads.calls, *self.heads.also))
        made = []
        for at, function in enumerate(self.offer.callable):
            name = escaped(str(function["name"]))
            if self.form.ways:
                head = self._exact(self.heads.calls.replace("{name}", str(function["name"])))
                made.append(f"{head} ({' | '.join(self._block())})")
                continue
            behind: dict[str, list[str]] = {}
            for head in heads:
                first, last = self._around(head, name)
                behind.setdefault(first, []).append(last)
            either = " | ".join(f"{first} ({' | '.join(last)})" for first, last in behind.items())
            made.append(f"({either}) {self.starts.json(at)}")
        self.rules.append(f"call: {' | '.join(made)}")

    def _block(self) -> list[str]:
        """Lark for calls in the body of a message, one for each way to begin them."""
        return [f"{BLANKS if not one.pattern else f'/{escaped(one.pattern)}/'} {one.behind}"
                for one in self.starts.of_words()]  # fmt: skip

    def _around(self, head: str, name: str) -> tuple[str, str]:
        """Lark for a head up to its function's name, and for the head's rest."""
        place = _CALLED.search(head)
        if place is None:
            raise ValueError("this head has no place for a name")
        *single, text = self.spelling.pieces(head[: place.start()]) or [""]
        if text in self.spelling.single:
            single, text = [*single, text], ""
        before = [part for one in single for part in self.spelling.exact(one)]
        called = rf"/{escaped(text)}(functions\.)?{name}/"
        return " ".join([*before, called]), self._exact(head[place.end() :])

    def _agains(self) -> list[str]:
        """Texts that end a message and begin the next one; the last of them only begins it."""
        closing = next(one for one in self.heads.closings if self.heads.again.startswith(one))
        begin = self.heads.again.removeprefix(closing)
        return [*(one + begin for one in self.heads.closings), begin]

    def _closings(self) -> str:
        return " | ".join(self._exact(one) for one in self.heads.closings)

    def _exact(self, text: str) -> str:
        return " ".join(self.spelling.exact(text))

    def _ended(self, text: str, ends: list[str] | tuple[str, ...]) -> str:
        """Lark for a text up to one of the ends; adds the terminals that it needs."""
        ways = []
        for end in ends:
            before, rest = self.spelling.parted(end)
            name = f"{text}_{len(self.rules)}"
            self.rules.append(f"{name}: {text} {quoted(before)}" if before else f"{name}: {text}")
            ways.append(" ".join([name, *rest]))
        return " | ".join(ways)
