"""LocalSpec's own kernels for few rows, as the build that is installed here has them."""

from __future__ import annotations

import msgspec

from localspec.bench import native


class Tried(msgspec.Struct, frozen=True):
    """The findings of `microbench/kernels.py`.

    `kernels` is the instruction set of our kernels, empty if llama.cpp's own compute. `formats` are
    the weight formats that our kernels compute. `failure` is a sentence; empty if every row has the
    bits that it has alone. `worth` tells, by format and rows, how many times as long llama.cpp's
    own kernels take.
    """

    kernels: str
    formats: list[str]
    failure: str
    worth: dict[str, dict[int, float]]

    def __str__(self) -> str:
        """One line about the kernels."""
        if not self.kernels:
            return "llama.cpp's own"
        return f"{self.kernels.replace('_', ' ')} for {' '.join(self.formats)}"

    @property
    def gains(self) -> str:
        """The speed-up of our kernels by rows and formats; empty if it was not measured."""
        rows = next(iter(self.worth.values()), {})
        return "; ".join(
            f"{count} rows "
            + ", ".join(f"{name} {by_rows[count]:.1f}" for name, by_rows in self.worth.items())
            for count in rows
        )


def tried(*, worth: bool = False) -> Tried:
    """Try our kernels in a process of their own, in less than a second. Raises EngineError."""
    return native.ask(Tried, "microbench.kernels", *(["--worth"] if worth else []))
