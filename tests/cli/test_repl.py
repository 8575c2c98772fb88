"""The conversation: real keys through prompt-toolkit's pipe, real answers from a scripted peer."""

from __future__ import annotations

import io
import json
import signal
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from rich.console import Console
from scripted import PATIENCE_SECONDS, Peer, answer, chunk
from typist import ALT_ENTER, CTRL_C, CTRL_Z, ENTER, Typist, roles

from localspec import paths
from localspec.cli.commands import COMMANDS
from localspec.cli.origins import origin_style
from localspec.cli.repl import HISTORY_BYTES, SlashCompleter, history


def test_a_conversation_carries_all_of_its_turns(peer: Peer, talk: Typist) -> None:
    """The second question reaches the model with the first one and its answer."""
    peer.streams = [answer("Paris."), answer("France.")]
    shown = talk.type(f"Capital?{ENTER}Of what?{ENTER}")
    assert [turn["content"] for turn in peer.question["messages"]] == [
        "Capital?", "Paris.", "Of what?",
    ]  # fmt: skip
    assert "Paris." in shown
    assert "tokens/s" not in shown


def test_alt_enter_and_quotes_make_one_message_of_several_lines(peer: Peer, talk: Typist) -> None:
    """Enter sends; Alt-Enter and Enter inside quotes do not."""
    peer.streams = [answer("ok"), answer("ok")]
    quoted = f'"""{ENTER}c{ENTER}d{ENTER}"""{ENTER}'
    talk.type(f"a{ALT_ENTER}b{ENTER}{quoted}")
    users = [text for role, text in roles(talk.conversation) if role == "user"]
    assert users == ["a\nb", "c\nd"]


def test_ctrl_c_stops_the_answer_and_keeps_what_was_said(peer: Peer) -> None:
    """The partial answer is a turn, the daemon is told by the closed connection."""

    class Tripwire(io.StringIO):
        """Presses Ctrl-C when the model says "two"."""

        def write(self, text: str) -> int:
            written = super().write(text)
            if "two" in text:
                signal.raise_signal(signal.SIGINT)
            return written

    peer.streams = [[chunk("one "), chunk("two ")], answer("three")]
    screen = Tripwire()
    typist = Typist(file=screen)
    typist.type(f"count{ENTER}go on{ENTER}")
    conversation = typist.conversation
    assert roles(conversation)[:2] == [("user", "count"), ("assistant", "one two ")]
    assert "kept" in screen.getvalue()
    assert peer.left.wait(PATIENCE_SECONDS)
    assert peer.question["messages"][1]["content"] == "one two "


def test_ctrl_c_on_an_empty_line_does_not_leave(peer: Peer, talk: Typist) -> None:
    """An abandoned line is forgotten; the loop goes on."""
    peer.streams = [answer("still here")]
    assert "still here" in talk.type(f"abandon{CTRL_C}hello{ENTER}")
    assert roles(talk.conversation)[0] == ("user", "hello")


def test_an_error_takes_the_question_back_and_the_loop_goes_on(peer: Peer, talk: Typist) -> None:
    """Two questions in a row would break many chat templates."""
    peer.streams = [(429, {"error": {"message": "Queue full.", "code": "busy"}}), answer("ok")]
    shown = talk.type(f"one{ENTER}two{ENTER}")
    assert "error: Queue full." in shown
    assert roles(talk.conversation) == [("user", "two"), ("assistant", "ok")]


def test_an_error_in_the_middle_keeps_what_was_said(peer: Peer, talk: Typist) -> None:
    """The text on the screen is also in the conversation."""
    died = {"error": {"message": "It died.", "code": "worker_crashed"}}
    peer.streams = [[chunk("half"), b"data: " + json.dumps(died).encode() + b"\n\n"]]
    assert "error: It died." in talk.type(f"one{ENTER}")
    assert roles(talk.conversation) == [("user", "one"), ("assistant", "half")]


def test_help_lists_every_command(talk: Typist) -> None:
    """Each command that works is listed with what it does."""
    shown = talk.type(f"/help{ENTER}")
    assert all(f"{name} " in shown for name in COMMANDS)


def test_a_narrow_window_breaks_no_word_of_ours(peer: Peer) -> None:
    """Help, settings, figures and the list of chats, in 60 columns."""
    peer.streams = [answer("ok")]
    narrow = Typist(file=(screen := io.StringIO()))
    narrow.talk.console = Console(file=screen, width=60)
    commands = "".join(f"/{name}{ENTER}" for name in ("help", "set", "stats", "chats"))
    shown = narrow.type(f"{'a long question ' * 8}{ENTER}{commands}")
    assert max(map(len, shown.splitlines())) <= 60


