"""Asks the daemon: reaches it, plays the answer, and offers to pull a missing model."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeAlias

import click

from localspec.chats.transcript import Conversation
from localspec.cli import launch, render
from localspec.cli.answer import Answer, echoed, play, unechoed
from localspec.errors import LocalSpecError, UnknownModel

PULL = "localspec models pull"
Keys: TypeAlias = Callable[[], AbstractContextManager[None]]


def ask(
    conversation: Conversation,
    sink: render.Sink,
    notice: render.Notice,
    *,
    spawn: bool,
    keys: Keys = unechoed,
) -> Answer:
    """Send the conversation and play the answer; offer to pull a model that is not here yet.

    `keys` makes a context that handles the keys typed meanwhile; the offer is made outside it.
    """

    def asked() -> Answer:
        with keys():
            try:
                client = launch.reach(spawn=spawn, tell=notice.show)
            finally:
                notice.clear()
            return play(
                client.chat(conversation.messages(), **conversation.request()), sink, notice
            )

    answer = asked()
    if isinstance(answer.error, UnknownModel) and _pulled(answer.error):
        answer = asked()
    return answer


def _pulled(error: LocalSpecError) -> bool:
    """True if the error is of a model that can be pulled, the user agreed, and it was pulled."""
    if PULL not in error.fix or not sys.stdin.isatty():
        return False
    click.echo(error.message, err=True)
    try:
        with echoed():
            if not click.confirm("Pull it now?", default=True, err=True):
                return False
    except click.Abort:
        raise KeyboardInterrupt from None
    command = error.fix[error.fix.index(PULL) :].splitlines()[0].split()
    pull = [sys.executable, "-P", "-m", "localspec.cli.main", *command[1:4]]
    import subprocess  # noqa: PLC0415  every question would wait for it

    return subprocess.run(pull, check=False).returncode == 0  # noqa: S603  our own command
