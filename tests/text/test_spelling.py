"""Tokens for a forced text write that text, whatever a tokenizer puts before it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st

from localspec.engine.llama.model import Model
from localspec.text import grammar
from localspec.text.constraint import Vocabulary
from localspec.text.spelling import spelled_by

PIECES = [bytes([byte]) for byte in range(256)] + [b" a", b"ab", b"\n"]


def with_blank(text: str) -> list[int]:
    """Tokens of a tokenizer that puts a blank before any text."""
    return [*(" " + text).encode()]


@given(text=st.text(max_size=20), blank=st.booleans())
def test_the_tokens_write_the_text_and_nothing_more(text: str, blank: bool) -> None:
    """A blank before the text is in no token; the text itself may begin with blanks."""
    tokenize = with_blank if blank else lambda said: [*said.encode()]
    found = spelled_by(text, tokenize, PIECES.__getitem__)
    assert found is not None
    assert b"".join(PIECES[token] for token in found) == text.encode()


def test_a_text_that_no_token_begins_has_none() -> None:
    """A tokenizer that joins what comes before with the text's own beginning spells nothing."""
    assert spelled_by("b", lambda _: [257], PIECES.__getitem__) is None


@pytest.fixture(scope="module", params=[False, True], ids=["bytes", "sentencepiece"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A tiny model; one kind's tokenizer writes a blank before a text."""
    folder = tmp_path_factory.mktemp("spelling")
    return Model.load(tiny.build(folder / "tiny.gguf", sentencepiece=request.param))


@pytest.mark.parametrize("sentencepiece", [False, True])
def test_all_pieces_are_those_of_each_token(tmp_path: Path, *, sentencepiece: bool) -> None:
    """Tokens that write nothing, and one of more bytes than are made room for, among them."""
    long = f"<{'x' * 300}>"
    file = tiny.build(tmp_path / "tiny.gguf", specials=(long,), sentencepiece=sentencepiece)
    model = Model.load(file)
    pieces = model.pieces()
    assert pieces == [model.piece(token) for token in range(model.n_vocab)]
    assert {b"", long.encode()} < set(pieces)
    model.close()


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        ({"type": "gbnf", "grammar": 'root ::= "a"{5,5}'}, "aaaaa"),
        ({"type": "gbnf", "grammar": 'root ::= " the end"'}, " the end"),
        ({"type": "choice", "choices": ["hello there"]}, "hello there"),
        ({"type": "regex", "pattern": "[(]42[)]"}, "(42)"),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_a_grammar_of_one_text_allows_that_text_alone(
    model: Model, rule: dict[str, object], wanted: str, seed: int
) -> None:
    """By any choice of allowed tokens, and by those that are forced."""
    words = Vocabulary(model.pieces(), model.eog, model.plain_tokens)
    source = grammar.source(rule)
    assert source is not None
    constraint = words.constraint(grammar.compiled(source).grammar)
    random, said = np.random.default_rng(seed), b""
    while True:
        forced = list(constraint.forced([])) if random.random() < 0.5 else []
        if not forced:
            mask = constraint.mask([])
            assert mask is not None
            forced = [int(random.choice(np.flatnonzero(mask)))]
        if forced[0] in model.eog:
            break
        constraint.commit(forced)
        said += b"".join(map(model.piece, forced))
        assert wanted.encode().startswith(said)
    assert said.decode() == wanted
