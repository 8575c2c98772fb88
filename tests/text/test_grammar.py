"""Laws of constrained answers: what the grammar allows is JSON of the schema, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from localspec.errors import RequestError
from localspec.text.grammar import MAX_SCHEMA_BYTES, Grammars, JsonConstraint

PIECES = [*(bytes([byte]) for byte in range(256)), b'{"', b'":', b"true", b"", b"", b""]
EOG = {259, 261}
SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "n": {"type": "integer", "maximum": 99}},
    "required": ["ok", "n"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def grammars() -> Grammars:
    """Grammars over bytes, three longer tokens and three special ones."""
    return Grammars(len(PIECES), PIECES.__getitem__, EOG)


def strict(schema: Any) -> dict[str, Any]:
    """OpenAI's response_format for a schema."""
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}


def opened(grammars: Grammars, response_format: dict[str, Any]) -> JsonConstraint:
    """The constraint, which must exist."""
    constraint = grammars.constraint(response_format)
    assert constraint is not None
    return constraint


def walk(constraint: JsonConstraint, seed: int, limit: int = 2000) -> str:
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
def test_a_random_walk_writes_json_of_the_schema(grammars: Grammars, seed: int) -> None:
    """Whatever is drawn from the masks, the finished text parses and fits the schema."""
    answer = json.loads(walk(opened(grammars, strict(SCHEMA)), seed))
    assert set(answer) == {"ok", "n"}
    assert isinstance(answer["ok"], bool)
    assert answer["n"] <= 99


def test_plain_text_needs_no_constraint(grammars: Grammars) -> None:
    """No response_format, and the type "text", restrict nothing."""
    assert grammars.constraint(None) is None
    assert grammars.constraint({"type": "text"}) is None


def test_a_json_object_begins_with_a_brace(grammars: Grammars) -> None:
    """`json_object` allows an opening brace first, alone or with its quotation mark."""
    mask = opened(grammars, {"type": "json_object"}).mask([])
    assert mask.shape == (len(PIECES),)
    assert mask.dtype == np.bool_
    assert {PIECES[token].strip() for token in np.flatnonzero(mask)} == {b"{", b'{"'}


def test_a_mask_depends_on_the_path_alone(grammars: Grammars) -> None:
    """Asking for branches in any order, legal or not, gives what a fresh constraint gives."""
    paths = [b'{"ok', b'{"ok": t', b"", b'{"n', b'{"ok": x', b'{"ok": true, "n": 9', b'{"o']
    shared = opened(grammars, strict(SCHEMA))
    shared.commit(list(b" "))
    for path in [*paths, *reversed(paths)]:
        fresh = opened(grammars, strict(SCHEMA))
        fresh.commit(list(b" "))
        assert np.array_equal(shared.mask(list(path)), fresh.mask(list(path)))


def test_asking_does_not_commit(grammars: Grammars) -> None:
    """After asking far ahead, the committed text continues as if nobody had asked."""
    constraint = opened(grammars, strict(SCHEMA))
    before = constraint.mask([])
    constraint.mask(list(b'{"ok": true, "n": 9}'))
    assert np.array_equal(constraint.mask([]), before)
    constraint.mask(list(b'{"'))
    constraint.commit(list(b'{"ok": '))
    pieces = {PIECES[token].strip() for token in np.flatnonzero(constraint.mask([]))}
    assert pieces == {b"", b"t", b"f", b"true"}


def test_a_finished_answer_may_only_end(grammars: Grammars) -> None:
    """After the closing brace nothing but an end-of-generation token is allowed."""
    constraint = opened(grammars, strict(SCHEMA))
    constraint.commit(list(b'{"ok": true, "n": 1}'))
    assert set(np.flatnonzero(constraint.mask([]))) == EOG


def test_after_a_forbidden_path_only_the_end_is_allowed(grammars: Grammars) -> None:
    """A law is never empty, not even below a node that the grammar forbids."""
    assert set(np.flatnonzero(opened(grammars, strict(SCHEMA)).mask(list(b"nonsense")))) == EOG


def test_blanks_do_not_go_on_for_ever(grammars: Grammars) -> None:
    """A model that only wants to write blanks has to go on after a while."""
    constraint = opened(grammars, {"type": "json_object"})
    for _ in range(100):
        if not constraint.mask([])[ord(" ")]:
            break
        constraint.commit(list(b" "))
    else:
        pytest.fail("blanks were allowed a hundred times")


def nested(depth: int) -> dict[str, Any]:
    """A schema `depth` levels deep."""
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


@pytest.mark.parametrize(
    ("response_format", "said"),
    [
        ({"type": "xml"}, "'xml' is not known"),
        ({}, "is not known"),
        ({"type": "json_schema"}, "schema is missing"),
        (strict([1]), "schema is missing"),
        (strict({"type": "nonsense"}), "Invalid type"),
        (strict({"$ref": "#/$defs/gone"}), "does not exist"),
        (strict({"$ref": "https://example.org/schema"}), "not fetch"),
        (strict({"type": "string", "pattern": "(a|b"}), "unclosed group"),
        (strict({"enum": []}), "Unsatisfiable"),
        (strict({"enum": [float("nan")]}), "not JSON"),
        (strict(nested(40)), ""),
        (strict(nested(70)), "nested more than"),
        (strict(nested(100_000)), "nested more than"),
        (strict({"title": "x" * MAX_SCHEMA_BYTES}), "bytes"),
        (
            strict({"allOf": [{"anyOf": [{"properties": {f"{i}{j}": {}}} for j in range(6)]}
                              for i in range(8)]}),
            "too large",
        ),
    ],
)  # fmt: skip
def test_a_schema_that_cannot_be_served_is_a_request_error(
    grammars: Grammars, response_format: dict[str, Any], said: str
) -> None:
    """Unknown types, broken, unbounded and exploding schemas are refused with the reason."""
    if not said:
        assert grammars.constraint(response_format) is not None
        return
    with pytest.raises(RequestError, match=said) as caught:
        grammars.constraint(response_format)
    assert caught.value.param == "response_format"


def test_a_model_without_an_end_token_cannot_be_constrained() -> None:
    """Without an end-of-generation token a finished answer could not end, so it is refused."""
    with pytest.raises(RequestError, match="no token that ends"):
        Grammars(len(PIECES), PIECES.__getitem__, set()).constraint({"type": "json_object"})
