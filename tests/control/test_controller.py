"""The decision of a round, driven by values and event lists; no model, no clock."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from control.known import FLAT, LONG, chain, controller, decide
from control.simulator import GPU, Q4_0, Q4_K, Machine
from hypothesis import given
from hypothesis import strategies as st

from localspec.control.acceptance import Acceptance
from localspec.control.controller import Controller
from localspec.control.costs import Costs
from localspec.control.regret import PlainBaseline, PolicyRegret
from localspec.control.round import Drafted, Neural, Round, VerifiedDraft, View
from localspec.types import Draft, Probs


def lived(
    view: View, draft: Draft, committed: Sequence[int], rows: int = 1, seconds: float = 0.03
) -> Round:
    """A round of so many seconds in which `committed` became text."""
    kept = 0
    while kept < min(len(draft), len(committed)) and draft.tokens[kept] == committed[kept]:
        kept += 1
    judged = (VerifiedDraft(draft, kept),)
    return Round(rows, seconds, 0.0005, (), (view,), judged, (tuple(committed),))


def test_with_nothing_to_draft_it_decodes_plainly() -> None:
    """No source, no sessions: depth 0 is an ordinary answer."""
    control = controller(Q4_K)
    plan, count = decide(control, View(budget=8))
    assert (plan.base, plan.extend, count) == (Draft(), None, 0)
    assert control.plan([]) == []
    assert control.cut([], []) == []


@pytest.mark.parametrize(
    ("priors", "curve", "least", "most"),
    [
        pytest.param([0.3] * 8, Q4_K, 0, 0, id="unlikely nodes cost more than they give"),
        pytest.param([0.99] * 15, Q4_K, 15, 15, id="a sure copy goes to the end of its stair"),
        pytest.param([0.8] * 8, Q4_0, 3, 3, id="a likely one to the end of the first stair"),
        pytest.param([0.75] * 20, GPU, 7, 7, id="not over the edge at nine rows"),
        pytest.param([0.5] * 20, FLAT, 3, 20, id="where rows are free, more of them"),
    ],
)
def test_drafts_are_cut_at_the_edges_of_the_staircase(
    priors: list[float], curve: dict[int, float], least: int, most: int
) -> None:
    """The number of nodes follows from the machine's curve and their odds."""
    view = View(free=(chain(priors),), budget=24, elapsed_seconds=LONG)
    _, count = decide(controller(curve), view)
    assert least <= count <= most


def test_always_verifies_something_where_there_is_something() -> None:
    """Mode "always" forbids depth 0, however bad the odds, and drafts neurally if it must."""
    control = controller(Q4_K)
    _, count = decide(control, View(free=(chain([0.05]),), budget=8, always=True))
    assert count == 1
    neural = View(neural=(Neural("neural", 5000),), budget=8, remaining=10, always=True)
    assert decide(control, neural)[0].extend == "neural"
    assert decide(control, View(budget=8, always=True))[1] == 0


@pytest.mark.parametrize("priors", [[0.02] * 8, [0.98, 0.01] * 4])
@pytest.mark.parametrize("drawn", [1, 3, 8])
def test_what_was_drawn_from_a_law_is_verified(priors: list[float], drawn: int) -> None:
    """However unlikely it is and whatever rows cost: its own token may not decide on that."""
    law = Probs(np.array([1], dtype=np.int32), np.zeros(1))
    nodes = chain(priors)
    draft = Draft.chain(nodes.tokens, nodes.signals, [None] * (drawn - 1) + [law])
    draft = draft.then(Draft.chain(nodes.tokens[drawn:], nodes.signals[drawn:]))
    view = View(free=(nodes,), budget=24, elapsed_seconds=LONG)
    control = controller(Q4_K)
    control.plan([view, view])
    counts = control.cut([view, view], [draft, nodes])
    assert draft.drawn == drawn <= counts[0]
    assert nodes.drawn == 0


def test_the_best_of_several_free_chains_is_taken() -> None:
    """The likelier one, not the longer one."""
    short, long = chain([0.98, 0.98, 0.98], "history"), chain([0.4] * 20)
    plan, count = decide(controller(Q4_0), View(free=(long, short), budget=24))
    assert plan.base == short
    assert count == 3


def test_a_source_is_not_read_for_an_answer_that_ends_soon() -> None:
    """Reading a long prompt has to be repaid by the tokens still to come."""
    cheap = controller(Q4_0, step=0.1)

    def rounds_until_drafting(pending: int, remaining: float) -> int:
        stats = cheap.open_session()
        for count in range(60):
            neural = (Neural("neural", pending),)
            view = View(
                neural=neural,
                budget=8,
                remaining=remaining,
                stats=stats,
                elapsed_seconds=LONG,
            )
            (plan,) = cheap.plan([view])
            if plan.extend is not None:
                return count
        return 60

    assert rounds_until_drafting(1, 100) == 0
    assert rounds_until_drafting(1000, 40) == 60
    assert rounds_until_drafting(1000, 4000) < 10


