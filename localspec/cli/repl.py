"""The interactive conversation: reading lines, slash commands, and asking."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from rich.console import Console
from rich.text import Text

from localspec import paths
from localspec.cli import footer, render, transcript
from localspec.cli.chat import ask
from localspec.cli.transcript import MODES, Conversation
from localspec.client import Client
from localspec.errors import LocalSpecError, RequestError

if TYPE_CHECKING:
    from localspec.client import End

FENCE = '"""'
HISTORY_BYTES = 1024 * 1024


class Repl:
    """One conversation at a terminal. Lives until /bye or Ctrl-D; owned by the main thread."""

    def __init__(
        self,
        conversation: Conversation,
        *,
        spawn: bool,
        stats: bool = True,
        console: Console | None = None,
    ) -> None:
        """A loop over `conversation`, which may already have turns."""
        self.conversation = conversation
        self._spawn = spawn
        self._stats = stats
        self._console = console or Console(highlight=False)
        self._last: End | None = None
        self._commands = _commands(self)

    def run(self) -> None:
        """Read, answer, repeat."""
        session: PromptSession[str] = PromptSession(
            history=history(),
            completer=SlashCompleter(list(self._commands), self._arguments),
            complete_while_typing=False,
            key_bindings=_keys(),
            multiline=True,
            prompt_continuation="... ",
        )
        self._say("localspec · /help for commands, Ctrl-D to leave")
        while True:
            try:
                line = unfenced(session.prompt(">>> "))
            except KeyboardInterrupt:  # an empty or abandoned line, as shells do
                continue
            except EOFError:
                return
            if line.strip() == "/bye":
                return
            try:
                self.handle(line)
            except LocalSpecError as error:
                self._complain(error)
            except KeyboardInterrupt:
                self._say("interrupted")

    def handle(self, line: str) -> None:
        """One line of input: a slash command, or a turn of the conversation."""
        word, _, argument = line.strip().partition(" ")
        if not word:
            return
        if not _is_command(word):
            self.conversation.say("user", line)
            self._answer()
        elif word in self._commands:
            self._commands[word][0](argument.strip())
        else:
            raise RequestError(f"There is no {word}.", fix="/help lists what there is.")

    def _answer(self) -> None:
        """Ask for the next turn; what arrived is kept, whatever ended it."""
        talk = self.conversation
        try:
            answer = ask(talk, self._sink(), render.Notice(), spawn=self._spawn)
        except (LocalSpecError, KeyboardInterrupt):
            talk.take_back("user")
            raise
        if answer.text:
            talk.say("assistant", answer.text)
        else:
            talk.take_back("user")
        self._last = answer.end
        if answer.error:
            raise answer.error
        if answer.interrupted:
            self._say("stopped; what was said is kept" if answer.text else "stopped")
        elif answer.end and self._stats:
            self._say(footer.line(answer.end, answer.waited_seconds))

    def _sink(self) -> render.Sink:
        if not self._console.is_terminal or self._console.is_dumb_terminal:
            return render.PlainSink(self._console.file)
        if self.conversation.show_origins:
            return render.OriginSink(self._console)
        return render.MarkdownSink(self._console)

    def help(self, _: str) -> None:
        """Show this list."""
        width = max(len(name) for name in self._commands)
        for name, (_run, summary) in self._commands.items():
            self._console.print(f"{name:<{width}}  {summary}", markup=False)
        self._console.print(
            f"Alt-Enter starts a new line; {FENCE} opens and closes a text of several lines.\n"
            "Ctrl-C stops an answer, Ctrl-D leaves.",
            markup=False,
        )

    def model(self, name: str) -> None:
        """Name a model to talk to, or show which there are."""
        if name:
            self.conversation.model = name
            self._say(f"model: {name}")
            return
        for known in self._models():
            mark = "*" if known == self.conversation.model else " "
            self._console.print(f"{mark} {known}", markup=False)

    def system(self, text: str) -> None:
        """Set the system prompt; without text show it; - removes it."""
        if text:
            self.conversation.system = "" if text == "-" else text
        self._say(f"system: {self.conversation.system or '(none)'}")

    def clear(self, _: str) -> None:
        """Forget the conversation, keep the settings."""
        self.conversation.turns.clear()
        self._last = None
        self._say("cleared")

    def save(self, name: str) -> None:
        """Save the conversation under a name."""
        self._say(f"saved: {self.conversation.save(name)}")

    def load(self, name: str) -> None:
        """Go on with a saved conversation; without a name list them."""
        if not name:
            self._say(f"saved chats: {', '.join(transcript.saved()) or 'none yet'}")
            return
        self.conversation.load(name)
        self._say(f"loaded: {len(self.conversation.turns)} turns")

    def stats(self, _: str) -> None:
        """Show all figures of the last answer."""
        if self._last:
            self._console.print(footer.table(self._last), markup=False)
        else:
            self._say("no finished answer yet")

    def draft(self, words: str) -> None:
        """Speculate on, off or auto; show colours tokens by who proposed them."""
        talk = self.conversation
        for word in words.split():
            if word == "show":
                talk.show_origins = not talk.show_origins
            elif word in MODES:
                talk.draft = word
            else:
                raise RequestError(f'"{word}" is no way to draft.', fix="/draft on|off|auto|show")
        shown = "shown, instead of Markdown" if talk.show_origins else "not shown"
        self._say(f"draft: {talk.draft}; origins of tokens {shown}")

    def regen(self, _: str) -> None:
        """Answer the last question again."""
        self.conversation.take_back("assistant")
        if not self.conversation.turns:
            raise RequestError("There is no question to answer again.")
        self._answer()

    def undo(self, _: str) -> None:
        """Take back the last question and its answer."""
        self.conversation.take_back("assistant")
        question = self.conversation.take_back("user")
        self._say(f"taken back: {question[:60]}" if question else "nothing to take back")

    def bye(self, _: str) -> None:
        """Leave."""
        raise EOFError

    def _arguments(self, command: str) -> list[str]:
        if command == "/draft":
            return [*MODES, "show"]
        if command == "/load":
            return transcript.saved()
        return self._models() if command == "/model" else []

    def _models(self) -> list[str]:
        return [entry["id"] for entry in Client.from_environment().models()]

    def _say(self, text: str) -> None:
        self._console.print(Text(render.printable(text), style="dim"))

    def _complain(self, error: LocalSpecError) -> None:
        self._console.print(Text(render.printable(f"error: {error.message}"), style="red"))
        if error.fix:
            self._console.print(Text(f"  {render.printable(error.fix)}"))


