"""Remarks beside a line that is being typed."""

from __future__ import annotations

import os
import pty

import terminal
from prompt_toolkit import PromptSession
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.output import DummyOutput

from localspec.cli.remarks import Remarks


def test_the_line_editor_keeps_the_terminal_while_a_remark_is_printed() -> None:
    """A terminal that was given back echoes what is typed, and drops most of a long paste."""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs) as file, os.fdopen(ours, "w") as keyboard:
        session: PromptSession[str] = PromptSession(input=Vt100Input(file), output=DummyOutput())
        echoed = []

        def say(text: str) -> None:
            echoed.append((text, terminal.echoes(theirs)))
            keyboard.write("typed\r")
            keyboard.flush()

        remarks = Remarks(session.app, say)
        remarks.make("a remark")
        assert session.prompt(pre_run=remarks.begin) == "typed"
        assert echoed == [("a remark", False)]
