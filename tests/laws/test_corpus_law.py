"""Any corpus, right or wrong, changes no token. Real llama.cpp, tiny models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from laws.engine_harness import PROMPTS, SLOTS, Harness, finish, output
from laws.policies import FixedDepth
from laws.test_lossless import CHAINS

from localspec import drafters
from localspec.corpus import contents, index
from localspec.corpus.index import SIZES, Index
from localspec.types import Drafter, SourceCount, Token

DEPTHS = (1, 3, 8, 15)


@dataclass
class Shelf:
    """An index, or none yet."""

    index: Index | None


def indexed(texts: Sequence[Sequence[Token]]) -> Index:
    """An index of these texts."""
    tokens = index.joined([np.asarray(text, np.uint32) for text in texts])
    tables = [part for part in index.keys(tokens) if len(part)]
    tables += [np.zeros(0, np.uint64)] * (len(SIZES) - len(tables))
    held = contents.Contents("", len(tokens), (0, 0, 0), (), ())
    return Index(held, tokens, dict(zip(SIZES, tables, strict=True)))


def _corpora(answers: Sequence[Sequence[Token]], n_vocab: int) -> dict[str, Shelf]:
    """Files that say what is answered, nearly that, something else, and none."""
    dice = np.random.default_rng(2)
    edited = [
        [*answer[:11], *dice.integers(n_vocab, size=2).tolist(), *answer[14:26], *answer[29:]]
        for answer in answers
    ]
    several = [answer[start:] for answer in [*answers, *edited] for start in (0, 4, 9)]
    return {
        "right": Shelf(indexed(answers)),
        "edited": Shelf(indexed(edited)),
        "several": Shelf(indexed(several)),
        "wrong": Shelf(indexed([dice.integers(n_vocab, size=4000).tolist()])),
        "none": Shelf(None),
    }


def _drafters(harness: Harness, shelf: Shelf, *others: str) -> dict[str, Drafter]:
    made = drafters.load(
        "corpus", corpus=shelf, piece=harness.target.piece, n_vocab=harness.target.n_vocab
    )
    return {"corpus": made, **harness.drafters(*others)}


@pytest.mark.parametrize("chain", CHAINS)
def test_any_corpus_gives_the_tokens_of_plain_decoding(harness: Harness, chain: str) -> None:
    """For 1 to 4 sessions and each depth; a right one is accepted more than an edited one."""
    requests = [harness.request(prompt, CHAINS[chain]) for prompt in PROMPTS]
    plain = [
        output(finish(harness.engine({}, FixedDepth(0)), [request])[0]) for request in requests
    ]
    accepted: dict[str, int] = {}
    for name, shelf in _corpora(plain, harness.target.n_vocab).items():
        accepted[name] = 0
        for count in range(1, SLOTS + 1):
            for depth in DEPTHS:
                engine = harness.engine(_drafters(harness, shelf), FixedDepth(depth))
                sessions = finish(engine, requests[:count])
                assert [output(session) for session in sessions] == plain[:count]
                for session in sessions:
                    source = session.meter.sources.get("corpus", SourceCount())
                    accepted[name] += source.accepted
    assert accepted["right"] > accepted["edited"] > accepted["none"] == 0
    assert accepted["several"] > accepted["none"]


@pytest.mark.parametrize("chain", ["greedy", "seeded"])
def test_a_corpus_beside_other_sources_changes_nothing(harness: Harness, chain: str) -> None:
    """Drafts that another source continues, and guesses for a draft model to read along."""
    request = harness.request(PROMPTS[1], CHAINS[chain])
    (plain,) = finish(harness.engine({}, FixedDepth(0)), [request])
    for name, shelf in _corpora([output(plain)], harness.target.n_vocab).items():
        for joins in (True, False):
            sources = _drafters(harness, shelf, "lookup", "model")
            engine = harness.engine(sources, FixedDepth(6, "model", joins=joins))
            (session,) = finish(engine, [request])
            assert output(session) == output(plain), name


def test_an_index_that_changes_while_an_answer_is_written_changes_nothing(
    harness: Harness,
) -> None:
    """Between any two rounds, to another one and back, or to none."""
    request = harness.request(PROMPTS[0], CHAINS["seeded"])
    (plain,) = finish(harness.engine({}, FixedDepth(0)), [request])
    corpora = [*_corpora([output(plain)], harness.target.n_vocab).values()]
    shelf = Shelf(None)
    engine = harness.engine(_drafters(harness, shelf), FixedDepth(5))
    session = engine.admit(request)
    for turn in range(1000):
        shelf.index = corpora[turn % len(corpora)].index
        if any(each.finish for each in engine.step()):
            break
    assert output(session) == output(plain)
    assert session.meter.accepted > 0
