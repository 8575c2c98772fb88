"""DeepSeek: tokens around each call; V3 and R1 fence the arguments, V3.1 does not."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.text.tools import calls
from localspec.text.tools.format import Json, Offer, Spell, lark, literal
from localspec.text.tools.hermes import Hermes
from localspec.text.tools.tape import Reading, Tape, thoughts, words

OPENING = "<｜tool▁calls▁begin｜>"  # noqa: RUF001 - the model's own letters
_ALL_END = "<｜tool▁calls▁end｜>"  # noqa: RUF001
_BEGIN = "<｜tool▁call▁begin｜>"  # noqa: RUF001
_SEP = "<｜tool▁sep｜>"  # noqa: RUF001
_END = "<｜tool▁call▁end｜>"  # noqa: RUF001
_FENCE, _CLOSE = "\n```json\n", "\n```"


class DeepSeek(Hermes):
    """Calls between tokens of their own, the name before the arguments."""

    markers: Sequence[str] = (OPENING, _ALL_END, _BEGIN, _SEP, _END, "<think>", "</think>")

    def __init__(self, *, fenced: bool) -> None:
        self.name = "deepseek" if fenced else "deepseek-v3.1"
        self._fenced = fenced

    def prompt(self, functions: Sequence[Json]) -> str:
        """Its own way to write a call, for templates that do not say it."""
        shape = (
            f"function{_SEP}NAME{_FENCE}ARGUMENTS{_CLOSE}"
            if self._fenced
            else (f"NAME{_SEP}ARGUMENTS")
        )
        listed = super().prompt(functions).partition("\n\nFor each call")[0]
        return f"{listed}\n\nTo call functions end with:\n{OPENING}{_BEGIN}{shape}{_END}{_ALL_END}"

    def read(self, tape: Tape, offer: Offer) -> Reading[None]:
        """Thoughts, then words, then calls."""
        if offer.thinks or offer.thinking:
            yield from thoughts(tape, "<think>", "</think>", begun=offer.thinking)
        if not offer.functions:
            return (yield from words(tape))
        while marker := (yield from tape.prose("content", [OPENING, _BEGIN, _ALL_END])):
            if marker != _BEGIN:
                tape.markup(marker)
            elif not (yield from _call(tape, tape.text.index(marker) + len(marker))):
                tape.give("content", tape.text.index(marker) + len(marker))
        return None

    def grammar(self, offer: Offer, spell: Spell) -> str:
        """All calls between their tokens."""

        def one(function: Json, arguments: str) -> str:
            name = str(function["name"])
            if not self._fenced:
                return f"{literal(name)} {spell(_SEP)} {arguments}"
            return (
                f'"function" {spell(_SEP)} {literal(name + _FENCE)} {arguments} {literal(_CLOSE)}'
            )

        gap = '"\\n"' if self._fenced else ""
        return lark(
            offer,
            spell,
            thought=self.thought,
            opening=OPENING,
            first=spell(_BEGIN),
            between=f"{spell(_END)} {gap} {spell(_BEGIN)}",
            end=f"{spell(_END)} {spell(_ALL_END)}",
            one=one,
        )


def _call(tape: Tape, at: int) -> Reading[bool]:
    """Take a call whose type or name begins at `at`."""
    typed = yield from tape.literal(at, "function" + _SEP)
    begin = end = at if typed is None else typed
    while (char := (yield from tape.peek(end))) and char not in "<\n":
        end += 1
    behind = yield from tape.literal(end, _SEP if typed is None else _FENCE)
    place = None if behind is None else (yield from tape.blank(behind))
    if place is None or end == begin or (yield from tape.peek(place)) != "{":
        return False
    tape.give("markup", begin)
    tape.give("call", end - begin)
    tape.give("markup", place - end)
    yield from calls.arguments(tape)
    place = yield from tape.blank(0)
    fence = yield from tape.literal(place, "```")
    closed = yield from tape.literal(place if fence is None else fence, _END)
    tape.give("markup", closed or fence or place)
    return True
