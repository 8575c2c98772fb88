"""Prepares a measurement: the model is loaded, every arm warm, the cost staircase measured."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from localspec.bench.arms import Arm
from localspec.bench.measure import ask
from localspec.bench.results import Settings
from localspec.client import Client, Json
from localspec.errors import DaemonError

WARM_TOKENS = 48
WARM = "List the whole numbers from 1 to 40 with a comma between them, then do it once more."

PATIENCE_SECONDS = 300.0
"""Enough on a quiet machine, where measuring costs and exactness of a new model takes a minute."""
POLL_SECONDS = 0.25


def loaded(client: Client, name: str | None) -> Json:
    """Load a model, by default the daemon's default, and return its entry in the status."""
    fields = {"model": name} if name else {}
    question = [{"role": "user", "content": "Hello"}]
    received = ask(Arm("", client, fields), question, Settings(max_tokens=1))
    return model_of(client, received.end.model if received.end else "")


def model_of(client: Client, name: str) -> Json:
    """The status of one model. Raises DaemonError if the daemon no longer knows it."""
    for model in client.status().get("models", []):
        if model["name"] == name:
            found: Json = model
            return found
    raise DaemonError(f"The daemon answered as {name!r}, but its status has no such model.")


def warm(arms: Sequence[Arm], settings: Settings) -> None:
    """Ask each arm once, untimed: weights come into memory, and acceptance is no mere prior."""
    brief = Settings(max_tokens=WARM_TOKENS, seed=settings.seed)
    for arm in arms:
        ask(arm, [{"role": "user", "content": WARM}], brief)


def with_costs(client: Client, name: str) -> Json:
    """The model's status once its costs are measured, or after PATIENCE_SECONDS.

    Before a worker's first heartbeat the status does not tell whether they are.
    """
    return _when(client, name, lambda model: not model.get("measuring", True))


def with_exactness(client: Client, name: str) -> Json:
    """The model's status once its exactness is known, or after PATIENCE_SECONDS."""
    return _when(client, name, lambda model: not model.get("checking"))


def _when(client: Client, name: str, ready: Callable[[Json], bool]) -> Json:
    began = time.monotonic()
    while not ready(model := model_of(client, name)):
        time.sleep(POLL_SECONDS)
        if time.monotonic() - began > PATIENCE_SECONDS:
            break
    return model


def machine() -> str:
    """This machine in words: processor, threads, system."""
    name = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            name = value.strip()
            break
    return f"{name}, {os.cpu_count()} threads, {platform.system()}"
