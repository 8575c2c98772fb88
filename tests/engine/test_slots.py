"""Laws of prefix reuse."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from localspec.engine.kv.slots import Slot, choose, common_prefix

TOKENS = st.lists(st.integers(0, 2), max_size=12)


@given(TOKENS, TOKENS)
def test_a_common_prefix_is_common_and_longest(one: list[int], other: list[int]) -> None:
    """Equal up to it, different right after it."""
    length = common_prefix(one, other)

    assert one[:length] == other[:length]
    assert one[length : length + 1] != other[length : length + 1] or length == min(
        len(one), len(other)
    )


@given(
    st.lists(
        st.builds(Slot, st.sampled_from(["a", "b"]), TOKENS, st.integers(0, 9), st.booleans()),
        max_size=5,
    ),
    TOKENS.filter(bool),
)
def test_the_best_free_slot_is_chosen(slots: list[Slot], prompt: list[int]) -> None:
    """Never a busy slot, never another client's tokens, never the prompt's last token."""
    chosen = choose(slots, "a", prompt)

    free = [slot for slot in slots if not slot.busy]
    if chosen is None:
        assert not free
        return
    index, shared = chosen
    assert not slots[index].busy
    assert shared < len(prompt)
    assert shared == 0 or slots[index].client == "a"
    assert slots[index].tokens[:shared] == prompt[:shared]
    taken = slots[index]
    if 2 * shared > len(taken.tokens) - shared:
        return
    worthy = [slot for slot in free if slot.client == "a" and worth(slot, prompt)]
    assert not worthy
    assert not taken.tokens or all(slot.tokens for slot in free)
    assert taken.used == min(slot.used for slot in free if bool(slot.tokens) == bool(taken.tokens))


def worth(slot: Slot, prompt: list[int]) -> bool:
    """Whether what the slot shares with the prompt is most of what it would lose."""
    shared = common_prefix(slot.tokens, prompt[:-1])
    return 2 * shared > len(slot.tokens) - shared


def test_a_stranger_with_the_same_system_prompt_does_not_cost_a_conversation_its_text() -> None:
    """24 shared tokens of 260 are no reason to lose the others, whether slots are empty or not."""
    system = list(range(24))
    talk = system + [1] * 236
    slots = [Slot("me", talk, used=9), Slot("me", [7] * 50, used=5), Slot()]
    assert choose(slots, "me", [*system, 2, 2]) == (2, 0)
    slots[2] = Slot("me", [8] * 50, used=6)
    assert choose(slots, "me", [*system, 2, 2]) == (1, 0)
    assert choose(slots, "me", [*talk, 3]) == (0, 260)


def test_a_regenerated_answer_uses_the_slot_of_its_conversation() -> None:
    """The discarded answer is shorter than the text that is kept."""
    slots = [Slot("me", [1] * 90 + [2] * 60, used=9), Slot()]
    assert choose(slots, "me", [*[1] * 90, 3]) == (0, 90)