def test_a_copy_is_continued_by_the_neural_source_where_that_is_worth_most() -> None:
    """On a flat curve a short sure copy is not the end of the draft."""
    control = controller(FLAT, step=0.1)
    copy = chain([0.99, 0.99, 0.99])
    view = View(free=(copy,), neural=(Neural("neural", 1),), budget=12)
    (plan,) = control.plan([view])
    assert plan.extend == "neural"
    assert plan.base == copy
    assert plan.budget == 9


def test_drafting_goes_on_while_the_next_node_is_worth_its_cost() -> None:
    """Confident nodes are followed by another, doubtful ones end the draft; the first is free."""
    control = controller(Q4_0, step=0.2)
    (plan,) = control.plan([View(neural=(Neural("neural", 1),), budget=8)])
    assert plan.extend == "neural"
    assert plan.worth(())
    assert plan.worth(chain([0.99], "neural").signals)
    assert not plan.worth(chain([0.1], "neural").signals)


@pytest.mark.parametrize(
    ("read", "survival", "nodes"),
    [
        pytest.param(0.1, [0.9, 0.8, 0.5, 0.3], 4, id="all are likely enough"),
        pytest.param(0.1, [0.9, 0.3, 0.1, 0.1], 2, id="up to the unlikely one"),
        pytest.param(0.6, [0.9, 0.8, 0.5, 0.3], 2, id="each must save more than it costs"),
        pytest.param(1.2, [0.99, 0.99], 0, id="reading is dearer than drafting"),
    ],
)
def test_guesses_are_read_along_as_far_as_they_save_more_than_they_cost(
    read: float, survival: list[float], nodes: int
) -> None:
    """A guessed node costs `read` of a forward and saves one with its chance to be right."""
    control = controller(FLAT, step=0.1, read=0.1 * read)
    view = View(
        neural=(Neural("neural", 1),),
        budget=8,
        target_confidence=0.99,
        stats=control.open_session(),
    )
    (plan,) = control.plan([view])
    assert plan.extend == "neural"
    chances = [after / before for before, after in itertools.pairwise([1.0, *survival])]
    assert plan.along(chain(chances)) == nodes


def test_a_free_source_is_scored_on_text_that_it_did_not_draft() -> None:
    """Chains never verified win trust by having been right, and lose it by being wrong."""
    control = controller(Q4_0)
    view = View(free=(chain([0.3, 0.3, 0.3]),), budget=8)
    assert decide(control, view)[1] == 0
    for _ in range(60):
        control.observe(lived(view, Draft(), (1, 1, 1, 1)))
    assert decide(control, view)[1] == 3
    for _ in range(300):
        control.observe(lived(view, Draft(), (2,)))
    assert decide(control, view)[1] == 0


def test_in_a_text_that_is_mostly_copied_a_poor_draft_is_not_worth_its_time() -> None:
    """A draft that beats plain decoding may lose against waiting one token for the next copy."""
    control = controller(Q4_0)
    draft = chain([0.85])
    slow, fast = control.open_session(), control.open_session()
    for _ in range(20):
        slow.advance(1, 1.0)
        fast.advance(6, 2.0)
    assert control.cut([View(budget=8, stats=slow)], [draft]) == [1]
    assert control.cut([View(budget=8, stats=fast)], [draft]) == [0]


def test_what_was_learned_in_easy_text_is_not_believed_of_hard_text() -> None:
    """A source that disappoints where the target is unsure stays in use where it is sure."""
    control = controller(Q4_0, step=0.2)

    def view(target_confidence: float) -> View:
        neural = (Neural("neural", 1),)
        return View(
            neural=neural,
            budget=8,
            stats=control.open_session(),
            target_confidence=target_confidence,
        )

    for _ in range(80):
        hard = view(0.4)
        poor = chain([0.2, 0.2, 0.2], "neural")
        control.cut([hard], [poor])
        control.observe(lived(hard, poor, (2,), rows=4, seconds=0.03 * Q4_0[4]))
    control.feedback.baseline, control.feedback.regret = (
        PlainBaseline(),
        PolicyRegret(),
    )  # it is not for lack of means
    hard_plan, easy_plan = control.plan([view(0.4)]) + control.plan([view(0.95)])
    assert hard_plan.extend is None
    assert easy_plan.extend == "neural"