Handler = tuple[Callable[[str], None], str]


def _commands(repl: Repl) -> dict[str, Handler]:
    """Slash command -> (what runs, the first sentence of its docstring)."""
    methods = (
        repl.help, repl.model, repl.system, repl.clear, repl.regen, repl.undo, repl.save,
        repl.load, repl.stats, repl.draft, repl.bye,
    )  # fmt: skip
    return {f"/{method.__name__}": (method, method.__doc__ or "") for method in methods}


def _is_command(word: str) -> bool:
    """`/help` is one, `/usr/bin/env: why?` is a question."""
    return re.fullmatch(r"/[a-z]+", word) is not None


def unfenced(text: str) -> str:
    '''The text between `"""` and `"""`, or the text itself.'''
    stripped = text.strip()
    if stripped.startswith(FENCE):
        return stripped.removeprefix(FENCE).removesuffix(FENCE).strip("\n")
    return text


def history() -> History:
    """Lines typed before, in a private file of bounded size; none with LOCALSPEC_NOHISTORY."""
    if os.environ.get("LOCALSPEC_NOHISTORY"):
        return InMemoryHistory()
    path = paths.state_dir() / "history"
    paths.make_private(path.parent)
    if not path.exists():
        paths.write_atomically(path, b"")
    elif path.stat().st_size > HISTORY_BYTES:
        kept = path.read_bytes()[-HISTORY_BYTES // 2 :]
        paths.write_atomically(path, kept[kept.find(b"\n\n") + 1 :])
    return FileHistory(str(path))


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        text = buffer.text.strip()
        if text.startswith(FENCE) and (len(text) < 2 * len(FENCE) or not text.endswith(FENCE)):
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    return keys


class SlashCompleter(Completer):
    """Completes slash commands and their arguments; ordinary text is left alone."""

    def __init__(self, commands: list[str], arguments: Callable[[str], list[str]]) -> None:
        """`arguments` gives the words that may follow a command; it may fail."""
        self._commands = commands
        self._arguments = arguments

    def get_completions(
        self,
        document: Document,
        complete_event: CompleteEvent,  # noqa: ARG002  its signature
    ) -> Iterator[Completion]:
        """What may stand in place of the last word."""
        *before, word = document.text_before_cursor.split(" ")
        if before and before[0].startswith("/"):
            try:
                choices = self._arguments(before[0])
            except LocalSpecError:  # completion must not start or report anything
                choices = []
        else:
            choices = [] if before else self._commands
        for choice in choices:
            if choice.startswith(word):
                yield Completion(choice, start_position=-len(word))
