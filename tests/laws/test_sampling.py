"""Laws of the sampler chain and its noise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from localspec.engine.block_max import BlockMax
from localspec.engine.sampling import Purpose, Sampler, uniforms, unit
from localspec.engine.verify import Frontier, coupled
from localspec.errors import GrammarError, NoNumbers
from localspec.types import Draft, Floats, SamplingParams, Signal

LOGITS = arrays(
    np.float32,
    st.integers(1, 2000),
    elements=st.floats(-30, 30, width=32).map(lambda value: round(value, 1)),
)


@given(LOGITS, st.integers(1, 300))
def test_block_wise_top_k_equals_a_full_sort(logits: Floats, count: int) -> None:
    """Exact, also with ties (to the smaller id) and sizes that are no multiple of a block."""
    expected = np.lexsort((np.arange(logits.size), -logits))[:count]

    assert BlockMax(logits).top_k(count).tolist() == expected.tolist()


@given(LOGITS)
def test_the_peaks_know_the_likeliest_token(logits: Floats) -> None:
    """As numpy's argmax, ties to the smaller id included."""
    assert BlockMax(logits).argmax() == logits.argmax()


@given(LOGITS)
def test_certainty_is_never_below_the_likeliest_tokens_probability(logits: Floats) -> None:
    """It sums fewer terms than a softmax does, and it is a probability."""
    mass = np.exp(logits.astype(np.float64) - float(logits.max()))

    assert mass.max() / mass.sum() - 1e-4 <= BlockMax(logits).certainty() <= 1.0


@given(
    LOGITS,
    st.floats(0.1, 3),
    st.sampled_from([0, 1, 5, 40]),
    st.sampled_from([0.1037, 0.9041, 1.0]),  # no sum of equal shares lies on the edge
    st.sampled_from([0.0, 0.0517, 0.4983]),
)
def test_the_law_equals_the_textbook_chain(
    logits: Floats, temperature: float, k: int, p: float, min_p: float
) -> None:
    """Temperature, top_k, top_p, min_p in this order, against their definitions on full arrays."""
    params = SamplingParams(temperature=temperature, top_k=k, top_p=p, min_p=min_p)
    order = np.lexsort((np.arange(logits.size), -logits))[: k or None]
    scores = logits[order].astype(np.float64) / temperature
    mass = np.exp(scores - scores.max())
    mass /= mass.sum()
    keep = np.concatenate([[True], np.cumsum(mass)[:-1] < p]) if p < 1 else mass >= 0
    keep &= mass >= min_p * mass[0] * (1 - 1e-12)
    expected = np.where(keep, mass, 0) / mass[keep].sum()

    law = Sampler(params).law(logits, [], [], 0)

    got = np.zeros(logits.size)
    got[law.tokens] = np.exp(law.logp)
    assert np.isclose(np.exp(law.logp).sum(), 1)
    assert np.abs(got[order] - expected).max() < 1e-6


@given(st.integers(0, 2**63 - 1), st.integers(0, 10**6), st.sampled_from(list(Purpose)))
def test_noise_is_a_function_of_its_place(seed: int, position: int, purpose: Purpose) -> None:
    """A place has the same number, with any other tokens beside it."""
    many = np.arange(50, dtype=np.int32)

    whole = uniforms(seed, position, purpose, many)

    assert ((whole > 0) & (whole < 1)).all()
    assert whole[17] == uniforms(seed, position, purpose, many[17:18])[0]


@given(st.lists(st.integers(0, 2**64 - 1), min_size=2))
@example([2**64 - 1, 2**64 - 2**11, 2**64 - 2**12, 2**63, 2**12, 2**11, 1, 0])
def test_no_bits_are_the_end_of_the_unit_interval(bits: list[int]) -> None:
    """Neither 0 nor 1 for any of 2^64 numbers, so that no noise is infinite; and order is kept."""
    bits.sort()
    numbers = unit(np.array(bits, dtype=np.uint64))
    assert ((numbers > 0) & (numbers < 1)).all()
    assert (np.diff(numbers) >= 0).all()
    assert np.isfinite(-np.log(-np.log(numbers))).all()
    assert numbers[bits.index(max(bits))] - max(bits) / 2**64 < 2.0**-52