def test_an_unknown_command_is_not_sent_to_the_model(peer: Peer, talk: Typist) -> None:
    """A slip costs a sentence, not an answer."""
    assert "There is no /hepl" in talk.type(f"/hepl{ENTER}")
    assert not peer.asked


@pytest.mark.parametrize(
    "line",
    ["/foo", "/foo bar", "/", "/x1", "/set-temperature 1", "/help!", "/FOO", "/foo?", "/foo\nb"],
)
def test_what_looks_like_a_command_is_never_a_question(peer: Peer, talk: Typist, line: str) -> None:
    """Near a command or not: it says where the list is."""
    shown = talk.type(f"{line.replace(chr(10), ALT_ENTER)}{ENTER}")
    assert "There is no /" in shown
    assert "/help lists all" in shown
    assert not peer.asked


@pytest.mark.parametrize("line", ["/?", "/HELP", "/Help "])
def test_help_is_there_by_the_names_of_other_chats(peer: Peer, talk: Typist, line: str) -> None:
    """And however it is written."""
    assert "/regen" in talk.type(f"{line}{ENTER}")
    assert not peer.asked


@pytest.mark.parametrize(
    "line",
    ["/usr/bin/env is what?", "// a comment in C", "/* another */", "/etc holds what?", "/a.txt"],
)
def test_a_path_or_a_comment_is_a_question_and_no_command(
    peer: Peer, talk: Typist, line: str
) -> None:
    """Only a slash and a word are a command, and not where that is a directory."""
    peer.streams = [answer("ok")]
    talk.type(f"{line}{ENTER}")
    assert roles(talk.conversation)[0][1] == line


def test_ctrl_z_is_no_text(peer: Peer, talk: Typist) -> None:
    """Where there is no shell to go back to, it does nothing; it is never sent."""
    peer.streams = [answer("ok")]
    talk.type(f"{CTRL_Z}a{CTRL_Z}b{ENTER}{CTRL_Z}{ENTER}")
    assert roles(talk.conversation) == [("user", "ab"), ("assistant", "ok")]


def test_settings_reach_the_next_request(peer: Peer, talk: Typist) -> None:
    """/model, /system and /draft change what is asked."""
    peer.streams, peer.models = [answer("ok")], [{"id": "tiny"}]
    talk.type(f"/model tiny{ENTER}/system be brief{ENTER}/draft off{ENTER}hi{ENTER}")
    body = peer.question
    assert body["model"] == "tiny"
    assert body["messages"][0] == {"role": "system", "content": "be brief"}
    assert body["speculation"] == {"mode": "off"}


def test_model_without_a_name_lists_what_there_is(peer: Peer, talk: Typist) -> None:
    """The one in use is marked."""
    peer.models = [{"id": "tiny"}, {"id": "large"}]
    talk.conversation.model = "tiny"
    assert "* tiny\n  large\n" in talk.type(f"/model{ENTER}")


def test_draft_show_colours_tokens_by_origin(peer: Peer) -> None:
    """Each source has its colour, the target none, and a legend says which is which."""
    origins = [[2, "target"], [3, "lookup"], [1, "model"]]
    peer.streams = [[chunk("ab cde", origins=origins), *answer()]]
    screen = io.StringIO()
    typist = Typist(file=screen)
    typist.talk.console = Console(
        file=screen, width=100, force_terminal=True, color_system="standard"
    )
    typist.type(f"/draft on show{ENTER}hi{ENTER}")
    assert peer.question["return_origins"] is True
    assert peer.question["speculation"] == {"mode": "always"}
    codes = {"cyan": 36, "bright_blue": 94}
    lookup, model = (codes[origin_style(source)] for source in ("lookup", "model"))
    assert lookup != model
    assert f"ab\x1b[{lookup}m cd\x1b[0m\x1b[{model}me\x1b[0m\n" in screen.getvalue()
    assert f"\x1b[{lookup}mlookup\x1b[0m" in screen.getvalue()


def test_a_saved_conversation_comes_back_whole(peer: Peer, talk: Typist, home: Path) -> None:
    """Turns, system prompt and model; the file is private."""
    peer.streams = [answer("hello")]
    talk.conversation.system, talk.conversation.model = "kind", "tiny"
    talk.type(f"hi{ENTER}/save first{ENTER}")
    (saved,) = home.rglob("first.json")
    assert saved.stat().st_mode & 0o777 == 0o600
    other = Typist()
    other.type(f"/load first{ENTER}")
    assert roles(other.conversation) == [("user", "hi"), ("assistant", "hello")]
    assert (other.conversation.system, other.conversation.model) == ("kind", "tiny")


