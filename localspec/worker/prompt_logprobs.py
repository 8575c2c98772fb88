"""Computes the log-probabilities of echoed prompts before the requests are answered."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, replace

from localspec.engine.likelihood import Likelihood
from localspec.engine.scoring import score
from localspec.worker.answer import spelled
from localspec.worker.assemble import Loaded
from localspec.worker.preparation import PreparedRequest


@dataclass(frozen=True, slots=True)
class PromptLogprobs:
    """A prepared request that needs the log-probabilities of its prompt first."""

    prepared: PreparedRequest
    arrived_at: float

    @property
    def id(self) -> str:
        """The request's id."""
        return self.prepared.request.id

    def work(self, loaded: Loaded) -> Generator[None, None, PreparedRequest]:
        """Read the prompt in a free slot, piece by piece; returns the request with its scores."""
        request, prompt, clock = self.prepared.request, self.prepared.prompt, loaded.engine.clock
        began = clock()
        found = yield from score(
            loaded.engine,
            self.prepared.owner,
            prompt,
            request.logprobs or 0,
            self.prepared.adapters,
        )
        first = Likelihood(prompt[0], math.nan, ())  # nothing precedes it
        told = [spelled(each, loaded.model.spelled) for each in (first, *found)]
        return replace(self.prepared, scored=told, scoring_seconds=clock() - began)
