"""The laws on the real pair: the default target and the INT4 draft that LocalSpec built for it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from laws.engine_harness import Harness, finish, opened, output
from laws.policies import FixedDepth

from localspec.catalog.registry import Resolved
from localspec.config import Placement
from localspec.control.acceptance import Acceptance
from localspec.control.controller import Controller
from localspec.control.costs import Costs
from localspec.control.round import Policy
from localspec.engine.llama.context import Context
from localspec.engine.llama.kernels import UNLISTED_LOGIT
from localspec.engine.llama.library import ours
from localspec.engine.llama.shortlist import RUN, Shortlist
from localspec.types import Floats, Row, SamplingParams, Token

pytestmark = pytest.mark.real

EDIT = """Rename the variable x to total and give the whole function:

def price(items):
    x = 0
    for item in items:
        x += item.price * item.count
    if x > 100:
        x = x - x * 0.1
    return x
"""
PROMPTS = {
    "edit": EDIT,
    "code": "Write a Python function that merges two sorted lists.",
    "chat": "Tell me a story about a fox in winter.",
}
CHAINS = {
    "greedy": SamplingParams(temperature=0.0),
    "seeded": SamplingParams(temperature=0.8, seed=42),
}


NEAR, FAR = 320, 1024
"""Contexts: up to the first block of attention, and up to where kernels may change."""


@pytest.fixture(
    scope="module",
    params=[pytest.param(NEAR, id="near"), pytest.param(FAR, id="far", marks=pytest.mark.slow)],
)
def pair(real_pair: Resolved, request: pytest.FixtureRequest) -> Iterator[Harness]:
    """The real pair in the strict shape, two slots."""
    assert real_pair.draft_path is not None
    files = (real_pair.target_path, real_pair.draft_path)
    with opened(*files, Placement(), slots=2, context=request.param) as found:
        yield found


def _prompt(pair: Harness, text: str) -> list[Token]:
    chat = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
    return pair.target.tokenize(chat, add_special=True, parse_special=True)


def test_a_class_of_row_counts_agrees_bit_for_bit(pair: Harness) -> None:
    """Strict exactness is available on this machine's kernels, with room for two sessions."""
    assert pair.shape.bitwise, pair.shape.detail
    assert 2 * pair.shape.multiple <= pair.shape.max_rows


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("kind", PROMPTS)
def test_the_text_is_the_same_with_and_without_speculation(
    pair: Harness, kind: str, chain: str
) -> None:
    """Both drafters at a fixed depth, and the controller: the tokens of plain decoding."""
    tokens = 24 if pair.memory.context == NEAR else 96
    prompt = _prompt(pair, PROMPTS[kind])
    request = pair.request(prompt, CHAINS[chain], tokens=tokens, ignore_eos=False)
    (plain,) = finish(pair.engine({}, FixedDepth(0)), [request])
    policies: list[Policy] = [
        FixedDepth(6, "model"),
        Controller(Costs(), Acceptance(), multiple=pair.shape.multiple),
    ]
    for policy in policies:
        engine = pair.engine(pair.drafters("lookup", "feature_head", "model"), policy)

        (session,) = finish(engine, [request])

        assert output(session) == output(plain)


def test_the_shortlisted_draft_head_has_the_bits_of_the_whole(pair: Harness) -> None:
    """Logits of listed tokens are unchanged in forwards of any rows; others have none."""
    context, prompt = pair.draft_memory, _prompt(pair, EDIT)
    words = Shortlist.of(pair.draft.n_vocab, pair.draft.special_tokens())
    assert words is not None
    rows = [Row(token, place, 0, wants_logits=True) for place, token in enumerate(prompt[:20])]

    def decoded() -> Floats:
        context.truncate(0, 0)
        parts = [context.decode(part).logits.copy() for part in (rows[:1], rows[1:4], rows[4:])]
        return np.concatenate(parts)

    every = decoded()
    if not context.narrow(words):
        assert not ours.kernels
        return
    decoded()  # from here on it has read them all
    some = decoded()
    listed = np.isin(np.arange(pair.draft.n_vocab) // RUN, words.runs)
    assert {*prompt[:20]} <= {*np.flatnonzero(listed).tolist()}
    assert (some[:, listed] == every[:, listed]).all()
    assert (some[:, ~listed] == UNLISTED_LOGIT).all()
    assert 0.25 < listed.mean() < 0.3
    context.truncate(0, 0)


def test_an_edit_accepts_tokens_from_both_sources(pair: Harness) -> None:
    """Where code is copied with changes, lookup and the draft model both have tokens accepted."""
    request = pair.request(_prompt(pair, EDIT), CHAINS["greedy"], tokens=64)
    engine = pair.engine(pair.drafters("lookup", "model"), FixedDepth(6, "model"))

    (session,) = finish(engine, [request])

    accepted = {name: count.accepted for name, count in session.meter.sources.items()}
    assert accepted["lookup"] > 0
    assert accepted["model"] > 0
    assert session.meter.accepted < session.meter.drafted


@pytest.mark.parametrize("which", ["memory", "draft_memory"])
def test_a_prefix_that_comes_back_is_the_one_that_was_read(pair: Harness, which: str) -> None:
    """Target and draft: a copy in another slot, cut anywhere and read on, gives the same bits."""
    memory: Context = getattr(pair, which)
    tokens, rows = _prompt(pair, EDIT), pair.shape.multiple

    def read(slot: int, start: int) -> Floats:
        ends = range(start, len(tokens) - rows + 1, rows)
        parts = [
            memory.decode(
                [Row(tokens[at + n], at + n, slot, True) for n in range(rows)]
            ).logits.copy()
            for at in ends
        ]
        return np.concatenate(parts)

    for slot in (0, 1):
        memory.truncate(slot, 0)
    whole = read(0, 0)
    stored = memory.stored(0)
    for length in (len(whole), 4 * rows, 0):
        memory.truncate(1, 0)
        memory.put_back(1, stored)
        assert memory.truncate(1, length) == length
        if length < len(whole):
            assert np.array_equal(read(1, length), whole[length:])
    for slot in (0, 1):
        memory.truncate(slot, 0)
