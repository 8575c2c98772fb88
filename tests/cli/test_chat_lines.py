"""Lines of the chat that fail say so, and leave nothing behind."""

from __future__ import annotations

from pathlib import Path
from queue import SimpleQueue

import pytest
from scripted import PATIENCE_SECONDS, Peer, answer
from typist import ENTER, Typist, roles

from localspec.chats import archive
from localspec.chats.transcript import Conversation

FULL = {
    "message": "The prompt has 9000 tokens; the context holds 8192.",
    "code": "context_length_exceeded",
    "details": {"n_ctx": 8192},
}


@pytest.mark.parametrize(
    "failed",
    [
        (400, {"error": FULL}),
        (413, {"error": {"message": "Too long.", "code": "too_large"}}),
        (400, {"error": {"message": "The template refused it.", "code": "template_error"}}),
        (422, {"error": {"message": "It killed two workers.", "code": "poisonous"}}),
    ],
)
def test_a_file_that_keeps_a_question_from_being_answered_leaves(
    peer: Peer, talk: Typist, home: Path, failed: tuple[int, object]
) -> None:
    """By itself, which is said: the next question is answered."""
    for name in ("long.txt", "b.txt"):
        (home / name).write_text("word " * 9)
    peer.streams = [failed, answer("ok")]
    shown = talk.type(f"/file {home}/long.txt{ENTER}/file {home}/b.txt{ENTER}what?{ENTER}")
    assert "Not attached any more: long.txt and b.txt." in shown
    talk.type(f"hello{ENTER}")
    assert roles(talk.conversation) == [("user", "hello"), ("assistant", "ok")]


@pytest.mark.parametrize("command", ["/clear", "/load old", "/file -"])
def test_another_conversation_begins_without_the_files_of_this_one(
    peer: Peer, talk: Typist, home: Path, command: str
) -> None:
    """A new conversation drops attached files, and says so."""
    archive.keep(
        Conversation(
            name="old",
            turns=[{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],
        )
    )
    (home / "a.py").write_text("x = 1\n")
    peer.streams = [answer("ok")]
    shown = talk.type(f"/file {home}/a.py{ENTER}{command}{ENTER}hello{ENTER}")
    assert "Not attached any more: a.py." in shown
    assert peer.question["messages"][-1]["content"] == "hello"


def test_turns_that_were_left_out_in_vain_come_back(peer: Peer, talk: Typist) -> None:
    """A question too long for the context by itself costs no turn of the conversation."""
    full = (400, {"error": FULL})
    peer.streams = [answer("A"), answer("B"), full, full, answer("C")]
    shown = talk.type(f"one{ENTER}two{ENTER}much too long{ENTER}three{ENTER}")
    assert "the oldest turns stay" in shown
    assert [turn["content"] for turn in peer.question["messages"]] == [
        "one", "A", "two", "B", "three",
    ]  # fmt: skip
    assert archive.load(archive.latest()).trimmed == 0


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("/system -", "/system TEXT sets one"),
        ("/system", "/system TEXT sets one"),
        ("/set -", "/set NAME VALUE changes one"),
        ("/chats zzz", "No chat is kept yet"),
        ("/think on", "thinking: shown"),
        ("/think loud", '/think takes "show" or "hide", not "loud".'),
        ("/draft fast", "/draft takes on, off, auto or show"),
        ("/theme", "There are: auto, dark, light, none."),
        ("/theme -", "There are: auto, dark, light, none."),
        ("/file", "/file PATH attaches one"),
        ("/file -", "/file PATH attaches one"),
        ("/file ~nobody-here/x", "~nobody-here/x cannot be read: No such file"),
        ("/image ~nobody-here/x", "~nobody-here/x cannot be read: No such file"),
        ("/trim 0", "/trim takes how many turns"),
        ("/trim ²", "/trim takes how many turns"),
        ("/verbose maybe", '/verbose takes "on" or "off"'),
    ],
)
def test_a_command_that_has_nothing_to_do_says_what_to_do(
    talk: Typist, line: str, words: str
) -> None:
    """In the command's own words."""
    assert words in " ".join(talk.type(f"{line}{ENTER}").split())


def test_chats_without_the_word_are_no_empty_archive(peer: Peer, talk: Typist) -> None:
    """There are some, and how to see them is said."""
    peer.streams = [answer("A")]
    assert '"zzz" in it; /chats lists all' in talk.type(f"one{ENTER}/chats zzz{ENTER}")


def test_all_settings_go_back_at_once(peer: Peer, talk: Typist) -> None:
    """/set - names what it took back."""
    peer.streams = [answer("A")]
    shown = talk.type(f"/set temperature 0.5{ENTER}/set seed 3{ENTER}/set -{ENTER}hi{ENTER}")
    assert "as configured again: temperature, seed" in " ".join(shown.split())
    assert not {"temperature", "seed"} & peer.question.keys()


def test_a_chat_says_which_model_answers(peer: Peer, talk: Typist) -> None:
    """When it opens, and when it goes on with another conversation."""
    said: SimpleQueue[str] = SimpleQueue()
    talk.talk.remark = said.put
    peer.status["models"] = [{"name": "tiny", "state": "ready"}]
    talk.talk.open()
    assert said.get(timeout=PATIENCE_SECONDS) == "tiny answers; /model names others"
    archive.keep(
        Conversation(
            name="old",
            model="big",
            turns=[{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],
        )
    )
    assert "old: 1 turn, answered by big" in talk.type(f"/load old{ENTER}")
