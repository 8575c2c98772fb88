"""Laws of constrained answers: the masks allow exactly what the grammar does."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import llguidance
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from localspec.errors import GrammarError, RequestError
from localspec.text import grammar
from localspec.text.constraint import GrammarConstraint, Vocabulary

PIECES = [*(bytes([byte]) for byte in range(256)), b'{"', b'":', b"true", b"", b"", b""]
EOG = {259, 261}
SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "n": {"type": "integer", "maximum": 99}},
    "required": ["ok", "n"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    """Bytes, three longer tokens and three special ones."""
    return Vocabulary(PIECES, EOG)


def test_a_vocabulary_is_prepared_once_by_whoever_needs_it_first() -> None:
    """Ahead, by the first grammar, or by several at once: the masks are the same."""
    source = grammar.source({"type": "json_object", "schema": SCHEMA})
    assert source is not None
    compiled = grammar.compiled(source).grammar
    ahead, late, shared = (Vocabulary(PIECES, EOG) for _ in range(3))
    assert (ahead.prepare(), ahead.prepare()) == (True, False)
    with ThreadPoolExecutor(4) as threads:
        found = [*threads.map(shared.constraint, [compiled] * 8)]
    masks = [each.mask([]) for each in (*found, ahead.constraint(compiled))]
    assert all(np.array_equal(mask, late.constraint(compiled).mask([])) for mask in masks)
    assert not any(each.prepare() for each in (ahead, late, shared))


def opened(vocabulary: Vocabulary, response_format: dict[str, Any]) -> GrammarConstraint:
    """The constraint of this response_format."""
    source = grammar.source(response_format)
    assert source is not None
    return vocabulary.constraint(grammar.compiled(source).grammar)


def strict(schema: Any) -> dict[str, Any]:
    """OpenAI's response_format for a schema."""
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}


def walk(constraint: GrammarConstraint, seed: int, limit: int = 2000) -> str:
    """A random walk along allowed tokens until the grammar ends the text."""
    random, out = np.random.default_rng(seed), b""
    for _ in range(limit):
        allowed = np.flatnonzero(constraint.mask([]))
        token = int(random.choice(allowed))
        constraint.commit([token])
        if token in EOG:
            break
        out += PIECES[token]
    else:
        pytest.fail("the walk did not end")
    return out.decode()


@pytest.mark.parametrize("seed", range(20))
def test_a_random_walk_writes_json_of_the_schema(vocabulary: Vocabulary, seed: int) -> None:
    """The finished text parses and fits the schema, whatever is drawn from the masks."""
    answer = json.loads(walk(opened(vocabulary, strict(SCHEMA)), seed))
    assert set(answer) == {"ok", "n"}
    assert isinstance(answer["ok"], bool)
    assert answer["n"] <= 99


def test_a_json_object_begins_with_a_brace(vocabulary: Vocabulary) -> None:
    """`json_object` allows an opening brace first, alone or with its quotation mark."""
    mask = opened(vocabulary, {"type": "json_object"}).mask([])
    assert mask.shape == (len(PIECES),)
    assert mask.dtype == np.bool_
    assert {PIECES[token].strip() for token in np.flatnonzero(mask)} == {b"{", b'{"'}


def test_a_mask_depends_on_the_path_alone(vocabulary: Vocabulary) -> None:
    """Requests for branches in any order, legal or not, give a fresh constraint's masks."""
    paths = [b'{"ok', b'{"ok": t', b"", b'{"n', b'{"ok": x', b'{"ok": true, "n": 9', b'{"o']
    shared = opened(vocabulary, strict(SCHEMA))
    shared.commit(list(b" "))
    for path in [*paths, *reversed(paths)]:
        fresh = opened(vocabulary, strict(SCHEMA))
        fresh.commit(list(b" "))
        assert np.array_equal(shared.mask(list(path)), fresh.mask(list(path)))


def test_asking_does_not_commit(vocabulary: Vocabulary) -> None:
    """Masks far ahead leave the committed text as it was."""
    constraint = opened(vocabulary, strict(SCHEMA))
    before = constraint.mask([])
    constraint.mask(list(b'{"ok": true, "n": 9}'))
    assert np.array_equal(constraint.mask([]), before)
    constraint.mask(list(b'{"'))
    constraint.commit(list(b'{"ok":'))
    pieces = {PIECES[token].strip() for token in np.flatnonzero(constraint.mask([]))}
    assert pieces == {b"", b"t", b"f", b"true"}


