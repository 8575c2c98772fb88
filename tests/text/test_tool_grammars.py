"""Laws of forced calls: whatever a grammar lets through, the family's reader finds calls in it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from llguidance import LLMatcher
from text.test_tools import FAMILIES, TIME, WEATHER, read, said

from localspec.text.constraint import GrammarConstraint, Vocabulary
from localspec.text.dialogue import Dialogue
from localspec.text.tools import Offer
from localspec.text.tools.choice import offered

BYTES = [bytes([byte]) for byte in range(256)]
CONTROL = sorted({
    "[TOOL_CALLS]", "[ARGS]", "<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|constrain|>",
    "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>",  # noqa: RUF001
    "<｜tool▁call▁end｜>", "<｜tool▁sep｜>",  # noqa: RUF001
})  # fmt: skip
PIECES = [*BYTES, *[b""] * len(CONTROL), b""]
EOG = len(PIECES) - 1
TEXTS = [*BYTES, *[text.encode() for text in CONTROL], b""]
VALUE_END = b"</parameter>\n"
family = pytest.mark.parametrize("name", FAMILIES)


@pytest.fixture(scope="module")
def words() -> Vocabulary:
    """Bytes and the control tokens of all families."""
    return Vocabulary(len(PIECES), PIECES.__getitem__, {EOG})


def dialogue(name: str) -> Dialogue:
    """A family's dialogue; its control tokens are in the vocabulary."""
    token = {text: len(BYTES) + index for index, text in enumerate(CONTROL)}
    return Dialogue(FAMILIES[name].template, lambda messages, _: str(messages), token.get)


def opened(words: Vocabulary, name: str, offer: Offer) -> GrammarConstraint:
    """The constraint of an offer's calls."""
    lark = dialogue(name).grammar(offer)
    return words.constraint(LLMatcher.grammar_from_lark(lark))


def walk(constraint: GrammarConstraint, seed: int, ending: bytes = b"") -> str:
    """A random walk that prefers to come to an end, such as that of a value, if it is known."""
    random, out = np.random.default_rng(seed), b""
    for _ in range(3000):
        allowed = np.flatnonzero(constraint.mask([]))
        closing = [token for token in (*range(256, EOG), *b'"}]') if token in allowed]
        if ending and (byte := _next(out, ending)) in allowed:
            closing = [byte]
        hurry = closing if closing and random.random() < len(out) / 300 else allowed
        token = EOG if EOG in allowed and random.random() < 0.5 else int(random.choice(hurry))
        constraint.commit([token])
        if token == EOG:
            return out.decode()
        out += TEXTS[token]
    pytest.fail("the walk did not end")


def _next(out: bytes, ending: bytes) -> int:
    """The byte that goes on towards `ending`."""
    begun = (size for size in range(len(ending) - 1, -1, -1) if out.endswith(ending[:size]))
    return ending[next(begun)]


@family
@pytest.mark.parametrize("seed", range(4))
def test_a_forced_walk_is_calls_and_nothing_else(words: Vocabulary, name: str, seed: int) -> None:
    """Every name is one of the functions, and all arguments fit its schema."""
    offer = Offer([WEATHER, TIME], forced=True)
    ending = VALUE_END if name == "qwen3-coder" else b""
    text = walk(opened(words, name, offer), seed, ending)
    pieces = read(dialogue(name).format, [text], offer)
    calls = said(pieces, "call")
    assert calls
    assert "".join(said(pieces, "content")).strip() == ""
    for call, arguments in zip(calls, map(json.loads, said(pieces, "arguments")), strict=True):
        assert call in {"get_weather", "now"}
        if call == "get_weather":
            assert isinstance(arguments["city"], str)
            assert set(arguments) <= {"city", "days"}


@family
def test_a_named_function_is_called_once(words: Vocabulary, name: str) -> None:
    """`tool_choice` with a name allows no other and no second call."""
    choice = {"type": "function", "function": {"name": "now"}}
    tools = [{"type": "function", "function": one} for one in (WEATHER, TIME)]
    offer = offered(tools, choice, parallel=True)
    for seed in range(3):
        text = walk(opened(words, name, offer), seed)
        assert said(read(dialogue(name).format, [text], offer), "call") == ["now"]


@family
def test_a_strict_function_binds_its_arguments_and_not_the_words(
    words: Vocabulary, name: str
) -> None:
    """A call that fits goes behind words and may be left out; one that does not fit, may not."""
    strict = Offer([{**WEATHER, "strict": True}, TIME])
    call = walk(opened(words, name, Offer([TIME], forced=True, parallel=False)), 0)
    begun = call[: call.rindex("now")] + "get_weather" + call[call.rindex("now") + 3 :]
    opening, fits, unfit = "{", '{"city": "x', ['{"city": 3', '{"days": 3}']
    if name == "qwen3-coder":
        opening, fits = "</f", "<parameter=city>\n3"
        unfit = ["<parameter=town>", "<parameter=days>\n3", "</function>"]
    begun = begun[: begun.index(opening, begun.rindex("get_weather"))]
    hello = "<|channel|>final<|message|>Hi." if name == "gpt-oss" else "Hi."

    def allows(text: str) -> bool:
        constraint = opened(words, name, strict)
        for token in tokens(text):
            if not constraint.mask([])[token]:
                return False
            constraint.commit([token])
        return True

    assert allows(hello)
    assert allows(call)
    assert allows(begun + fits)
    assert not any(allows(begun + each) for each in unfit)


def tokens(text: str) -> list[int]:
    """Control tokens where their text stands, bytes elsewhere."""
    found = []
    while text:
        marker = next((one for one in CONTROL if text.startswith(one)), None)
        found += [256 + CONTROL.index(marker)] if marker else [*text[0].encode()]
        text = text[len(marker or text[0]) :]
    return found
