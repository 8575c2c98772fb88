"""Laws of forced calls: a family's reader finds calls in all that the grammar allows."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest
from llguidance import LLMatcher
from text.test_formats import ANSWERS, TIME, WEATHER, calls, form, read, said

from localspec.errors import GrammarError
from localspec.text.constraint import GrammarConstraint, Vocabulary
from localspec.text.dialogue import marks_of
from localspec.text.formats import Format, Offer, lark, values, writing
from localspec.text.formats.choice import offered

BYTES = [bytes([byte]) for byte in range(256)]
LETTERS = ("all", "Action", "function call", "functools", "Here", "functions", "```")
family = pytest.mark.parametrize("name", ANSWERS)


class Words:
    """The bytes, and each mark of a family as a control token, or none of them."""

    def __init__(self, found: Format, *, control: bool) -> None:
        marks = [mark for mark in marks_of(found) if len(mark) > 2 and not mark.startswith(LETTERS)]
        self.marks = sorted(marks, key=len, reverse=True) if control else []
        self.texts = [*BYTES, *(mark.encode() for mark in self.marks), b""]
        pieces = [*BYTES, *[b""] * len(self.marks), b""]
        self.eog = len(pieces) - 1
        self.vocabulary = Vocabulary(pieces, {self.eog})
        self.tokens = {mark: 256 + index for index, mark in enumerate(self.marks)}

    def opened(self, found: Format, offer: Offer) -> GrammarConstraint:
        """The constraint of an offer's calls."""
        text = lark.grammar(found, offer, self.tokens)
        return self.vocabulary.constraint(LLMatcher.grammar_from_lark(text))

    def spelled(self, text: str) -> list[int]:
        """Control tokens where their text occurs, bytes elsewhere."""
        out: list[int] = []
        while text:
            mark = next((one for one in self.marks if text.startswith(one)), None)
            out += [self.tokens[mark]] if mark else [*text[0].encode()]
            text = text[len(mark or text[0]) :]
        return out

    def allows(self, found: Format, offer: Offer, text: str) -> bool:
        """Whether a text is allowed as a whole answer."""
        try:
            self.opened(found, offer).check_end(self.spelled(text))
        except GrammarError:
            return False
        return True

    def walk(self, constraint: GrammarConstraint, seed: int, begun: Sequence[int] = ()) -> str:
        """A random walk that prefers to come to an end, behind what has `begun`; "" without one."""
        drawn, out = np.random.default_rng(seed), b""
        for token in begun:
            if not constraint.mask([])[token]:
                return ""
            constraint.commit([token])
            out += self.texts[token]
        for _ in range(3000):
            allowed = np.flatnonzero(constraint.mask([]))
            closing = [token for token in (*range(256, self.eog), *b'"}])') if token in allowed]
            hurry = closing if closing and drawn.random() < len(out) / 300 else allowed
            ends = self.eog in allowed and drawn.random() < 0.5
            token = self.eog if ends else int(drawn.choice(hurry))
            constraint.commit([token])
            if token == self.eog:
                return out.decode()
            out += self.texts[token]
        return ""


def written(found: Format, name: str, arguments: dict[str, object]) -> str:
    """A call as the family writes it, its head with it."""
    body = writing.calls(found, [(name, arguments)]) if found.ways else values.written(arguments)
    return found.heads.calls.format(name=name) + body if found.heads else body


@family
@pytest.mark.parametrize("control", [True, False])
def test_a_forced_call_is_allowed_as_the_family_writes_it(name: str, control: bool) -> None:
    """One call and two are allowed; text and arguments outside of the schema are not."""
    found, words = form(name), Words(form(name), control=control)
    offer = Offer([WEATHER, TIME], forced=True)
    fits = written(found, "get_weather", {"city": "Rome", "days": 3})
    assert words.allows(found, offer, fits)
    assert words.allows(found, offer, written(found, "get_weather", {"city": "x"}))
    assert words.allows(found, offer, written(found, "now", {}))
    assert not words.allows(found, offer, "Hello.")
    assert not words.allows(found, offer, written(found, "other", {}))
    assert not words.allows(found, offer, written(found, "get_weather", {"days": 3}))
    assert not words.allows(found, offer, written(found, "get_weather", {"city": "x", "days": "y"}))
    if not found.heads:
        both = writing.calls(found, [("now", {}), ("get_weather", {"city": "x"})])
        assert words.allows(found, offer, both)
        once = Offer([WEATHER, TIME], forced=True, parallel=False)
        assert not words.allows(found, once, both)


