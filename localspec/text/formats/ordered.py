"""Fields of an object in Lark: each once, in any order where they are few."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

MOST_ORDERED = 5
"""The most fields that may come in any order: this takes a rule for each set of them, 32 for five.
More fields come in the order of their schema, which models keep to."""


class Member(NamedTuple):
    """One field in Lark, and whether it must be there."""

    made: str
    needed: bool


def ordered(prefix: str, members: Sequence[Member], comma: str, other: str = "") -> list[str]:
    """The rule `prefix` for the fields, and the rules that it needs.

    `comma` is Lark for what separates two; "" for nothing. `other` is Lark for any further field.
    """
    if len(members) > MOST_ORDERED:
        return _in_order(prefix, members, comma, other)
    needed = sum(one.needed << at for at, one in enumerate(members))

    def rule(name: str, seen: int, between: str) -> str:
        """The rule of all that may follow the fields of the set `seen`."""
        ways = [
            f"{between} {one.made} {prefix}_s{seen | 1 << at}".strip()
            for at, one in enumerate(members)
            if not seen >> at & 1
        ]
        ways += [f"{between} {other} {prefix}_s{seen}".strip()] if other else []
        ways += ['""'] if needed & seen == needed else []
        return f"{name}: {' | '.join(ways)}"

    # Behind an `other` field a comma must come even if no known field has: this takes a rule more.
    sets = range(0 if other else 1, 1 << len(members))
    return [rule(prefix, 0, ""), *(rule(f"{prefix}_s{seen}", seen, comma) for seen in sets)]


def _in_order(prefix: str, members: Sequence[Member], comma: str, other: str) -> list[str]:
    """Two rules for each field that may come next: `_n` before any field has come, `_m` after."""
    last = len(members)
    more = f"{comma} {other}".strip()
    rules = [f"{prefix}_n{last}: {f'({other} ({more})*)?' if other else chr(34) * 2}"]
    rules.append(f"{prefix}_m{last}: {f'({more})*' if other else chr(34) * 2}")
    for at in range(last - 1, -1, -1):
        one, behind = members[at], f"{prefix}_m{at + 1}"
        first, next_ = [f"{one.made} {behind}"], [f"{comma} {one.made} {behind}".strip()]
        if not one.needed:
            first.append(f"{prefix}_n{at + 1}")
            next_.append(behind)
        rules += [
            f"{prefix}_n{at}: {' | '.join(first)}",
            f"{prefix}_m{at}: {' | '.join(next_)}",
        ]
    return [f"{prefix}: {prefix}_n0", *rules]
