"""The functions that one answer may call, and whether it must."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Offer:
    """The functions offered to one answer.

    `functions` are OpenAI's function objects; empty means no calls. With `forced` only calls are
    allowed, with `only` only of that function. `text_rule` is Lark for the text in place of a call,
    "" for any text. `thinks`: the model may think before it answers; `thinking`: the prompt has
    already begun the thoughts.
    """

    functions: Sequence[Json] = ()
    forced: bool = False
    only: str = ""
    text_rule: str = ""
    parallel: bool = True
    thinks: bool = False
    thinking: bool = False

    @property
    def names(self) -> frozenset[str]:
        """The functions' names."""
        return frozenset(str(function["name"]) for function in self.functions)

    @property
    def callable(self) -> list[Json]:
        """The functions that a grammar must contain."""
        return [one for one in self.functions if self.only in ("", one["name"])]

    @property
    def constrains(self) -> bool:
        """Whether a grammar is needed: for forced calls, restricted text, or a strict function."""
        strict = any(function.get("strict") for function in self.functions)
        return self.forced or bool(self.text_rule) or strict

    def function(self, name: str) -> Json:
        """The function of that name; {} if there is none."""
        return next((one for one in self.functions if one["name"] == name), {})
