"""Somebody who types: real keys through prompt-toolkit's pipe."""

from __future__ import annotations

import io

from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from rich.console import Console

from localspec.chats import archive
from localspec.chats.transcript import Conversation
from localspec.cli.repl import run
from localspec.cli.talk import Talk

ENTER, ALT_ENTER, CTRL_D, CTRL_C, CTRL_Z = "\r", "\x1b\r", "\x04", "\x03", "\x1a"
CLEAR_LINE = "\x15"
PASTE, PASTED = "\x1b[200~", "\x1b[201~"


class Typist:
    """Somebody who types into a talk; the conversation is what became of it."""

    def __init__(
        self, conversation: Conversation | None = None, file: io.StringIO | None = None
    ) -> None:
        self._file = file or io.StringIO()
        console = Console(file=self._file, width=100, highlight=False)
        self.talk = Talk(conversation or Conversation(), spawn=False, console=console)

    @property
    def conversation(self) -> Conversation:
        """The one that is talked in now."""
        return self.talk.conversation

    @property
    def shown(self) -> str:
        """Everything that was printed."""
        return self._file.getvalue()

    def type(self, keys: str) -> str:
        """Run the loop over `keys` and leave with Ctrl-D; what was printed since."""
        start = self._file.tell()
        with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
            pipe.send_text(keys + CLEAR_LINE + CTRL_D)
            run(self.talk)
        return self._file.getvalue()[start:]


def roles(conversation: Conversation) -> list[tuple[str, str]]:
    """The turns as pairs."""
    return [(turn["role"], turn["content"]) for turn in conversation.turns]


class Looking(io.StringIO):
    """A terminal's output that notes the latest kept conversation whenever "three" is written."""

    def __init__(self, seen: list[list[tuple[str, str]]]) -> None:
        super().__init__()
        self._seen = seen

    def write(self, text: str) -> int:
        """Write, after a look at what is kept."""
        if "three" in text:
            self._seen.append(roles(archive.load(archive.latest())))
        return super().write(text)
