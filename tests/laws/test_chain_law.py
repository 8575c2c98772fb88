"""Each step of the sampler chain is llama.cpp's of that name, by the law that it leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import llama_cpp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from localspec.chain import SamplingParams
from localspec.engine import chain
from localspec.engine.chain import Candidates, ChainInputs
from localspec.engine.sampling import Purpose, Sampler
from localspec.engine.verify import Frontier, coupled
from localspec.ranges import SAMPLERS
from localspec.types import Draft, Floats, Probs, Signal

VOCABULARY = 64
Native = Callable[[], Any]

# Of eighths no sums lie on the edge of a cut by rounding alone, and few logits are the same.
LOGITS = arrays(
    np.float32,
    st.integers(2, VOCABULARY),
    elements=st.integers(-80, 80).map(lambda eighths: eighths / 8),
    unique=True,
)
CUTS = st.sampled_from([0.1037, 0.5071, 0.9041, 0.9973])


def native(
    make: Native, logits: Floats, history: Sequence[int] = ()
) -> tuple[dict[int, float], int | None]:
    """llama.cpp's result for a row: probabilities by token, and the token it chose, if any."""
    data = (llama_cpp.llama_token_data * logits.size)(
        *((token, float(logit), 0.0) for token, logit in enumerate(logits))
    )
    row = llama_cpp.llama_token_data_array(data=data, size=logits.size, selected=-1, sorted=False)
    sampler = make()
    for token in history:
        llama_cpp.llama_sampler_accept(sampler, token)
    llama_cpp.llama_sampler_apply(sampler, llama_cpp.ctypes.byref(row))
    left = {row.data[place].id: row.data[place].logit for place in range(row.size)}
    chosen = row.data[row.selected].id if row.selected >= 0 else None
    llama_cpp.llama_sampler_free(sampler)
    best = max(left.values())
    mass = {token: float(np.exp(logit - best)) for token, logit in left.items()}
    whole = sum(mass.values())
    return {token: one / whole for token, one in mass.items() if one > 0}, chosen


def ours(params: SamplingParams, logits: Floats, history: Sequence[int] = (), **more: Any) -> Probs:
    """Our sampler chain's result for the same row."""
    moment = ChainInputs(history, 0.5, more.pop("aim", 10.0), logits.size, more.pop("breakers", {}))
    return chain.law(params, Candidates.of(logits), moment)


def same(law: Probs, expected: dict[int, float]) -> None:
    """The same tokens, as likely."""
    got = dict(zip(law.tokens.tolist(), np.exp(law.logp).tolist(), strict=True))
    got = {token: mass for token, mass in got.items() if mass > 1e-7}
    assert set(got) == {token for token, mass in expected.items() if mass > 1e-7}
    assert all(np.isclose(mass, expected[token], rtol=1e-3) for token, mass in got.items())


@given(LOGITS, CUTS, st.integers(0, 5))
def test_typical_p(logits: Floats, p: float, least: int) -> None:
    """With and without a least number of tokens."""
    params = SamplingParams(samplers=("typ_p",), typical_p=p, min_keep=least)
    same(
        ours(params, logits),
        native(lambda: llama_cpp.llama_sampler_init_typical(p, least), logits)[0],
    )


@given(LOGITS, CUTS, st.integers(0, 5))
def test_top_p(logits: Floats, p: float, least: int) -> None:
    """With and without a least number of tokens."""
    params = SamplingParams(samplers=("top_p",), top_p=p, min_keep=least)
    same(
        ours(params, logits),
        native(lambda: llama_cpp.llama_sampler_init_top_p(p, least), logits)[0],
    )


@given(LOGITS, st.sampled_from([0.0117, 0.1049, 0.7013]), st.integers(0, 5))
def test_min_p(logits: Floats, p: float, least: int) -> None:
    """With and without a least number of tokens."""
    params = SamplingParams(samplers=("min_p",), min_p=p, min_keep=least)
    same(
        ours(params, logits),
        native(lambda: llama_cpp.llama_sampler_init_min_p(p, least), logits)[0],
    )


