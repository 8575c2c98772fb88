"""The output of a forward: what a drafter is shown of it, and that nothing is copied in vain."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from engine.lawful import Lawful
from laws.engine_harness import finish
from laws.policies import FixedDepth

from localspec.engine.exactness.classes import Shape
from localspec.engine.session import Request
from localspec.engine.step import Engine, Limits
from localspec.types import (
    Draft,
    DraftRequest,
    Floats,
    ForwardOutput,
    Proposing,
    Row,
    SamplingParams,
    SpeculationParams,
    Token,
)


class Tapped(Lawful):
    """A backend that leaves of each row its slot, its position and its token."""

    copies = 0

    def decode(self, rows: Sequence[Row]) -> ForwardOutput:
        """As any other, with features."""

        def features() -> Floats:
            self.copies += 1
            return np.array([(row.slot, row.position, row.token) for row in rows], np.float32)

        return super().decode(rows)._replace(features=features)


class Follower:
    """A drafter that keeps all that it is shown of a text; its own sessions."""

    name, free, pending, inputs, ready = "follower", True, 0, 3, True

    def __init__(self) -> None:
        self.shown: dict[int, list[list[float]]] = {}

    def open(
        self,
        slot: int,
        prompt: Sequence[Token],
        sampler: Proposing,
        prediction: Sequence[Token] = (),
    ) -> Follower:
        """One for each slot would be the same."""
        del slot, prompt, sampler, prediction
        return self

    def commit(self, tokens: Sequence[Token]) -> None:
        """Features come by themselves."""

    def follow(self, start: int, features: Floats) -> None:
        """Rows of one text, in order."""
        text = self.shown.setdefault(int(features[0, 0]), [])
        assert start == len(text)
        text += features.tolist()

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """There is nothing to say."""
        return [Draft() for _ in requests]

    def close(self) -> None:
        """Nothing is held."""


@pytest.mark.parametrize("alone", [False, True], ids=["shared forwards", "a forward each"])
@pytest.mark.parametrize("wanted", [0, 1, 2])
def test_features_are_copied_for_who_follows_them(wanted: int, *, alone: bool) -> None:
    """A drafter has those of each token that was read for it, once; without one none are copied."""
    target, drafter = Tapped(lambda _seen: 0), Follower()
    engine = Engine(
        target,
        {drafter.name: drafter},
        FixedDepth(0),
        ends=frozenset(),
        shape=Shape(alone=alone),
        limits=Limits(prefill_rows=8),
        clock=lambda: 0.0,
    )
    requests = [
        Request(
            id="r",
            client=str(index),
            prompt=[at % 19 for at in range(30 + index)],
            sampling=SamplingParams(temperature=0.0),
            speculation=SpeculationParams(drafters=["follower"] if index < wanted else []),
            max_tokens=6,
        )
        for index in range(2)
    ]
    sessions = finish(engine, requests)
    expected = {
        each.slot: [[each.slot, at, token] for at, token in enumerate(each.tokens[:-2])]
        for each in sessions[:wanted]
    }
    assert {slot: drafter.shown[slot] for slot in expected} == expected
    assert len(drafter.shown) == wanted
    assert wanted or alone or not target.copies
