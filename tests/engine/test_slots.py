"""Laws of prefix reuse."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from localspec.engine.slots import Slot, choose, common_prefix

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
    best = max(
        (common_prefix(slot.tokens, prompt[:-1]) for slot in free if slot.client == "a"), default=0
    )
    assert shared == best