@given(LOGITS, st.integers(0, 70))
def test_top_k(logits: Floats, k: int) -> None:
    """Also more than there are."""
    params = SamplingParams(samplers=("top_k",), top_k=k)
    same(ours(params, logits), native(lambda: llama_cpp.llama_sampler_init_top_k(k), logits)[0])


@given(LOGITS, st.sampled_from([-1.0, 0.0, 0.37, 1.03, 2.9]))
def test_top_n_sigma(logits: Floats, n: float) -> None:
    """Off from 0 down."""
    params = SamplingParams(samplers=("top_n_sigma",), top_n_sigma=n)
    same(
        ours(params, logits), native(lambda: llama_cpp.llama_sampler_init_top_n_sigma(n), logits)[0]
    )


@given(
    LOGITS, st.sampled_from([0.0, 0.5, 1.3]), st.sampled_from([0.0, 0.4, 2.0]),
    st.sampled_from([0.5, 1.0, 2.5]),
)  # fmt: skip
def test_temperature_and_its_range(
    logits: Floats, temperature: float, spread: float, exponent: float
) -> None:
    """Fixed, or by how uncertain the law is."""
    params = SamplingParams(
        samplers=("temperature",), temperature=temperature, dynatemp_range=spread,
        dynatemp_exponent=exponent,
    )  # fmt: skip
    make = lambda: llama_cpp.llama_sampler_init_temp_ext(temperature, spread, exponent)  # noqa: E731
    same(ours(params, logits), native(make, logits)[0])


@given(LOGITS, st.sampled_from([0.0, 0.05, 0.1, 0.3, 0.6]), st.integers(0, 5))
def test_xtc(logits: Floats, threshold: float, least: int) -> None:
    """Always, so that no number is drawn."""
    params = SamplingParams(
        samplers=("xtc",), xtc_probability=1.0, xtc_threshold=threshold, min_keep=least
    )
    make = lambda: llama_cpp.llama_sampler_init_xtc(1.0, threshold, least, 1)  # noqa: E731
    same(ours(params, logits), native(make, logits)[0])


HISTORY = st.lists(st.integers(0, 5), max_size=40)


@given(
    HISTORY, st.integers(0, 4), st.sampled_from([0, 1, 7, 64]), st.sampled_from([1.0, 1.75, 40.0])
)
def test_dry_penalties_equal_llama_cpps(
    history: list[int], allowed: int, window: int, base: float
) -> None:
    """DRY subtracts the same from each token after any text of few words, so that most repeat."""
    logits = np.zeros(8, dtype=np.float32)
    params = SamplingParams(
        samplers=("dry",), dry_multiplier=0.8, dry_base=base, dry_allowed_length=allowed,
        dry_penalty_last_n=window,
    )  # fmt: skip
    make = lambda: llama_cpp.llama_sampler_init_dry(None, 0.8, base, allowed, window, None, 0)  # noqa: E731
    same(ours(params, logits, history), native(make, logits, history)[0])


@given(
    LOGITS, HISTORY, st.sampled_from([1.0, 1.3]), st.sampled_from([0.0, 0.7]),
    st.sampled_from([0.0, -0.4]), st.sampled_from([0, 3, 64]),
)  # fmt: skip
def test_penalties(  # noqa: PLR0917 - as many numbers as it has
    logits: Floats, history: list[int], repeat: float, often: float, present: float, window: int
) -> None:
    """Over the window, by how often."""
    history = [token % logits.size for token in history]
    params = SamplingParams(
        samplers=("penalties",), repetition_penalty=repeat, frequency_penalty=often,
        presence_penalty=present, penalty_last_n=window,
    )  # fmt: skip
    make = lambda: llama_cpp.llama_sampler_init_penalties(  # noqa: E731
        logits.size, window, repeat, often, present
    )
    same(ours(params, logits, history), native(make, logits, history)[0])


