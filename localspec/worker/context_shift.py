"""Decides whether an answer goes on where its context ends."""

from __future__ import annotations

from dataclasses import dataclass

from localspec.errors import RequestError
from localspec.ranges import MAX_TOKENS
from localspec.wire.messages import Generate


@dataclass(frozen=True, slots=True)
class Shift:
    """The context shift of one model.

    `able`: its memory can forget tokens in the middle. `wanted`: the configuration turns it on.
    `bos`: prompts begin with a BOS token, which is always kept. `longest`: the most tokens of an
    answer that shifts.
    """

    able: bool
    wanted: bool
    bos: bool = False
    longest: int = int(MAX_TOKENS.high)

    def keep(self, request: Generate, prompt: int, *, sees: bool) -> int | None:
        """How many of the first tokens are kept; None where the answer ends with the context.

        Raises:
            RequestError: The request asks for a shift that its text or the model does not allow.
        """
        if not (self.wanted if request.shifts is None else request.shifts):
            return None
        if sees or not self.able:
            if request.shifts is None:
                return None
            what = "A text with images" if sees else "The memory of this model"
            raise RequestError(
                f"{what} cannot forget its beginning.",
                fix="Leave context_shift out, or raise engine.context in config.toml.",
                param="context_shift",
            )
        return prompt if request.keep < 0 else request.keep + self.bos


NO_SHIFT = Shift(able=False, wanted=False)
