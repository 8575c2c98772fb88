"""A conversation at a terminal: sends questions, keeps answers, reports events. Reads no keys."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from localspec.chats import archive
from localspec.chats.transcript import Conversation, Turn
from localspec.cli import chosen, footer, launch, render
from localspec.cli.answer import Answer
from localspec.cli.asking import ask
from localspec.cli.columns import advice, wrapped
from localspec.cli.theme import Theme, theme
from localspec.cli.thinking import parted
from localspec.cli.waiting import followed, loaded_entry, without_draft
from localspec.client import Client, End, Piece
from localspec.errors import (
    ContextOverflow,
    LocalSpecError,
    NotRunning,
    Poisonous,
    RequestError,
    TemplateError,
    TooLarge,
    of_system,
)

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from rich.console import Console

    from localspec.cli.screen import Screen

_REFUSED_TEXT = (ContextOverflow, TooLarge, TemplateError, Poisonous)
"""Errors that a text causes: if its files stayed attached, every later question would fail, too."""
FULL = 0.8
"""From this share of the context on, a warning follows every answer."""
KEPT_SECONDS = 5.0
"""The pause between two saves of a growing answer; a killed process loses no more than that."""
_ROOM = 0.5
"""The share of the text kept at an overflow: a small cut would lose the cached prefix each turn."""
_SHOWN_MESSAGES = 2
_SHOWN_ROWS = 8
"""The rows that are shown of a question, which may be a whole file."""


class Attached(NamedTuple):
    """A file that goes with the next question: its name, and its text in a fence."""

    name: str
    text: str


def turns(count: int) -> str:
    """`1 turn`, `3 turns`: a turn is a question with its answer."""
    return f"{count} turn{'s' * (count != 1)}"


class Talk:
    """One conversation, how it is shown, and where it is kept. Owned by the main thread."""

    def __init__(  # noqa: PLR0913  what a terminal and a person decide
        self,
        conversation: Conversation,
        *,
        spawn: bool,
        verbose: bool = False,
        console: Console | None = None,
        look: Theme | None = None,
        keep: bool = True,
    ) -> None:
        """A talk over `conversation`, which may already have turns; `keep` writes it to disk.

        `verbose` says how fast each answer came.
        """
        self.conversation = conversation
        self.verbose = verbose
        if console:
            self.console = console
        self.look = look or theme("auto")
        self.keeping = keep
        self.kept_seconds = KEPT_SECONDS
        self.show_thinking = True
        self.thoughts = ""
        """The thoughts before the last answer, shown or not."""
        self.next_line = ""
        """The beginning of the next prompt."""
        self.attached: list[Attached] = []
        """Files that go with the next question."""
        self.ended: End | None = None
        self.plain_ms = 0.0
        """Milliseconds a token of the last answer takes without speculation; 0 if unknown."""
        self.over = False
        self.typing: Callable[[Screen], AbstractContextManager[None]] | None = None
        """Shows the next line while something else is shown; none where typing is impossible."""
        self.remark: Callable[[str], None] = self.say
        """Says something from any thread."""
        self._spawn = spawn
        self._kept_badly = False
        self._opening: threading.Thread | None = None

    @cached_property
    def console(self) -> Console:
        """The console, made at its first use: the prompt does not wait for rich."""
        from rich.console import Console  # noqa: PLC0415  slow to import

        return Console(highlight=False)

    def open(self) -> None:
        """Begin to start the daemon and to load the model, while the user still types."""
        self._begin(self._greet)

    def await_opened(self) -> None:
        """Wait for the daemon that `open` is starting, and show a notice meanwhile."""
        screen = self._screen()
        with self._keys(screen):
            self._opened(self._notice(screen))

    def switch(self) -> None:
        """Load another model and report how it went; Ctrl-C returns to the prompt meanwhile."""
        self._begin(lambda _client, _name: None)
        screen = self._screen()
        notice, took = self._notice(screen), ""
        client, name = chosen.client(), self.conversation.model or ""
        try:
            with self._keys(screen):
                self._opened(notice)
                took = followed(client, name, notice)
            if took:
                self.say(took)
                self._look(client, name)
        except KeyboardInterrupt:
            self.say("It goes on loading.")
        except NotRunning:
            pass
        finally:
            notice.clear()

    def ask(self, question: str, before: Sequence[Turn] = ()) -> None:
        """Ask one question with its files, and show the answer; `before` as in `answer`."""
        asked = "\n\n".join([question, *(file.text for file in self.attached)])
        self.conversation.say("user", asked)
        try:
            self.answer(before)
        except _REFUSED_TEXT as error:
            if left := self.detach():
                error.fix = f"{error.fix}\n{left}".strip()
            raise
        finally:
            if self.conversation.last("user") == asked:  # else they go with the next one
                self.attached = []

    def detach(self) -> str:
        """Detach the files of the next question. Returns a sentence that names them."""
        names = " and ".join(file.name for file in self.attached)
        count, self.attached = len(self.attached), []
        return f"Not attached any more: {names}." if count else ""

    def answer(self, before: Sequence[Turn] = ()) -> None:
        """Ask for the next turn; the text that arrived is kept, whatever ended the answer.

        `before` are the turns as they were before an edit or a new try; they come back if the new
        answer has no text or ends in an error, and stay on disk until it is whole. Images that the
        daemon refused are not sent again.
        """
        try:
            self._answer(before)
        except RequestError as error:
            if self.conversation.images and ".content[" in (error.param or ""):
                error.fix = f"{error.fix}\n{self._leave_images_out()}".strip()
            raise

    def _leave_images_out(self) -> str:
        """Forget the conversation's images. Returns a sentence that names them."""
        labels = [*self.conversation.images]
        self.conversation.images.clear()
        self.attached = [file for file in self.attached if file.text not in labels]
        return f"Not sent any more: {' and '.join(labels)}."

    def _answer(self, before: Sequence[Turn]) -> None:
        if not before:  # else the turns before the change stay on disk, too
            self.keep(aloud=False)  # the request, or `keep` below, reports a failing disk
        try:
            answer = self._request(_keep_nothing if before else self._keep_begun)
        except (LocalSpecError, KeyboardInterrupt):
            self._put_back(before)
            raise
        if answer.text and not (before and answer.error):
            self.conversation.say("assistant", answer.text)
            self.thoughts = answer.thoughts.strip() or parted(answer.text)[0]
        else:
            self._put_back(before)
        self.keep()
        self.ended = answer.end
        if answer.error:
            if answer.text and before:
                self.say("This answer is not whole, so the one before it stays.")
            raise answer.error
        if answer.interrupted:
            self.say("stopped; what was said is kept" if answer.text else "stopped")
        elif answer.end:
            self._tell(answer.end)

    def keep(self, *, aloud: bool = True) -> None:
        """Write the conversation; an error of the disk is reported once, and the chat goes on.

        Without `aloud` the error is not reported now; the next call does that.
        """
        if not self.keeping or not self.conversation.turns:
            return
        before = self.conversation.name
        try:
            archive.keep(self.conversation)
        except OSError as error:
            if aloud and not self._kept_badly:
                self.complain(of_system(error))
                self.say("The chat goes on; it is not kept until that is mended.")
            self._kept_badly = self._kept_badly or aloud
        else:
            self._kept_badly = False
            if before not in {"", self.conversation.name}:
                self.say(f"{before} went on elsewhere; this is now {self.conversation.name}.")

    def resume(self, conversation: Conversation) -> None:
        """Go on with another conversation, and show how it ended."""
        self.conversation = conversation
        self.ended, self.thoughts = None, ""
        if any("[image: " in turn["content"] for turn in conversation.turns):
            self.say("Its images are not kept; /image PATH attaches one again.")
        self.next_line = conversation.take_back("user") or ""
        answers = f", answered by {conversation.model}" if conversation.model else ""
        self.say(f"{conversation.name}: {turns(conversation.count)}{answers}")
        from localspec.cli import retold  # noqa: PLC0415  slow to import
        from localspec.cli.screen import Screen  # noqa: PLC0415  as above

        shown = conversation.turns[-_SHOWN_MESSAGES:]
        retold.show(shown, Screen(self.console), self.look, most_rows=_SHOWN_ROWS)
        if self.next_line:
            self.say("The last question has no answer yet: Enter asks it again.")

    def models(self) -> list[str]:
        """The models to talk to. Raises what `Client` raises."""
        return [entry["id"] for entry in chosen.client().models()]

    def say(self, text: str) -> None:
        """Print a remark of the program, apart from the model's words."""
        self._print(text, self.look.aside)

    def show(self, text: str) -> None:
        """Print the output of a command."""
        self._print(text, soft_wrap=True)

    def complain(self, error: LocalSpecError) -> None:
        """Print an error and its fix."""
        first, *others = render.sentences(error)
        self._print(first, self.look.trouble)
        for line in others:
            self._print(advice(line, self.console.width), soft_wrap=True)

    def _print(self, text: str, style: str = "", *, soft_wrap: bool = False) -> None:
        from rich.text import Text  # noqa: PLC0415  slow to import

        self.console.print(Text(render.printable(text), style=style), soft_wrap=soft_wrap)

    def _begin(self, then: Callable[[Client, str], None]) -> None:
        self._opening = threading.Thread(target=self._prepare, args=(then,), daemon=True)
        self._opening.start()

    def _prepare(self, then: Callable[[Client, str], None]) -> None:
        with contextlib.suppress(LocalSpecError, OSError):  # the next question reports it
            client = launch.reach(spawn=self._spawn, tell=lambda _: None)
            name = client.load(self.conversation.model)["model"]
            threading.Thread(target=then, args=(client, name), daemon=True).start()
        from localspec.cli import live  # noqa: F401, PLC0415  slow, and the prompt is there first

    def _greet(self, client: Client, name: str) -> None:
        """Name the model that answers, and later why it has no draft."""
        self.remark(f"{name} answers; /model names others")
        self._look(client, name)

    def _look(self, client: Client, name: str) -> None:
        """Report why a model has no draft, once it is loaded."""
        with contextlib.suppress(LocalSpecError, OSError):
            if why := without_draft(loaded_entry(client, name)):
                self.remark(why)

    def _opened(self, notice: render.Notice) -> None:
        """Wait for the thread that `open` started."""
        if self._opening and self._opening.is_alive():
            notice.show("starting the daemon")
            try:
                self._opening.join()
            finally:
                notice.clear()

    def _request(self, keep: Callable[[str], None]) -> Answer:
        """Send the conversation; turns left out to make room come back if no text arrives."""
        sent, answer = self.conversation.trimmed, None
        try:
            answer = self._asked_until_it_fits(keep)
        finally:
            if self.conversation.trimmed != sent and not (answer and answer.text):
                self.conversation.trimmed = sent
                self.say("There is no answer, so the oldest turns stay in the conversation.")
        return answer

    def _asked_until_it_fits(self, keep: Callable[[str], None]) -> Answer:
        while True:
            self.await_opened()
            screen = self._screen()
            notice, keys = self._notice(screen), partial(self._keys, screen)
            sink = _KeepingSink(self._sink(screen), keep, self.kept_seconds)
            answer = ask(self.conversation, sink, notice, spawn=self._spawn, keys=keys)
            if answer.text or not isinstance(answer.error, ContextOverflow):
                return answer
            left_out = self.conversation.make_room(_ROOM)
            if not left_out:
                return answer
            self.say(f"The context is full: leaving out the oldest {turns(left_out)}.")

    def _keep_begun(self, text: str) -> None:
        """Keep the part of an answer that arrived, in case this process is killed in the middle."""
        if not self.keeping:
            return
        turns = [*self.conversation.turns, {"role": "assistant", "content": text}]
        begun = replace(self.conversation, turns=turns)
        with contextlib.suppress(OSError):  # reported when the answer is over, not in its middle
            archive.keep(begun)
            self.conversation.name, self.conversation.stamp = begun.name, begun.stamp

    def _put_back(self, before: Sequence[Turn]) -> None:
        if before:
            self.conversation.turns[:] = before
        else:
            self.conversation.take_back("user")

    def _tell(self, end: End) -> None:
        share = self._share(end)
        if self.verbose:
            self.measure(end)
            figures = footer.line(end, self.plain_ms, share)
            self.say(wrapped(figures, self.console.width))
        if share >= footer.WHOLE_SHARE and end.reason == "length":
            self.say("The context is full: /trim leaves the oldest turns out, then /regen answers.")
        elif end.reason == "length":
            self.say("The answer was cut at the token limit: /set max_tokens - lifts it.")
        elif share >= FULL:
            self.say("The context is nearly full: /trim leaves the oldest turns out.")

    def measure(self, end: End) -> None:
        """Read the cost of a token without speculation from the status, where it is known."""
        with contextlib.suppress(LocalSpecError, OSError):
            self.plain_ms = plain_ms(Client.from_environment(), end)

    def _share(self, end: End) -> float:
        """The share of the context that the conversation takes; 0 where it is not known."""
        used = end.usage.get("prompt_tokens", 0) + end.usage.get("completion_tokens", 0)
        with contextlib.suppress(LocalSpecError, OSError):
            for entry in Client.from_environment().models():
                if entry["id"] == end.model and (context := entry.get("meta", {}).get("n_ctx")):
                    return float(used / context)
        return 0.0

    def _screen(self) -> Screen | None:
        """The screen to draw lines on; None for a terminal without cursor movement."""
        if not self.console.is_terminal or self.console.is_dumb_terminal:
            return None
        from localspec.cli.screen import Screen  # noqa: PLC0415  imported by `_prepare`

        return Screen(self.console)

    def _notice(self, screen: Screen | None) -> render.Notice:
        if not screen:
            return render.Notice()
        from localspec.cli.screen import DrawnNotice  # noqa: PLC0415  as above

        return DrawnNotice(screen, self.look.aside)

    def _keys(self, screen: Screen | None) -> AbstractContextManager[None]:
        return self.typing(screen) if self.typing and screen else contextlib.nullcontext()

    def _sink(self, screen: Screen | None) -> render.Sink:
        if not screen:
            return render.PlainSink(self.console.file)
        if self.conversation.show_origins:
            from localspec.cli.origins import OriginSink  # noqa: PLC0415  slow to import

            return OriginSink(screen)
        from localspec.cli.live import MarkdownSink  # noqa: PLC0415  imported by `_prepare`

        return MarkdownSink(screen, self.look, show_thinking=self.show_thinking)