@pytest.mark.parametrize("version", [1, 2])
@given(LOGITS, st.sampled_from([0.4, 2.1, 5.0]))
def test_mirostat_begins_as_llama_cpp_does(version: int, logits: Floats, tau: float) -> None:
    """The first token's candidates, where the aim is twice tau."""
    params = SamplingParams(mirostat=version, mirostat_tau=tau, temperature=1.0)

    def make() -> Any:
        if version == 1:
            return llama_cpp.llama_sampler_init_mirostat(logits.size, 7, tau, 0.1, 100)
        return llama_cpp.llama_sampler_init_mirostat_v2(7, tau, 0.1)

    expected, chosen = native(make, logits)
    law = ours(params, logits, aim=2 * tau)
    same(law, expected)
    assert chosen in law.tokens


@given(LOGITS, st.integers(0, 9), st.floats(0.1, 3), st.sampled_from([0.0, 0.0517, 0.4983]), CUTS)
def test_the_shortcut_equals_the_whole_chain(
    logits: Floats, k: int, temperature: float, min_p: float, p: float
) -> None:
    """The shortcut for the usual settings gives the same probabilities as the chain."""
    params = SamplingParams(temperature=temperature, top_k=k, top_p=p, min_p=min_p, seed=3)
    short, whole = Sampler(params), Sampler(_with(params, samplers=SAMPLERS))
    law = short.law(logits, [], [], 5)
    same(
        whole.law(logits, [], [], 5), dict(zip(law.tokens.tolist(), np.exp(law.logp), strict=True))
    )


def _with(params: SamplingParams, **fields: Any) -> SamplingParams:
    return SamplingParams(
        **{name: getattr(params, name) for name in params.__struct_fields__} | fields
    )


EXTRAS = st.sampled_from([
    {"mirostat": 1}, {"mirostat": 2, "mirostat_tau": 2.0}, {"xtc_probability": 0.5},
    {"dry_multiplier": 0.8, "dry_allowed_length": 1}, {"typical_p": 0.5}, {"dynatemp_range": 0.5},
    {"samplers": ("temperature", "xtc"), "xtc_probability": 0.7}, {"top_n_sigma": 1.0},
])  # fmt: skip


@given(
    arrays(np.float32, (12, 16), elements=st.integers(-40, 40).map(lambda eighths: eighths / 8)),
    EXTRAS, st.integers(0, 2**32), st.lists(st.integers(0, 15), max_size=8), st.data(),
)  # fmt: skip
def test_tokens_do_not_depend_on_drafts(
    table: Floats, extra: dict[str, Any], seed: int, guesses: list[int], data: st.DataObject
) -> None:
    """Any drafts, cut anywhere: the text is that of one token after the other."""
    params = SamplingParams(seed=seed, **extra)

    def row(text: Sequence[int]) -> Floats:
        found: Floats = table[sum(text[-2:], len(text)) % len(table)]
        return found

    plain, text = Sampler(params), [0, 1]
    while len(text) < 12:
        back = plain.looks_back
        text.append(plain.pick(row(text), text[-back:] if back else [], [], len(text)))

    drafted, other = Sampler(params), [0, 1]
    while len(other) < 12:
        length = data.draw(st.integers(0, 12 - len(other)))
        right = text[len(other) : len(other) + length]
        wrong = data.draw(st.integers(0, max(length - 1, 0)))
        nodes = [
            (token if place < wrong or not guesses else guesses[place % len(guesses)])
            for place, token in enumerate(right)
        ]
        draft = Draft.chain(nodes, [Signal("x", 0, 0.5)] * len(nodes))
        rows = np.stack([row(other + nodes[:count]) for count in range(len(nodes) + 1)])
        back = drafted.looks_back
        recent = other[-back:] if back else []
        drafted.propose(rows[0], recent, [], len(other))  # what a draft model asks leaves no trace
        verdict = coupled(draft, rows, Frontier(drafted, recent, len(other), ()))
        other += [*(draft.tokens[node] for node in verdict.accepted), verdict.token]
    assert other[:12] == text[:12]
    assert drafted.draw(Probs(np.arange(4, dtype=np.int32), np.zeros(4)), 3, Purpose.TOKEN) < 4
