"""Means that forget: what the simplest policy knows of times and chances. State only."""

from __future__ import annotations

from localspec.control.costs import Costs

PRIOR_NODES = 16.0
"""Observations that a drafter's own prior counts for."""
FORGETTING = 0.99
"""Of a bucket's counts, by the node."""
TIMES_KEPT = 0.8
"""Of a measured time, by the forward of its row count."""


class Times:
    """Seconds of forwards: the profile's, times an exponential mean of measured by expected."""

    def __init__(self, profile: Costs) -> None:
        self._profile = profile
        self._ratios: dict[object, float] = {}
        self.host = profile.host_seconds

    def ratio(self, key: object) -> float:
        """Measured by expected; of a row count that was never seen that of the nearest one."""
        if key not in self._ratios and isinstance(key, int) and self._ratios:
            wanted, rows = key, [each for each in self._ratios if isinstance(each, int)]
            key = min(rows, key=lambda each: abs(each - wanted), default=key)
        return self._ratios.get(key, 1.0)

    def target(self, rows: int, attended: float, before: int) -> float:
        """A forward of so many rows behind one of `before`."""
        change = self._profile.change_seconds if before not in {0, rows} else 0.0
        return self._profile.target(rows, attended) * self.ratio(rows) + change

    def draft(self, name: str, pending: int, depth: int, cells: int = 0) -> float:
        """Reading so many tokens and drafting others."""
        return self._profile.draft(name, pending, depth, cells) * self.ratio(name)

    def learn(self, key: object, seconds: float, expected: float) -> None:
        """One measured time, of which an outlier counts as twice what was expected."""
        known = self.ratio(key)
        now = min(seconds / expected, 2 * known)
        share = 1 - TIMES_KEPT if key in self._ratios else 1.0
        self._ratios[key] = known + share * (now - known)

    def learn_host(self, seconds: float) -> None:
        """The rest of a round."""
        self.host += (1 - TIMES_KEPT) * (min(seconds, 4 * self.host + 1e-4) - self.host)


class Beta:
    """Chances by any key: accepted and observed nodes, which are forgotten."""

    def __init__(self) -> None:
        self._counts: dict[object, tuple[float, float]] = {}

    def chance(self, key: object, prior: float) -> float:
        """Mean of the Beta distribution."""
        accepted, observed = self._counts.get(key, (0.0, 0.0))
        found = (accepted + PRIOR_NODES * prior) / (observed + PRIOR_NODES)
        return min(0.999, max(0.001, found))

    def observe(self, key: object, accepted: bool) -> None:
        """One more node whose parent was accepted."""
        before, observed = self._counts.get(key, (0.0, 0.0))
        self._counts[key] = FORGETTING * before + accepted, FORGETTING * observed + 1