@family
@pytest.mark.parametrize("seed", range(3))
def test_a_forced_walk_is_calls_and_nothing_else(name: str, seed: int) -> None:
    """Every name is one of the functions, and all arguments fit its schema."""
    found, words = form(name), Words(form(name), control=True)
    offer = Offer([WEATHER, TIME], forced=True)
    text = words.walk(words.opened(found, offer), seed)
    if not text or re.search(r"[eE][-+]?\d{3}", text):  # by chance no mark, or no float
        return
    pieces = read(found, [text], offer)
    assert calls(pieces)
    assert "".join(said(pieces, "content")).strip() == ""
    for call, arguments in calls(pieces):
        assert call in {"get_weather", "now"}
        if call == "get_weather" and name != "minimax-m3":
            assert isinstance(arguments["city"], str)
            assert set(arguments) <= {"city", "days"}


@family
def test_a_named_function_is_called_once(name: str) -> None:
    """`tool_choice` with a name allows no other and no second call."""
    choice = {"type": "function", "function": {"name": "now"}}
    tools = [{"type": "function", "function": one} for one in (WEATHER, TIME)]
    offer = offered(tools, choice, parallel=True)
    found, words = form(name), Words(form(name), control=True)
    assert words.allows(found, offer, written(found, "now", {}))
    assert not words.allows(found, offer, written(found, "get_weather", {"city": "x"}))


@family
@pytest.mark.parametrize("control", [True, False])
def test_a_strict_function_binds_its_arguments_and_not_the_words(name: str, control: bool) -> None:
    """A matching call may follow text or be left out; one outside of the schema is not allowed."""
    found, words = form(name), Words(form(name), control=control)
    strict = Offer([{**WEATHER, "strict": True}, TIME])
    hello = f"{found.heads.says}Hi." if found.heads else "Hi."
    before = "" if found.heads else hello
    fits = before + written(found, "get_weather", {"city": "x"})
    assert words.allows(found, strict, hello)
    assert words.allows(found, strict, fits)
    assert words.allows(found, strict, before + written(found, "now", {}))
    unfit = before + written(found, "get_weather", {"days": 3})
    assert not words.allows(found, strict, unfit)


@family
@pytest.mark.parametrize("thinking", [True, False])
def test_thoughts_come_before_a_forced_call(name: str, thinking: bool) -> None:
    """The thoughts are begun by the prompt or by the model."""
    found, words = form(name), Words(form(name), control=True)
    if not found.thoughts:
        return
    pair = found.thoughts[0]
    offer = Offer([TIME], forced=True, thinks=True, thinking=thinking)
    text = "Well." + pair.closing + written(found, "now", {})
    text = text if thinking else pair.opening + text
    assert words.allows(found, offer, text)


@family
def test_an_answer_of_a_rule_comes_behind_one_thought_at_most(name: str) -> None:
    """An unsure model would think again and again, and never come to it."""
    found, words = form(name), Words(form(name), control=True)
    offer = Offer(text_rule='"{}"', thinks=True)
    if found.heads:
        thought, says = f"{found.heads.thinks}Well.{found.heads.again}", found.heads.says
    elif found.thoughts:
        thought, says = f"{found.thoughts[0].opening}Well.{found.thoughts[0].closing}", ""
    else:
        return
    assert words.allows(found, offer, says + "{}")
    assert words.allows(found, offer, thought + says + "{}")
    assert not words.allows(found, offer, thought + thought + says + "{}")