def test_evidence_counts_once_whether_drafted_or_not() -> None:
    """A verified free chain teaches exactly what the same chain teaches unverified."""
    copy = chain([0.6, 0.7, 0.8])
    view = View(free=(copy,), budget=8)
    taught = []
    for draft in (Draft(), copy.head(1), copy):
        control = controller(Q4_0)
        control.observe(lived(view, draft, (1, 1, 5)))
        taught.append(control.acceptance.survival(copy.signals))
    assert taught[0] == taught[1] == taught[2]


def test_the_verified_part_of_a_neural_draft_is_what_is_learned() -> None:
    """Accepted nodes, then the rejected one; of what came after it only how sure it was."""
    control = controller(Q4_0)
    believed = control.acceptance.confidence("neural").shares
    draft = chain([0.5, 0.51, 0.52, 0.53], "neural")
    view = View(neural=(Neural("neural", 1),), budget=8, stats=control.open_session())
    control.cut([view], [draft])
    drafted = (Drafted("neural", 1, 4, 0.03),)
    judged = (VerifiedDraft(draft, 1),)
    control.observe(Round(5, 0.08, 0.0005, drafted, (view,), judged, ((1, 7),)))
    estimates = [control.acceptance.estimate(signal) for signal in draft.signals]
    assert estimates[0] > 0.5
    assert estimates[1] < 0.51
    assert estimates[2:] == pytest.approx([0.52, 0.53])
    learned = control.acceptance.confidence("neural").shares - believed
    assert learned[:, 1].max() > 0.01  # all four are of that level


def test_behind_a_long_text_drafts_are_shorter() -> None:
    """Where rows cost next to nothing but what they look back on, less is verified farther on."""
    control = controller(FLAT)
    for _ in range(60):
        for rows in (1, 4, 16):
            forward = 0.03 * Machine(FLAT).target(rows) + 2e-6 * rows * 2000
            control.costs.measured(rows, forward, attended=rows * 2000)
    draft = chain([0.6] * 12)
    counts = [decide(control, View(free=(draft,), budget=12, cells=n))[1] for n in (0, 3000, 30000)]
    assert counts[0] > counts[1] > counts[2] == 0


def test_what_a_draft_looks_back_on_is_part_of_its_price() -> None:
    """Worth asking at the beginning; far on, where a drafted token costs what a row does, not."""
    control = controller(GPU, step=0.1)
    for _ in range(60):
        control.costs.measured_draft("neural", 1, 4, 4 * 0.03 * 0.1, cells=0)
        control.costs.measured_draft("neural", 1, 4, 4 * 0.03 * 1.0, cells=8000)
    asked = [
        control.plan(
            [View(neural=(Neural("neural", 1),), budget=8, target_confidence=0.99, cells=cells)]
        )
        for cells in (0, 8000)
    ]
    assert [plan.extend for (plan,) in asked] == ["neural", None]


def test_padding_is_filled_with_nodes() -> None:
    """Where rows come in fours anyway, nodes up to the next four cost nothing."""
    control = controller(Q4_K, multiple=4)
    copy = chain([0.6, 0.5, 0.4, 0.3, 0.3])
    assert decide(control, View(free=(copy,), budget=24))[1] == 3


def test_rows_of_prefill_are_part_of_the_decode() -> None:
    """Beside 16 rows of a prompt, a node costs what the 17th row costs, not the second."""
    control = controller({1: 1, 2: 2, 3: 3, 15: 6, 16: 6, 24: 6.1, 32: 6.2})
    view = View(free=(chain([0.8, 0.7]),), budget=8)
    assert control.cut([view], list(view.free)) == [0]
    assert control.cut([view], list(view.free), other_rows=16) == [2]


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans(), st.booleans()), max_size=30))
def test_the_same_history_gives_the_same_decisions(
    events: list[tuple[int, bool, bool]],
) -> None:
    """Two controllers fed the same rounds never differ: there is no clock and no chance in it."""
    pair = [Controller(Costs(), Acceptance()) for _ in range(2)]
    memories = [control.open_session() for control in pair]
    for length, right, neural in events:
        answers = []
        for control, stats in zip(pair, memories, strict=True):
            view = View(
                free=(chain([0.8] * length),) if length else (),
                neural=(Neural("neural", 3),) if neural else (),
                budget=8,
                stats=stats,
            )
            (plan,) = control.plan([view])
            tail = chain([0.9, 0.9], "neural") if plan.extend else Draft()
            draft = plan.base.then(tail)
            (count,) = control.cut([view], [draft])
            assert 0 <= count <= len(draft)
            verified = draft.head(count)
            control.observe(lived(view, verified, (1 if right else 2,) * 3, 1 + count))
            answers.append((plan.base, plan.extend, plan.budget, count))
        assert answers[0] == answers[1]
