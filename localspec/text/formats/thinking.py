"""Template variables that control whether and how much a model thinks.

Templates have variants of OpenAI's `reasoning_effort` and of the most common variable,
`enable_thinking`. A client that sets one variant means the one that its template reads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

OFF = frozenset({"none", "off", "no", "false", "disabled", "disable", "no_think", "nothink"})
"""Efforts that turn thinking off; all others turn it on."""

_EFFORT = re.compile(r"\b(reasoning_effort|reasoning_strength|thinking_effort)\b")
_FLAGS = ("enable_thinking", "thinking", "enable_reasoning")
_WORDS: Mapping[str, tuple[str, str]] = {
    "thinking_mode": ("enabled", "disabled"),
    "thinking_option": ("on", "off"),
}
"""Variables with a word for on and a word for off."""


def variables(template: str, given: Mapping[str, Any], effort: str | None) -> dict[str, Any]:
    """The variables of a request for this template: `given` ones, and those derived from them.

    Variables that the request sets itself stay unchanged.
    """
    found = dict(given)
    wants = _wanted(given, effort)
    if wants is not None:
        for name in _FLAGS:
            if _asks(template, name):
                found.setdefault(name, wants)
        for name, (on, off) in _WORDS.items():
            if _asks(template, name):
                found.setdefault(name, on if wants else off)
        if not wants and _asks(template, "thinking_budget"):
            found.setdefault("thinking_budget", 0)
        found.setdefault("enable_thinking", wants)
    if "reasoning_effort" in given:
        return found
    if level := _level(template, effort, wants=wants):
        found["reasoning_effort"] = level
        found.setdefault("reasoning_strength", level)
        if _asks(template, "thinking_effort"):
            found.setdefault("thinking_effort", level)
    return found


def switches(template: str) -> bool:
    """Whether a template has a variable that turns thinking off."""
    return any(_asks(template, name) for name in (*_FLAGS, *_WORDS, "thinking_budget"))


def _wanted(given: Mapping[str, Any], effort: str | None) -> bool | None:
    """Whether the model is to think; None if the request does not say."""
    for name in _FLAGS:
        if isinstance(given.get(name), bool):
            return bool(given[name])
    if isinstance(budget := given.get("thinking_budget"), int):
        return budget != 0
    effort = str(given.get("reasoning_effort") or effort or "").lower()
    return None if not effort else effort not in OFF


def _level(template: str, effort: str | None, *, wants: bool | None) -> str:
    """The effort in the template's own words; "" for its default."""
    if not _EFFORT.search(template):
        return effort or ""
    if wants is False:
        own = [word for word in ("no_think", "none") if _quoted(template, word)]
        return own[0] if own else "low" if effort else ""
    level = (effort or "").lower()
    if not level:
        return "high" if wants and _quoted(template, "no_think") else ""
    nearest = _NEAREST.get(level, (level,))
    known = [word for word in nearest if _quoted(template, word)]
    return known[0] if known else level if level in _COMMON else nearest[-1]


_COMMON = ("low", "medium", "high")
_NEAREST = {
    "minimal": ("minimal", "low"),
    "low": ("low",),
    "medium": ("medium", "high"),
    "high": ("high",),
    "xhigh": ("xhigh", "max", "high"),
    "max": ("max", "xhigh", "high"),
}
"""The words that a template may have for each effort, the nearest first."""


def _asks(template: str, name: str) -> bool:
    return bool(re.search(rf"\b{name}\b", template))


def _quoted(template: str, word: str) -> bool:
    return bool(re.search(rf"['\"]{word}['\"]", template))