def test_noise_is_uniform_and_uncorrelated() -> None:
    """Over tokens, positions, seeds and purposes: mean, variance and correlations of U(0, 1)."""
    tokens = np.arange(1000, dtype=np.int32)
    table = np.stack(
        [
            uniforms(seed, position, purpose, tokens)
            for seed in range(5)
            for position in range(10)
            for purpose in Purpose
        ]
    )
    bound = 5 / np.sqrt(table.size)

    assert abs(table.mean() - 0.5) < bound * np.sqrt(1 / 12)
    assert abs(table.var() - 1 / 12) < bound * np.sqrt(1 / 180)
    correlations = np.corrcoef(table) - np.eye(len(table))
    assert np.abs(correlations).max() < 6 / np.sqrt(tokens.size)


def test_an_independent_draft_has_new_noise_in_every_round() -> None:
    """A draw for a position behind another root is independent of the one here."""
    sampler = Sampler(SamplingParams(temperature=1.0, top_k=0, min_p=0, seed=3), verify="rejection")
    logits = np.zeros(1000, dtype=np.float32)
    drawn = [[sampler.propose(logits, [], [0] * n, at)[0] for at in range(20, 40)] for n in (0, 9)]
    assert sum(one == other for one, other in zip(*drawn, strict=True)) <= 1


def test_penalties_see_the_draft_path_node_by_node() -> None:
    """A token that was drafted and accepted is penalized for the node after it."""
    params = SamplingParams(temperature=0.0, presence_penalty=2.0)
    logits = np.zeros((3, 10), dtype=np.float32)
    logits[:, 4] = 1.0
    draft = Draft.chain([4, 0], [Signal("d", 0, 0.5)] * 2)

    verdict = coupled(draft, logits, Frontier(Sampler(params), [], 0, ()))

    assert verdict.accepted == (0, 1)
    assert verdict.token == 1


@given(st.lists(st.integers(0, 3), max_size=8), st.data(), st.integers(0, 1000))
def test_a_tree_gives_the_tokens_of_plain_decoding(
    tokens: list[int], data: st.DataObject, seed: int
) -> None:
    """With any proposed tree the walk gives the tokens of step-by-step sampling."""
    parents = [data.draw(st.integers(-1, node - 1)) for node in range(len(tokens))]
    draft = Draft(tuple(tokens), tuple(parents), (Signal("d", 0, 0.5),) * len(tokens), ())

    def row(path: tuple[int, ...]) -> Floats:
        return np.random.default_rng([7, *path]).normal(size=4).astype(np.float32)

    paths: list[tuple[int, ...]] = []
    for token, parent in zip(tokens, parents, strict=True):
        paths.append((*(paths[parent] if parent >= 0 else ()), token))
    logits = np.stack([row(()), *(row(path) for path in paths)])
    sampler = Sampler(SamplingParams(temperature=1.0, seed=seed))

    verdict = coupled(draft, logits, Frontier(sampler, [], 5, ()))

    path: tuple[int, ...] = ()
    for node in verdict.accepted:
        path = (*path, draft.tokens[node])
        assert path == paths[node]
        assert path[-1] == sampler.pick(row(path[:-1]), [], [], 5 + len(path) - 1)
    assert verdict.token == sampler.pick(row(path), [], [], 5 + len(path))
    assert (*path, verdict.token) not in [
        paths[node]
        for node in range(len(tokens))
        if parents[node] == (verdict.accepted or (-1,))[-1]
    ]


CHAINS = [
    SamplingParams(temperature=temperature, top_k=top_k, typical_p=typical_p, seed=1)
    for temperature in (0.0, 1.0)
    for top_k in (0, 40)
    for typical_p in (0.9, 1.0)
]


@pytest.mark.parametrize("params", CHAINS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("place", [0, 63, 299, slice(None)])
def test_logits_that_are_no_numbers_are_an_error(
    params: SamplingParams, bad: float, place: int | slice
) -> None:
    """A model that computes NaN must not be turned into text, whichever logits are it."""
    logits = np.linspace(-3, 3, 300, dtype=np.float32)
    logits[place] = bad
    with pytest.raises(NoNumbers, match="no usable numbers"):
        Sampler(params).pick(logits, [], [], 0)


@pytest.mark.parametrize("params", CHAINS)
def test_a_grammar_that_allows_nothing_is_no_fault_of_the_model(params: SamplingParams) -> None:
    """And a token that the model itself forbids is no damage."""
    logits = np.linspace(-3, 3, 300, dtype=np.float32)
    logits[-1] = -np.inf
    assert Sampler(params).pick(logits, [], [], 0) != logits.size - 1

    class Nothing:
        def mask(self, _path: object) -> object:
            return np.zeros(logits.size, dtype=bool)

    with pytest.raises(GrammarError, match="none of the model's tokens"):
        Sampler(params, Nothing()).pick(logits, [], [], 0)  # type: ignore[arg-type]