def test_a_finished_answer_may_only_end(vocabulary: Vocabulary) -> None:
    """After the closing brace nothing but an end-of-generation token is allowed."""
    constraint = opened(vocabulary, strict(SCHEMA))
    constraint.commit(list(b'{"ok": true, "n": 1}'))
    assert set(np.flatnonzero(constraint.mask([]))) == EOG


def test_after_a_forbidden_path_only_the_end_is_allowed(vocabulary: Vocabulary) -> None:
    """A mask is never empty, not even after a forbidden path."""
    assert set(np.flatnonzero(opened(vocabulary, strict(SCHEMA)).mask(list(b"nonsense")))) == EOG


@pytest.mark.parametrize("wishes", [b" \n", b"\n \t", b"\r\n", b"\t "])
def test_who_would_rather_write_blanks_comes_to_an_end(
    vocabulary: Vocabulary, wishes: bytes
) -> None:
    """There is at most an indentation between two parts, and the answer still fits its schema."""
    constraint = opened(vocabulary, strict(SCHEMA))
    out = b""
    while EOG.isdisjoint(allowed := np.flatnonzero(constraint.mask([]))):
        token = next((wish for wish in wishes if wish in allowed), int(allowed[-1]))
        constraint.commit([token])
        out += PIECES[token]
        assert len(out) < 200
    assert set(json.loads(out)) == {"ok", "n"}


@pytest.mark.parametrize(
    ("response_format", "answers"),
    [
        (
            {"type": "regex", "pattern": "a{2}|[0-9]x"},
            {"aa", *(f"{digit}x" for digit in range(10))},
        ),
        ({"type": "choice", "choices": ['a"b\n', "é", "c\\d"]}, {'a"b\n', "é", "c\\d"}),
        ({"type": "gbnf", "grammar": 'root ::= "yes" | "no" [0-1]'}, {"yes", "no0", "no1"}),
        ({"type": "lark", "grammar": 'start: "a" ("b" | "c")'}, {"ab", "ac"}),
    ],
)
def test_other_grammars_are_kept_as_well(
    vocabulary: Vocabulary, response_format: dict[str, Any], answers: set[str]
) -> None:
    """Patterns, choices and both kinds of grammars allow exactly what they describe."""
    found = {walk(opened(vocabulary, response_format), seed) for seed in range(60)}
    assert found == answers


@example('\x7f\t"\\/é\U0001f600')
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6))
@settings(max_examples=20)
def test_what_was_typed_stands_before_what_a_grammar_describes(
    vocabulary: Vocabulary, typed: str
) -> None:
    """Any half-typed text comes first, byte by byte; then the grammar begins."""
    for wanted in ({"type": "choice", "choices": ["ab", "c"]}, strict(SCHEMA)):
        source = grammar.source(wanted)
        assert source is not None
        compiled = grammar.compiled(source).grammar
        alone = vocabulary.constraint(compiled)
        behind = vocabulary.constraint(grammar.behind(typed, compiled))
        for byte in typed.encode():
            assert behind.mask([])[byte]
            behind.commit([byte])
        assert np.array_equal(behind.mask([]), alone.mask([]))


def ended(constraint: GrammarConstraint, text: bytes) -> None:
    """Let an answer end behind this text, its second half not committed yet."""
    half = len(text) // 2
    constraint.commit(list(text[:half]))
    constraint.check_end(list(text[half:]))


def test_an_answer_that_is_complete_may_end(vocabulary: Vocabulary) -> None:
    """Earlier requests for masks do not matter."""
    constraint = opened(vocabulary, strict(SCHEMA))
    constraint.mask(list(b'{"ok": x'))
    constraint.mask(list(b'{"ok": true, "n": 9'))
    ended(constraint, b'{"ok": true, "n": 1}')


