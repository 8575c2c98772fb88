"""What one answer may do: which functions it may call, and whether it must."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Offer:
    """What one answer may do.

    `functions` are OpenAI's function objects, empty where none may be called. With `forced` nothing
    but calls may come, with `only` of that function alone. `said` is Lark for what comes instead of
    a call, empty for any words. `thinks`: the model may think before it answers; `thinking`: the
    prompt has begun that already.
    """

    functions: Sequence[Json] = ()
    forced: bool = False
    only: str = ""
    said: str = ""
    parallel: bool = True
    thinks: bool = False
    thinking: bool = False

    @property
    def names(self) -> frozenset[str]:
        """The functions' names."""
        return frozenset(str(function["name"]) for function in self.functions)

    @property
    def callable(self) -> list[Json]:
        """The functions that a grammar has to know."""
        return [one for one in self.functions if self.only in ("", one["name"])]

    @property
    def constrains(self) -> bool:
        """Whether a grammar is needed: by force, or for words or a function that are strict."""
        strict = any(function.get("strict") for function in self.functions)
        return self.forced or bool(self.said) or strict

    def function(self, name: str) -> Json:
        """The function of that name; empty where none has it."""
        return next((one for one in self.functions if one["name"] == name), {})
