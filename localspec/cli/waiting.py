"""Shows why there is no text yet, in plain words."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from localspec.cli import launch
from localspec.cli.render import Notice
from localspec.errors import LocalSpecError

if TYPE_CHECKING:
    from localspec.client import Client, Json

_LOOK_SECONDS = 0.1
_LONG_SECONDS = 1.0
"""After at most this time the user at a terminal gets a notice of what is going on."""

_LOADING = re.compile(r"loading (?P<stage>\w+) (?P<percent>\d+%)")
_STAGES = {
    "start": "starting the model",
    "room": "waiting for memory",
    "target": "reading the model",
    "draft": "reading the draft model",
    "probe": "checking that drafts change nothing",
    "warmup": "measuring this machine",
    "images": "reading the projector of images",
}
"""A stage of `wire.messages.Progress` -> the words for it."""
_COUNTED = {"target", "draft"}
"""Stages whose total is known: bytes of a file. A percentage of the others would mean nothing."""


@contextmanager
def shown(text: str, notice: Notice | None = None) -> Iterator[None]:
    """Show a notice on stderr while the block runs, if it takes longer than a moment."""
    shown, over = notice or Notice(), threading.Event()

    def say() -> None:
        while not over.wait(_LONG_SECONDS / 2):
            shown.show(text)

    thread = threading.Thread(target=say, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        shown.clear()


def running_daemon(*, spawn: bool = True) -> Client:
    """A client of the daemon, started first if none runs and `spawn` is set. Raises NotRunning."""
    notice = Notice()
    try:
        return launch.reach(spawn=spawn, tell=notice.show)
    finally:
        notice.clear()


def stage_text(said: str) -> str:
    """`reading the model 42%` for the daemon's `loading target 42%`; other text is unchanged."""
    found = _LOADING.fullmatch(said)
    if not found:
        return said
    doing = _STAGES.get(found["stage"], found["stage"])
    return f"{doing} {found['percent']}" if found["stage"] in _COUNTED else doing


def stage(loading: Json) -> str:
    """The stage of a loading model, by its entry in the status."""
    said = f"loading {loading['stage']} {loading['fraction']:.0%}"
    return str(loading.get("why") or stage_text(said))


def followed(client: Client, name: str, notice: Notice) -> str:
    """Wait until a model is loaded. Returns a text about the load, "" if there was none."""
    waited = False

    def show(loading: Json) -> None:
        nonlocal waited
        waited = True
        notice.show(stage(loading))

    model = loaded_entry(client, name, show)
    notice.clear()
    if model.get("error") and (waited or model["state"] == "failed"):  # it may fail at once
        raise LocalSpecError(model["error"])
    return model.get("loaded") or "" if waited else ""


def loaded_entry(client: Client, name: str, tell: Callable[[Json], None] = lambda _: None) -> Json:
    """A model's entry in the status once nothing of it is loading; {} where there is none."""
    while True:
        models = {model["name"]: model for model in client.status()["models"]}
        model: Json = models.get(name, {})
        if not (loading := model.get("loading")):
            return model
        tell(loading)
        time.sleep(_LOOK_SECONDS)


def without_draft(model: Json) -> str:
    """The reason why a model's draft is not used; "" if it is used, or the model has none."""
    why = model.get("speculation_off") if model.get("draft_path") else None
    return f"no draft: {why}" if why else ""
