"""Why there is no text yet, in plain words."""

from __future__ import annotations

import re

_LOADING = re.compile(r"loading (?P<stage>\w+) (?P<percent>\d+%)")
_STAGES = {
    "start": "starting the model",
    "target": "reading the model",
    "draft": "reading the draft model",
    "probe": "checking that drafts change nothing",
    "warmup": "measuring this machine",
}
"""protocol.Progress.stage -> what is going on."""


def words(said: str) -> str:
    """`reading the model 42%` of the daemon's `loading target 42%`; anything else is itself."""
    found = _LOADING.fullmatch(said)
    if not found:
        return said
    return f"{_STAGES.get(found['stage'], found['stage'])} {found['percent']}"