@pytest.mark.parametrize("text", [b"", b'{"ok": true', b'{"ok": true, "n": 1}}', b"nonsense"])
def test_an_end_that_the_grammar_does_not_know_is_an_error(
    vocabulary: Vocabulary, text: bytes
) -> None:
    """An incomplete answer is an error."""
    with pytest.raises(GrammarError, match="gave up"):
        ended(opened(vocabulary, strict(SCHEMA)), text)


def test_a_grammar_that_gives_up_is_an_error(vocabulary: Vocabulary) -> None:
    """Where the automaton exceeds its limits, only the end is allowed, which is an error."""
    pattern = "^(.*a.{300}b.*|.*c.{300}d.*)*$"
    constraint = opened(vocabulary, {"type": "regex", "pattern": pattern})
    random, text = np.random.default_rng(0), list[int]()
    while constraint.mask([]).sum() > len(EOG):
        text.append(int(random.choice(list(b"abcd"))))
        constraint.commit(text[-1:])
    assert set(np.flatnonzero(constraint.mask([]))) == EOG
    with pytest.raises(GrammarError, match="too many"):
        constraint.check_end([])


def test_a_path_that_was_not_taken_leaves_nothing_behind(vocabulary: Vocabulary) -> None:
    """A draft may exceed the grammar's limits; the answer goes on unaffected."""
    pattern = "^(x*|(.*a.{300}b.*|.*c.{300}d.*)*)$"
    constraint = opened(vocabulary, {"type": "regex", "pattern": pattern})
    constraint.commit(list(b"xx"))
    before = constraint.mask([])
    random = np.random.default_rng(0)
    ahead = [int(byte) for byte in random.choice(list(b"abcd"), 2000)]
    assert set(np.flatnonzero(constraint.mask(ahead))) == EOG
    assert np.array_equal(constraint.mask([]), before)
    constraint.commit(list(b"x"))
    constraint.check_end([])


def test_a_path_that_exceeds_the_limits_costs_no_other_request(vocabulary: Vocabulary) -> None:
    """Of the same grammar, whether it is under way or begins later."""
    wanted = {"type": "regex", "pattern": "^(x*|(.*a.{300}b.*|.*c.{300}d.*)*)$"}
    greedy, other = opened(vocabulary, wanted), opened(vocabulary, wanted)
    other.commit(list(b"xx"))
    before = other.mask([])
    random = np.random.default_rng(0)
    ahead = [int(byte) for byte in random.choice(list(b"abcd"), 2000)]
    assert set(np.flatnonzero(greedy.mask(ahead))) == EOG
    assert np.array_equal(other.mask([]), before)
    other.commit(list(b"x"))
    other.check_end([])
    later = opened(vocabulary, wanted)
    later.commit(list(b"xx"))
    assert np.array_equal(later.mask([]), before)


def test_a_model_without_an_end_token_cannot_be_constrained() -> None:
    """Without an end-of-generation token a finished answer could not end, so it is refused."""
    with pytest.raises(RequestError, match="no token that ends"):
        opened(Vocabulary(PIECES, set()), {"type": "json_object"})


def test_a_grammar_is_compiled_once_for_all_requests_that_have_it(
    vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its constraints know nothing of each other, and a few grammars are kept."""
    opens = llguidance.LLMatcher
    compiled: list[str] = []

    def counted(tokenizer: Any, text: str, **options: Any) -> llguidance.LLMatcher:
        compiled.append(text)
        return opens(tokenizer, text, **options)

    monkeypatch.setattr(llguidance, "LLMatcher", counted)
    first = vocabulary.constraint(said("once", "only"))
    before = first.mask([])
    first.commit([*b"once"])
    second = vocabulary.constraint(said("once", "only"))
    assert compiled == [said("once", "only")]
    assert (second.mask([]) == before).all()
    second.commit([*b"on"])
    first.check_end([])
    assert {*np.flatnonzero(second.mask([]))} == {*b"cl"}
    for number in range(30):
        vocabulary.constraint(said(f"other {number}"))
    vocabulary.constraint(said("once", "only"))
    assert compiled.count(said("once", "only")) == 2
    vocabulary.constraint(said("other 29"))
    assert len(compiled) == 32


def said(*texts: str) -> str:
    """The grammar of these answers."""
    lark = f"start: {' | '.join(map(json.dumps, texts))}"
    return llguidance.grammar_from("lark", lark)
