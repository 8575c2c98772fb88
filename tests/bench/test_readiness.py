"""Nothing is timed before the daemon has said that its costs are measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from localspec.bench import readiness
from localspec.client import Client, Json


class ScriptedStatus(Client):
    """A daemon that says one thing after another of its model, and then the last one for ever."""

    def __init__(self, *told: dict[str, Any]) -> None:
        super().__init__(Path("/nowhere"))
        self._told = list(told)

    def status(self) -> Json:
        """The next one."""
        told = self._told.pop(0) if len(self._told) > 1 else self._told[0]
        return {"models": [{"name": "tiny", **told}]}


def test_what_is_promised_is_waited_for() -> None:
    """Texts of before are of another class than the one that is claimed then."""
    client = ScriptedStatus({"checking": [0, 9]}, {"checking": [8, 9]}, {"exactness": "strict"})
    assert readiness.with_exactness(client, "tiny") == {"name": "tiny", "exactness": "strict"}


def test_costs_are_waited_for_even_before_the_first_heartbeat() -> None:
    """A status that does not say whether they are measured is no answer."""
    client = ScriptedStatus({}, {"measuring": True}, {"measuring": False, "host_ms": 1.0})
    assert readiness.with_costs(client, "tiny") == {
        "name": "tiny",
        "measuring": False,
        "host_ms": 1.0,
    }
