"""The words of a switch of models, from the statuses meanwhile."""

from __future__ import annotations

import io
from typing import Any

import pytest
from scripted import Peer, answer
from typist import ENTER, Typist

from localspec.cli.render import Notice
from localspec.cli.waiting import followed, stage_text
from localspec.client import Client
from localspec.errors import LocalSpecError


class Dumb(io.StringIO):
    """A terminal that can only go on to the next line."""

    def isatty(self) -> bool:
        """It is one."""
        return True


def told(monkeypatch: pytest.MonkeyPatch, *states: dict[str, Any]) -> tuple[str, str]:
    """The result of `followed` and the notices it showed, over a sequence of statuses."""
    screen = Dumb()
    monkeypatch.setenv("TERM", "dumb")
    with Peer() as peer:
        monkeypatch.setenv("LOCALSPEC_HOST", peer.host)
        peer.statuses = [{"models": [{"name": "big", **state}]} for state in states]
        return followed(Client.from_environment(), "big", Notice(screen)), screen.getvalue()


LOADING = {"state": "loading", "loading": {"stage": "target", "fraction": 0.5}}
LOADED = "big loaded in 3.2 s, made room by unloading small"
WAITING = {"stage": "room", "fraction": 0, "why": "waiting for memory: small is answering"}


def test_a_switch_says_how_long_it_took_and_who_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """And before that, what is waited for."""
    ready = {"state": "ready", "loaded": LOADED}
    waiting = {"state": "loading", "loading": WAITING}
    said, shown = told(monkeypatch, waiting, LOADING, ready)
    assert said == LOADED
    assert shown.split("\n")[:2] == [WAITING["why"], "reading the model 50%"]


def test_a_model_that_was_there_is_no_news_and_one_that_fails_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is said of a load of yesterday."""
    ready = {"state": "ready", "loaded": LOADED}
    assert told(monkeypatch, ready) == ("", "")
    failed = {"state": "failed", "error": "too large"}
    for states in ((LOADING, failed), (failed,)):
        with pytest.raises(LocalSpecError, match="too large"):
            told(monkeypatch, *states)


def test_a_chat_tells_of_its_switch(peer: Peer, talk: Typist) -> None:
    """After /model, before the next prompt."""
    peer.models, peer.streams = [{"id": "big"}], [answer("ok")]
    peer.status["models"] = [{"name": "big", "state": "ready", "loaded": LOADED}]
    peer.statuses = [{"models": [{"name": "big", **LOADING}]}] * 3  # one for who looks if it runs
    assert f"model: big\n{LOADED}\n" in talk.type(f"/model big{ENTER}")


def test_a_switch_that_fails_leaves_the_model_that_answers(peer: Peer, talk: Typist) -> None:
    """The default, which is marked before anything was chosen."""
    peer.models, peer.streams = [{"id": "small"}, {"id": "big"}], [answer("ok")]
    peer.statuses = [{"models": [{"name": "big", **LOADING}]}] * 2
    peer.status["models"] = [{"name": "big", "state": "failed", "error": "big is too large."}]
    assert "* small\n  big\n" in talk.type(f"/model{ENTER}")
    assert "error: big is too large." in talk.type(f"/model big{ENTER}")
    assert "* small\n  big\n" in talk.type(f"/model{ENTER}")


def test_a_percent_is_only_said_of_what_has_a_known_whole() -> None:
    """A file has so many bytes; a check or a start that says 0 % for long says nothing."""
    assert stage_text("loading draft 42%") == "reading the draft model 42%"
    assert stage_text("loading probe 0%") == "checking that drafts change nothing"
    assert stage_text("loading warmup 0%") == "measuring this machine"
    assert stage_text("waiting for its turn") == "waiting for its turn"
