"""The commands of the chat, and what a rough day does to it: each as a person would type it."""

from __future__ import annotations

import base64
import inspect
import json
import os
import signal
from pathlib import Path

import pytest
from fake_terminal import FakeTerminal
from full_disk import full_disk
from rich.console import Console
from scripted import SPECULATION, TIMINGS, USAGE, Peer, answer, chunk, event
from typist import CTRL_C, ENTER, PASTE, PASTED, Looking, Typist, roles

from localspec.chats import archive
from localspec.chats.transcript import Conversation
from localspec.cli.commands import COMMANDS, named
from localspec.cli.thinking import Divider
from localspec.errors import RequestError

FULL = {
    "message": "The prompt has 9000 tokens; the context holds 8192.",
    "code": "context_length_exceeded",
    "details": {"n_ctx": 8192},
}


@pytest.fixture
def terminal(talk: Typist) -> FakeTerminal:
    """A terminal that shows the talk."""
    shown = FakeTerminal(60, 30)
    talk.talk.console = Console(file=shown, width=60, height=30, force_terminal=True)
    return shown


@pytest.fixture
def editor(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An $EDITOR that replaces any text by "better"."""
    program = home / "editor"
    program.write_text('#!/bin/sh\nprintf "better" > "$1"\n')
    program.chmod(0o755)
    monkeypatch.setenv("EDITOR", str(program))
    return program


def test_the_old_answer_stays_until_the_new_one_has_text(peer: Peer, talk: Typist) -> None:
    """/regen that fails, or that is stopped before its first token, costs nothing."""
    peer.streams = [answer("old"), (503, {"error": {"message": "No.", "code": "loading"}}), []]
    talk.type(f"question{ENTER}/regen{ENTER}")
    assert roles(talk.conversation) == [("user", "question"), ("assistant", "old")]
    with interrupted_when_asked(peer, 3):
        talk.type(f"/regen{ENTER}")
    assert roles(talk.conversation) == [("user", "question"), ("assistant", "old")]


@pytest.mark.usefixtures("editor")
@pytest.mark.parametrize("command", ["/regen", "/edit"])
def test_the_old_answer_is_kept_until_the_new_one_is_whole(peer: Peer, command: str) -> None:
    """A kill in the middle, or an error behind some text, costs nothing of it."""
    seen: list[list[tuple[str, str]]] = []
    talk = Typist(file=Looking(seen))
    talk.talk.kept_seconds = 0.0
    died = {"error": {"message": "The worker died.", "code": "worker_crashed"}}
    broken = [*map(chunk, ("one ", "two ", "three")), event(died)]
    peer.streams = [answer("old"), broken, answer("one ", "two ", "three")]
    turns = [("user", "question"), ("assistant", "old")]
    assert "so the one before it stays" in talk.type(f"question{ENTER}{command}{ENTER}")
    assert roles(talk.conversation) == turns == roles(archive.load(archive.latest()))
    talk.type(f"{command}{ENTER}")
    assert seen == [turns, turns]
    assert roles(archive.load(archive.latest()))[1:] == [("assistant", "one two three")]


@pytest.mark.usefixtures("editor")
def test_an_edited_question_that_is_not_answered_leaves_the_old_turn(
    peer: Peer, talk: Typist, home: Path
) -> None:
    """In memory and on disk; what was attached goes with the next question."""
    (home / "a.py").write_text("x = 1\n")
    failed = (503, {"error": {"message": "No.", "code": "loading"}})
    peer.streams = [answer("old"), failed, [], failed, answer("new")]
    turns = [("user", "question"), ("assistant", "old")]
    talk.type(f"question{ENTER}/edit{ENTER}")
    assert roles(talk.conversation) == turns
    with interrupted_when_asked(peer, 3):
        talk.type(f"/edit{ENTER}")
    assert roles(talk.conversation) == turns == roles(archive.load(archive.latest()))
    talk.type(f"/file {home}/a.py{ENTER}why?{ENTER}")
    talk.type(f"again?{ENTER}")
    assert peer.question["messages"][-1]["content"] == "again?\n\na.py:\n```\nx = 1\n```"
    assert talk.talk.attached == []


class interrupted_when_asked:  # noqa: N801  reads as what it does
    """Ctrl-C once the peer has received so many questions."""

    def __init__(self, peer: Peer, questions: int) -> None:
        self._peer, self._questions = peer, questions

    def __enter__(self) -> None:
        self._before = signal.signal(signal.SIGALRM, self._look)
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)

    def _look(self, *_: object) -> None:
        if sum("messages" in asked.body for asked in self._peer.asked) >= self._questions:
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise KeyboardInterrupt


def test_an_error_between_two_answers_leaves_nothing_on_the_screen(
    peer: Peer, talk: Typist, terminal: FakeTerminal
) -> None:
    """Each answer is shown once, whatever failed between them."""
    failed = (400, {"error": {"message": "unknown key contxt", "code": "config_error"}})
    peer.streams = [answer("first answer"), failed, answer("second answer")]
    talk.type(f"a{ENTER}b{ENTER}c{ENTER}")
    shown = "\n".join(terminal.lines())
    assert [shown.count(f"{word} answer") for word in ("first", "second")] == [1, 1]


def test_a_full_disk_costs_a_sentence_and_not_the_chat(peer: Peer, talk: Typist) -> None:
    """Neither the history, nor what is kept by itself, nor /save ends it; later it is kept."""
    peer.streams = [answer("one"), answer("two")]
    with full_disk():
        shown = talk.type(f"first{ENTER}/save x{ENTER}second{ENTER}")
    assert shown.count("There is no room for") >= 2
    assert [text for role, text in roles(talk.conversation) if role == "assistant"] == [
        "one",
        "two",
    ]
    talk.type(f"/save x{ENTER}")
    assert archive.load("x").turns == talk.conversation.turns


def test_what_keeps_a_question_from_being_answered_is_said_once(peer: Peer, talk: Typist) -> None:
    """And not as something with which the chat goes on; that is said of the next answer."""
    peer.streams = [(507, {"error": {"message": "Nowhere to run.", "code": "disk_full"}})]
    with full_disk():
        shown = talk.type(f"first{ENTER}")
        assert shown.count("Nowhere to run.") == 1
        assert shown.count("There is no room") == 1  # for the history of what was typed
        assert "The chat goes on" not in shown
        peer.streams = [answer("two")]
        assert "The chat goes on" in talk.type(f"second{ENTER}")


def test_a_file_that_begins_with_quotes_can_be_pasted(peer: Peer, talk: Typist) -> None:
    """A fence is one that was typed alone; what is pasted into one belongs to it."""
    module = '"""\nWhat it does.\n"""\nimport re'
    peer.streams = [answer("ok"), answer("ok")]
    talk.type(f"{PASTE}{module}{PASTED}{ENTER}")
    assert talk.conversation.turns[0]["content"] == module
    talk.type(f'"""{ENTER}{PASTE}{module}{PASTED}{ENTER}"""{ENTER}')
    assert talk.conversation.turns[2]["content"] == module


def test_a_conversation_longer_than_the_context_goes_on(peer: Peer, talk: Typist) -> None:
    """The oldest turns are left out, which is said; they stay in the kept chat."""
    peer.streams = [answer("A"), answer("B"), (400, {"error": FULL}), answer("C")]
    shown = talk.type(f"one{ENTER}two{ENTER}three{ENTER}")
    assert "leaving out the oldest 2 turns" in shown
    assert [turn["content"] for turn in peer.question["messages"]] == ["three"]
    assert len(archive.load(archive.latest()).turns) == 6


def test_the_footer_has_a_meter_and_trim_makes_room(peer: Peer, talk: Typist) -> None:
    """From half of the context on, with a warning when it is nearly full."""
    peer.models = [{"id": "tiny", "meta": {"n_ctx": 400}}]
    peer.streams = [answer("A"), answer("B"), answer("C")]
    talk.talk.verbose = True
    shown = talk.type(f"one{ENTER}two{ENTER}/trim 1{ENTER}three{ENTER}/trim x{ENTER}")
    assert "the context is 82% full" in shown
    assert "/trim leaves the oldest turns out" in shown
    assert "the oldest 1 turn is not sent" in shown
    assert peer.question["messages"][0]["content"] == "two"
    assert 'how many turns, not "x"' in shown


def test_an_answer_that_filled_the_context_says_so_and_what_goes_on(
    peer: Peer, talk: Typist
) -> None:
    """A full context is told from a set limit; after /trim there is room for all of it."""
    peer.models = [{"id": "tiny", "meta": {"n_ctx": 328}}]
    figures = chunk(finish="length", timings=TIMINGS, speculation=SPECULATION)
    usage = event({"model": "tiny", "choices": [], "usage": USAGE})
    peer.streams = [[chunk("A"), figures, usage, b"data: [DONE]\n\n"]]
    talk.talk.verbose = True
    shown = talk.type(f"one{ENTER}")
    assert "cut at the end of the context" in shown
    assert "The context is full: /trim leaves the oldest turns out, then /regen" in shown
    assert "limit" not in shown


def test_a_name_that_is_no_model_is_refused_with_the_names(peer: Peer, talk: Typist) -> None:
    """And the one in use stays."""
    peer.models = [{"id": "tiny"}, {"id": "large"}]
    shown = talk.type(f"/model nosuch{ENTER}")
    assert 'no model "nosuch"' in shown
    assert "tiny, large" in shown
    assert talk.conversation.model is None


def test_only_known_commands_are_commands(peer: Peer, talk: Typist) -> None:
    """/etc is a directory; a slip of the finger is still no question."""
    peer.streams = [answer("a directory")]
    assert "Did you mean /model?" in talk.type(f"/modle tiny{ENTER}")
    talk.type(f"/etc what is this?{ENTER}")
    assert roles(talk.conversation)[0] == ("user", "/etc what is this?")


@pytest.mark.parametrize("name", [name for name, one in COMMANDS.items() if one.alone])
def test_a_command_that_takes_no_words_does_nothing_with_some(name: str) -> None:
    """It says so; every function that does not look at its words is one of these."""
    with pytest.raises(RequestError, match=f"{name} takes no words"):
        named(f"{name} now")
    assert named(f"{name}  ")[0] is COMMANDS[name]
    careless = {
        key for key, one in COMMANDS.items() if "_" in inspect.signature(one.run).parameters
    }
    assert careless == {key for key, one in COMMANDS.items() if one.alone}


def test_a_conversation_goes_on_below_its_last_answer_as_it_was_drawn(talk: Typist) -> None:
    """Whole, so that one sees how it ended; of a question that was a file, its beginning."""
    rows = [f"row {number}" for number in range(20)]
    told = Conversation(name="long")
    told.say("user", "\n".join(rows))
    told.say("assistant", "\n".join(["So **many**:", "", *(f"- {row}" for row in rows)]))
    talk.talk.resume(told)
    assert talk.shown.split("\n")[:12] == [
        "long: 1 turn", ">>> row 0", *rows[1:8], "...", "So many:", "",
    ]  # fmt: skip
    assert "• row 19\n" in talk.shown


def test_loading_shows_where_one_was(peer: Peer, talk: Typist) -> None:
    """The last question and its answer."""
    peer.streams = [answer("forty-two")]
    talk.type(f"the answer?{ENTER}/save deep{ENTER}/clear{ENTER}")
    shown = talk.type(f"/load deep{ENTER}")
    assert ">>> the answer?" in shown
    assert "forty-two" in shown
    assert "There is no saved chat" in talk.type(f"/load x{ENTER}")


def test_undo_puts_the_question_back_into_the_line(peer: Peer, talk: Typist) -> None:
    """Enter asks it again, as it is or changed."""
    peer.streams = [answer("A"), answer("B")]
    talk.type(f"one{ENTER}/undo{ENTER}, or two?{ENTER}")
    assert roles(talk.conversation) == [("user", "one, or two?"), ("assistant", "B")]


@pytest.mark.usefixtures("editor")
def test_edit_asks_the_changed_question(
    peer: Peer, talk: Typist, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In $EDITOR; one that changes nothing asks nothing."""
    peer.streams = [answer("A"), answer("B")]
    assert ">>> better" in talk.type(f"good{ENTER}/edit{ENTER}")
    assert roles(talk.conversation) == [("user", "better"), ("assistant", "B")]
    monkeypatch.setenv("EDITOR", "true")
    assert "not changed" in talk.type(f"/edit{ENTER}")


def test_settings_are_numbers_in_their_range(peer: Peer, talk: Typist) -> None:
    """/set alone lists them, a name shows one, - goes back to what is configured."""
    peer.streams = [answer("ok"), answer("ok")]
    shown = talk.type(
        f"/set temperature 0.5{ENTER}/set seed=7{ENTER}/set top_p 2{ENTER}/set heat 1{ENTER}"
        f"/set top_k 1.5{ENTER}/set{ENTER}hi{ENTER}"
    )
    assert {key: peer.question[key] for key in ("temperature", "seed")} == {
        "temperature": 0.5, "seed": 7,
    }  # fmt: skip
    assert not {"top_p", "top_k", "heat"} & peer.question.keys()
    assert shown.count("is out of range") == 2
    assert "no setting heat" in shown
    assert "temperature: 0.5" in talk.type(f"/set temperature{ENTER}/set seed -{ENTER}hi{ENTER}")
    assert "seed" not in peer.question
    assert peer.question["temperature"] == 0.5


def test_a_file_goes_with_the_next_question_and_a_picture_is_refused(
    peer: Peer, talk: Typist, home: Path
) -> None:
    """In a fence, once."""
    (home / "a.py").write_text("x = 1\n")
    (home / "b.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    peer.streams = [answer("ok"), answer("ok")]
    shown = talk.type(f"/file {home}/b.png{ENTER}/file {home}/a.py{ENTER}why?{ENTER}")
    assert "is a picture" in shown
    assert peer.question["messages"][0]["content"] == "why?\n\na.py:\n```\nx = 1\n```"
    talk.type(f"and?{ENTER}")
    assert peer.question["messages"][-1]["content"] == "and?"


def test_copy_reaches_the_terminal_and_raw_shows_the_source(
    peer: Peer, talk: Typist, terminal: FakeTerminal
) -> None:
    """OSC 52 with the answer, or with one of its blocks of code; not with what was thought."""
    said = "Try **this**:\n\n```sh\nls -l\n```\n"
    peer.streams = [answer("<think>\n```sh\nrm\n```\n</think>\n" + said)]
    talk.type(f"how?{ENTER}/copy{ENTER}/copy 1{ENTER}/copy 2{ENTER}/raw{ENTER}")
    sent = terminal.getvalue()
    for text in (said, "ls -l\n"):
        assert f"\x1b]52;c;{base64.b64encode(text.encode()).decode()}\x07" in sent
    assert "no block of code 2" in sent
    assert "Try **this**:" in sent


@pytest.mark.parametrize("mode", ["show", "hide"])
def test_thinking_is_dimmed_or_counted_and_never_lost(
    peer: Peer, talk: Typist, terminal: FakeTerminal, mode: str
) -> None:
    """Told apart by the server or by tags; the conversation keeps what the model said."""
    thought = chunk("", reasoning=None)
    fields = json.loads(thought.removeprefix(b"data: "))
    fields["choices"][0]["delta"] = {"reasoning_content": "let me see "}
    told = b"data: " + json.dumps(fields).encode() + b"\n\n"
    peer.streams = [answer("<think>deep", " thought</think>", "So."), [told, *answer("Yes.")]]
    talk.type(f"/think {mode}{ENTER}a{ENTER}b{ENTER}")
    shown = "\n".join(terminal.lines())
    for words, count in (("deep thought", 2), ("let me see", 3)):
        assert (words in shown) == (mode == "show")
        assert (f"thought {count} words" in shown) == (mode == "hide")
    assert "So." in shown
    talk.type(f"/think show{ENTER}")
    assert "\n".join(terminal.lines()).count("let me see") == 1
    assert [turn["content"] for turn in talk.conversation.turns[1::2]] == [
        "<think>deep thought</think>So.", "Yes.",
    ]  # fmt: skip


def test_tags_are_found_wherever_pieces_end() -> None:
    """Half a tag is held back; a tag that does not begin the answer is text."""
    text = "<think>a < b</think>c <think>"
    for at in range(len(text)):
        divider = Divider()
        parts = [*divider.feed(text[:at]), *divider.feed(text[at:]), *divider.close()]
        assert "".join(part for thinking, part in parts if thinking) == "a < b"
        assert "".join(part for thinking, part in parts if not thinking) == "c <think>"


def test_a_theme_and_the_system_prompt_of_a_preset(peer: Peer, talk: Typist) -> None:
    """Variables must be given, and known."""
    peer.streams = [answer("oui")]
    shown = talk.type(
        f"/theme pink{ENTER}/theme none{ENTER}/system @translate{ENTER}"
        f"/system @translate language=French tone=low{ENTER}/system @nosuch{ENTER}"
        f"/system @translate language=French{ENTER}yes{ENTER}"
    )
    assert 'no theme "pink"' in shown
    assert "@translate needs language." in shown
    assert "@translate knows no tone." in shown
    assert "There are: brief, code" in shown
    assert "into French" in peer.question["messages"][0]["content"]


def test_the_model_is_loaded_while_the_first_line_is_typed(peer: Peer, talk: Typist) -> None:
    """The daemon is asked for it when the chat opens, and the first question waits for nothing."""
    peer.streams = [answer("ok")]
    talk.talk.open()
    talk.type(f"hi{ENTER}")
    assert next(asked.path for asked in peer.asked if asked.body) == "/v1/models/load"


def test_a_terminal_that_goes_away_loses_nothing(peer: Peer, talk: Typist) -> None:
    """SIGHUP in the middle of an answer: what was said is kept, and the loop ends."""
    peer.streams = [[chunk("half"), chunk(" an answer")]]

    class Gone(FakeTerminal):
        """Hangs up at the second piece, and cannot be written to any more."""

        def write(self, text: str) -> int:
            if "an answer" in text:
                os.kill(os.getpid(), signal.SIGHUP)
                raise OSError(5, "Input/output error")
            return super().write(text)

    talk.talk.console = Console(file=Gone(60, 30), force_terminal=False)
    talk.type(f"go{ENTER}never asked{ENTER}")
    assert archive.load(archive.latest()).turns[1]["content"] == "half an answer"
    assert len(talk.conversation.turns) == 2


def test_ctrl_c_leaves_a_line_and_not_the_chat(talk: Typist) -> None:
    """As in a shell."""
    assert "There is no answer yet" in talk.type(f"nothing{CTRL_C}/raw{ENTER}")


@pytest.fixture(autouse=True)
def no_clipboard(monkeypatch: pytest.MonkeyPatch) -> None:
    """No program of this machine's desktop is called."""
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
