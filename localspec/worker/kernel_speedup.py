"""Measures in idle moments the speed-up of our own kernels with the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from localspec.engine import calibrate
from localspec.engine.step import Engine
from localspec.errors import NoRoom
from localspec.worker.profile import Profile

ROWS = (4, 8)
_REPEATS = 5


class KernelSpeedup:
    """Times forwards by our kernels and by llama.cpp's own, in turns, while the engine is idle.

    `kernels` names ours, empty where none are in use; `use` turns them on or off, None where the
    build cannot. The result is measured once and kept in the profile as `worth`: by rows, how many
    times as long llama.cpp's own kernels take. The engine's thread.
    """

    def __init__(
        self, engine: Engine, profile: Profile, kernels: str, use: Callable[[bool], None] | None
    ) -> None:
        self._engine, self._profile, self._kernels, self._use = engine, profile, kernels, use
        self._work = self._measuring()

    @property
    def sentence(self) -> str:
        """The kernels and their measured speed-up; empty where none are in use."""
        return describe(self._kernels, self._profile.worth) if self._kernels else ""

    def advance(self, _now: float = 0.0) -> bool:
        """Compute four forwards; False where there is nothing to do."""
        return next(self._work, self) is None

    def _measuring(self) -> Iterator[None]:
        use = self._use
        if not self._kernels or self._profile.worth or use is None:
            return
        target, clock = self._engine.target, self._engine.clock
        least: dict[tuple[int, bool], float] = {}
        for _ in range(_REPEATS):
            for rows in ROWS:
                for ours in (False, True):
                    use(ours)
                    try:
                        place = calibrate.place(self._engine)
                        seconds = calibrate.warmed(target, place, rows, clock)
                    except NoRoom:
                        return
                    finally:
                        use(True)
                    least[rows, ours] = min(seconds, least.get((rows, ours), seconds))
                yield
        self._profile.worth = {
            rows: round(least[rows, False] / least[rows, True], 2) for rows in ROWS
        }
        self._profile.save()


def describe(kernels: str, worth: Mapping[int, float]) -> str:
    """One line for people: the kernels, and how many times as fast as llama.cpp's they are."""
    name = f"{kernels.replace('_', ' ')}, LocalSpec's own"
    gains = [f"{rows} rows {times:.2f} times" for rows, times in sorted(worth.items())]
    return f"{name}; {' and '.join(gains)} as fast as by llama.cpp's own" if gains else name