def _keep_nothing(_: str) -> None:
    """Leave the file alone: it has the whole answer that a new one may replace."""


class _KeepingSink:
    """A sink whose terminal may vanish: the answer is still received, and saved now and then."""

    def __init__(
        self, sink: render.Sink, keep: Callable[[str], None], pause_seconds: float
    ) -> None:
        self._sink = sink
        self._keep = keep
        self._pause_seconds = pause_seconds
        self._text = ""
        self._kept_at = monotonic()

    def write(self, piece: Piece) -> None:
        """Pass the piece on while the terminal is there."""
        with contextlib.suppress(OSError):
            self._sink.write(piece)
        self._text += "" if piece.thinking else piece.text
        if monotonic() - self._kept_at >= self._pause_seconds:
            self._keep(self._text)
            self._kept_at = monotonic()

    def close(self, end: End | None) -> None:
        """Close the sink, while the terminal is there."""
        with contextlib.suppress(OSError):
            self._sink.close(end)


def plain_ms(client: Client, end: End) -> float:
    """Milliseconds that a token would have cost without speculation; 0 if that is unknown."""
    models = client.status().get("models", [])
    return next((footer.plain_ms(one, end) for one in models if one["name"] == end.model), 0.0)


def missing(what: str) -> RequestError:
    """The error of a command that needs an answer, or a question, where there is none."""
    return RequestError(f"There is no {what}.")