@pytest.mark.parametrize("name", ["../x", "", "a/b", ".hidden", "x" * 101])
def test_a_name_that_leaves_the_directory_is_refused(name: str, talk: Typist, home: Path) -> None:
    """Names are names, not paths."""
    assert "cannot name a saved chat" in talk.type(f"/save {name}{ENTER}")
    assert not list(home.rglob("*.json"))


def test_a_damaged_file_leaves_the_conversation_alone(talk: Typist) -> None:
    """The error names the file."""
    talk.conversation.say("user", "precious")
    path = paths.state_dir() / "chats" / "bad.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"turns": [1]}')
    said = talk.type(f"/load bad{ENTER}/load none{ENTER}")
    assert "is not a saved chat" in " ".join(said.split())  # which the screen's width has broken
    assert roles(talk.conversation) == [("user", "precious")]


def test_undo_clear_and_regen_edit_the_conversation(peer: Peer, talk: Typist) -> None:
    """/regen asks the same again, /undo takes a pair back, /clear all."""
    peer.streams = [answer("first"), answer("second"), answer("third")]
    talk.type(f"a{ENTER}/regen{ENTER}b{ENTER}/undo{ENTER}")
    assert roles(talk.conversation) == [("user", "a"), ("assistant", "second")]
    shown = talk.type(f"/clear{ENTER}/regen{ENTER}/undo{ENTER}")
    assert roles(talk.conversation) == []
    assert "no question to answer again" in shown
    assert "nothing to take back" in shown


def test_stats_show_sources_and_positions(peer: Peer, talk: Typist) -> None:
    """Everything that the last chunk told."""
    peer.streams = [answer("ok")]
    shown = talk.type(f"/stats{ENTER}hi{ENTER}/stats{ENTER}")
    assert "no finished answer yet" in shown
    assert "102 of 130 accepted; by position 87% 50%" in shown
    assert "84, verified by the coupled rule" in shown


@pytest.mark.parametrize("line", ["/bye", "/quit", "/exit"])
def test_bye_leaves(talk: Typist, line: str) -> None:
    """Without waiting for Ctrl-D; also by the words of other chats."""
    assert "/clear" not in talk.type(f"{line}{ENTER}/help{ENTER}")


def test_the_history_is_private_and_bounded(home: Path, talk: Typist) -> None:
    """0600, kept between runs, cut at an entry when it grows too large."""
    history(talk.talk).append_string("a question")
    (path,) = home.rglob("history")
    assert path.stat().st_mode & 0o777 == 0o600
    assert "a question" in path.read_text()
    path.write_text("\n# then\n+old line\n" * (HISTORY_BYTES // 16))
    history(talk.talk).append_string("newest")
    assert path.stat().st_size <= HISTORY_BYTES // 2 + 100
    assert list(history(talk.talk).load_history_strings())[:2] == ["newest", "old line"]
    assert set(history(talk.talk).load_history_strings()) == {"newest", "old line"}


def test_no_history_is_written_when_none_is_wanted(
    home: Path, talk: Typist, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LOCALSPEC_NOHISTORY leaves no trace."""
    monkeypatch.setenv("LOCALSPEC_NOHISTORY", "1")
    history(talk.talk).append_string("a secret")
    assert not list(home.rglob("history"))


def completions(talk: Typist, text: str) -> list[str]:
    """Completions that Tab offers after `text`."""
    completer = SlashCompleter(talk.talk)
    return [found.text for found in completer.get_completions(Document(text), CompleteEvent())]


def test_tab_completes_commands_their_words_and_paths_only(
    peer: Peer, talk: Typist, home: Path
) -> None:
    """Ordinary text has no completions."""
    peer.models = [{"id": "tiny"}]
    (home / "notes.txt").touch()
    (home / "my notes.txt").touch()
    assert completions(talk, "/dr") == ["/draft"]
    assert completions(talk, "/draft o") == ["on", "off"]
    assert completions(talk, "/model ") == ["tiny"]
    assert completions(talk, "/set temp") == ["temperature"]
    assert completions(talk, f"/file {home}/not") == ["es.txt"]
    assert completions(talk, f"/file {home}/my n") == ["otes.txt"]
    assert completions(talk, f"/image {home}/my n") == ["otes.txt"]
    assert completions(talk, "draw o") == []
