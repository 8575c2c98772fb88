"""Conversations last: what is kept, how it is found again, and by whom it may be read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from scripted import Peer, answer
from typist import ENTER, Looking, Typist, roles
from user_home import UserHome

from localspec import paths
from localspec.chats import archive
from localspec.chats.transcript import Conversation
from localspec.cli import chosen
from localspec.cli.main import cli


def localspec(*arguments: str, stdin: str = "") -> Result:
    """`localspec ARGUMENTS`, in process."""
    return CliRunner().invoke(cli, arguments, input=stdin)


def kept(name: str, *turns: str, system: str = "", changed_at: float = 0.0) -> Conversation:
    """A conversation on disk; questions and answers take turns."""
    conversation = Conversation(name=name, system=system)
    for place, text in enumerate(turns):
        conversation.say("assistant" if place % 2 else "user", text)
    path = archive.keep(conversation)
    if changed_at:
        os.utime(path, (changed_at, changed_at))
    return conversation


def test_every_conversation_is_kept_privately_from_its_first_question_on(
    peer: Peer, talk: Typist
) -> None:
    """0600 in 0700, in one file however long it becomes, also when no answer comes."""
    peer.streams = [answer("A"), (503, {"error": {"message": "No.", "code": "loading"}})]
    talk.type(f"one{ENTER}two{ENTER}")
    (file,) = archive.directory().iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert archive.directory().stat().st_mode & 0o777 == 0o700
    assert roles(archive.load(archive.latest())) == [("user", "one"), ("assistant", "A")]


def test_after_a_crash_the_question_is_back_in_the_line(peer: Peer, talk: Typist) -> None:
    """It was written before it was asked."""
    kept("crashed", "one", "A", "two")
    peer.streams = [answer("B")]
    talk.talk.resume(archive.load("crashed"))
    talk.type(ENTER)
    assert roles(talk.conversation)[2:] == [("user", "two"), ("assistant", "B")]


def test_what_went_on_elsewhere_is_not_replaced(peer: Peer, talk: Typist) -> None:
    """With two writers no turns are lost, and the one that gets a new name says so."""
    kept("plans", "one", "A")
    talk.talk.resume(archive.load("plans"))
    elsewhere = archive.load("plans")
    elsewhere.say("user", "two")
    archive.keep(elsewhere)
    peer.streams = [answer("B"), answer("C")]
    shown = talk.type(f"three{ENTER}four{ENTER}")

    assert roles(archive.load("plans"))[2:] == [("user", "two")]
    assert roles(archive.load(talk.conversation.name))[2:] == [
        ("user", "three"), ("assistant", "B"), ("user", "four"), ("assistant", "C"),
    ]  # fmt: skip
    assert shown.count("plans went on elsewhere") == 1


@given(st.lists(st.sampled_from("ABR"), max_size=12))
def test_every_turn_is_in_some_file(steps: list[str]) -> None:
    """Two writers in any order, one of which also renames."""
    with tempfile.TemporaryDirectory() as home, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", home)
        begun = kept("", "hello")
        writers = {"A": begun, "B": archive.load(begun.name)}
        for place, step in enumerate(steps):
            if step == "R":
                archive.rename(writers["A"], f"chosen-{place}")
                continue
            writers[step].say("user", f"turn {place}")
            archive.keep(writers[step])
        files = [roles(archive.load(name)) for name in archive.names()]
        for writer in writers.values():
            assert roles(writer) in [file[: len(writer.turns)] for file in files]


def test_a_kill_in_the_middle_of_a_long_answer_costs_its_last_seconds(
    peer: Peer, talk: Typist
) -> None:
    """The arrived part is on disk before the answer is over."""
    seen: list[list[tuple[str, str]]] = []
    talk.talk.kept_seconds = 0.0
    talk.talk.console = Console(file=Looking(seen))
    peer.streams = [answer("one ", "two ", "three")]
    talk.type(f"count{ENTER}")
    assert seen == [[("user", "count"), ("assistant", "one two ")]]


def test_nothing_is_kept_where_keep_is_off(peer: Peer) -> None:
    """chat.keep = false: only what is saved by name is on disk."""
    peer.streams = [answer("A")]
    silent = Typist()
    silent.talk.keeping = False
    silent.type(f"one{ENTER}")
    assert not archive.directory().exists()
    silent.type(f"/save mine{ENTER}")
    assert archive.names() == ["mine"]


def test_a_name_of_ones_own_replaces_the_one_it_had(peer: Peer, talk: Typist) -> None:
    """One conversation is one file; /clear begins another."""
    peer.streams = [answer("A"), answer("B"), answer("C")]
    talk.type(f"one{ENTER}/save mine{ENTER}two{ENTER}")
    assert archive.names() == ["mine"]
    assert len(archive.load("mine").turns) == 4
    talk.type(f"/clear{ENTER}three{ENTER}")
    assert len(archive.names()) == 2
    assert len(archive.load("mine").turns) == 4


def test_a_name_that_another_conversation_has_is_refused(peer: Peer, talk: Typist) -> None:
    """Nothing of either is lost; its own name is free, unless another program went on with it."""
    other = kept("plans", "precious", "B")
    peer.streams = [answer("A")]
    shown = talk.type(f"one{ENTER}/save plans{ENTER}")
    assert "There is a saved chat plans already" in shown
    assert "localspec chats rm plans" in shown
    assert roles(archive.load("plans")) == roles(other)
    assert roles(archive.load(talk.conversation.name)) == [("user", "one"), ("assistant", "A")]
    assert talk.type(f"/save mine{ENTER}/save mine{ENTER}").count("saved:") == 2
    kept("mine", "from elsewhere")
    assert "already" in talk.type(f"/save mine{ENTER}")
    assert roles(archive.load("mine")) == [("user", "from elsewhere")]


def test_the_commands_list_search_show_export_and_remove() -> None:
    """The latest first; searching finds all words, in whatever turn."""
    kept("old", "What is a monad?", "A burrito.", changed_at=1e9)
    kept("new", "Hello\nthere", "Hi, **you**.", system="kind", changed_at=2e9)
    assert [line.split()[0] for line in localspec("chats", "list").stdout.splitlines()] == [
        "new",
        "old",
    ]
    (first, _) = json.loads(localspec("chats", "list", "--json").stdout)
    assert (first["name"], first["title"], first["turns"]) == ("new", "Hello", 1)
    found = localspec("chats", "search", "BURRITO", "monad").stdout
    assert "old" in found
    assert "A burrito." in found
    nothing = localspec("chats", "search", "burrito", "hello")
    assert nothing.stdout == ""
    assert "has all of these words" in nothing.stderr
    page = localspec("chats", "show", "new").stdout
    assert page == "# Hello\n\n> kind\n\n## Question\n\nHello\nthere\n\n## Answer\n\nHi, **you**.\n"
    assert localspec("chats", "export", "new").stdout == page
    told = json.loads(localspec("chats", "export", "new", "--as", "json").stdout)
    assert [message["role"] for message in told["messages"]] == ["system", "user", "assistant"]
    assert localspec("chats", "rm", "--yes", "old").stdout == "removed: old\n"
    assert localspec("chats", "rm", "--yes", "old").exit_code == 2
    assert archive.names() == ["new"]


def test_a_conversation_is_shown_as_the_chat_shows_it(home: Path) -> None:
    """Tables are drawn and folded between words in this window; what was asked stays as typed."""
    table = "| name | where it is used |\n|---|---|\n| merge | outside of memory, and on lists |\n"
    kept("plans", "# sort?", f"So **so**:\n\n{table}", "and x<int>?", "No <div>.", system="Brief.")
    shown = UserHome(home).look("chats", "show", "plans", columns=30, terminal="xterm")
    assert [line.rstrip() for line in shown] == [
        "system: Brief.", ">>> # sort?", "So so:", "",
        "name    where it is used", "─" * 30, "merge   outside of memory, and", "        on lists",
        "", ">>> and x<int>?", "No <div>.", "",
    ]  # fmt: skip


def test_a_title_that_is_cut_says_so() -> None:
    """Somebody may look for how the question went on."""
    kept("long", "x" * 73)
    kept("short", "y" * 72)
    listed = {one.name: one.title for one in archive.listed()}
    assert listed == {"long": "x" * 71 + "…", "short": "y" * 72}


def test_an_export_has_the_turns_that_are_not_sent_any_more() -> None:
    """/trim is for the model; what was said is a person's."""
    long = kept("long", "one", "A", "two", "B")
    long.trim(1)
    archive.keep(long)
    for arguments in (("export", "long", "--as", "json"), ("show", "long", "--json")):
        told = json.loads(localspec("chats", *arguments).stdout)
        assert [message["content"] for message in told["messages"]] == ["one", "A", "two", "B"]


def test_an_export_is_a_private_file(tmp_path: Path) -> None:
    """Written whole."""
    kept("new", "Hello", "Hi.")
    assert localspec("chats", "export", "new", "-o", str(tmp_path / "a.md")).exit_code == 0
    assert (tmp_path / "a.md").read_text().startswith("# Hello")
    assert (tmp_path / "a.md").stat().st_mode & 0o777 == 0o600


def test_an_export_leaves_a_link_and_a_mode_as_they_are(tmp_path: Path) -> None:
    """Of a file that is there only the text is new."""
    kept("new", "Hello", "Hi.")
    real, link = tmp_path / "real.md", tmp_path / "link.md"
    real.write_text("old")
    real.chmod(0o644)
    link.symlink_to(real)
    assert localspec("chats", "export", "new", "-o", str(link)).exit_code == 0
    assert link.is_symlink()
    assert real.read_text().startswith("# Hello")
    assert real.stat().st_mode & 0o777 == 0o644


def test_an_export_to_a_device_is_written_there(tmp_path: Path) -> None:
    """Behind what was written before, where it is a file."""
    kept("new", "Hello", "Hi.")
    command = [sys.executable, "-m", "localspec.cli.main", "chats", "export", "new", "-o"]
    piped = subprocess.run([*command, "/dev/fd/1"], stdout=subprocess.PIPE, check=True)
    assert piped.stdout.startswith(b"# Hello")
    with (tmp_path / "log").open("ab") as log:
        for _ in range(2):
            subprocess.run([*command, "/dev/fd/1"], stdout=log, check=True)
    assert (tmp_path / "log").read_text().count("# Hello") == 2
    os.mkfifo(tmp_path / "fifo")
    with subprocess.Popen(["cat", tmp_path / "fifo"], stdout=subprocess.PIPE) as reader:
        subprocess.run([*command, tmp_path / "fifo"], check=True)
        assert reader.communicate()[0].startswith(b"# Hello")


def test_one_question_may_continue_a_conversation(peer: Peer) -> None:
    """--continue the last one, --chat any; both keep the answer. A lone question is not kept.

    A question that has no answer makes room for the new one, and is printed.
    """
    peer.streams = [answer("B"), answer("C"), answer("D")]
    kept("old", "one", "A", changed_at=1e9)
    kept("new", "eins", "A", "unanswered", changed_at=2e9)
    resumed = localspec("chat", "--continue", "zwei")
    assert resumed.exit_code == 0
    assert resumed.stdout == "B\n"
    assert "had no answer and is left out; it was:\nunanswered\n" in resumed.stderr
    assert [turn["content"] for turn in archive.load("new").turns] == ["eins", "A", "zwei", "B"]
    localspec("chat", "--chat", "old", "two")
    assert [turn["content"] for turn in peer.question["messages"]] == ["one", "A", "two"]
    localspec("chat", "alone")
    assert sorted(archive.names()) == ["new", "old"]


def test_without_a_conversation_there_is_nothing_to_continue(peer: Peer) -> None:
    """A sentence, before anything is asked."""
    done = localspec("chat", "--continue", "and?")
    assert (done.exit_code, peer.asked) == (2, [])
    assert "No conversation was kept yet." in done.stderr


@pytest.mark.parametrize(
    "text", ["", "[]", '{"turns": 1}', '{"version": 2}', "{", '{"turns":[{}]}']
)
def test_a_damaged_file_is_listed_as_such_and_hides_no_other(text: str) -> None:
    """Nothing about it is guessed."""
    kept("sound", "Hello", "Hi.")
    (archive.directory() / "bad.json").write_text(text)
    shown = localspec("chats", "list").stdout
    assert "(damaged)" in shown
    assert "Hello" in shown
    assert localspec("chats", "show", "bad").exit_code == 1
    assert "Hello" in localspec("chats", "search", "hello").stdout


def test_a_chat_of_the_first_format_is_read() -> None:
    """Conversations outlive versions."""
    path = archive.directory() / "first.json"
    paths.make_private(path.parent)
    turns = [{"role": "user", "content": "hi"}]
    path.write_text(json.dumps({"version": 1, "model": None, "system": "", "turns": turns}))
    assert archive.load("first").turns == turns


def test_presets_are_files_with_variables(home: Path) -> None:
    """Saved, listed, shown, used and removed; the built-in ones come back."""
    assert localspec("presets", "save", "polite", "Be kind, in $language. $$5").exit_code == 0
    assert (home / "config" / "localspec" / "presets" / "polite.txt").exists()
    listed = localspec("presets", "list").stdout
    assert "@polite" in listed
    assert "language=..." in listed
    assert localspec("presets", "show", "polite").stdout == "Be kind, in $language. $$5\n"
    assert localspec("presets", "save", "brief", stdin="My own.").exit_code == 0
    assert localspec("presets", "show", "brief").stdout == "My own.\n"
    assert localspec("presets", "rm", "--yes", "brief").exit_code == 0
    assert "few words" in localspec("presets", "show", "brief").stdout
    assert "is built in" in localspec("presets", "rm", "--yes", "brief").stderr
    assert localspec("presets", "save", "a/b", "x").exit_code == 2
    assert localspec("presets", "save", "bad", "5 $ each").exit_code == 2
    assert "larger than" in localspec("presets", "save", "bad", stdin="x" * 9_000_000).stderr


def test_a_preset_that_is_a_link_stays_one(home: Path) -> None:
    """Configurations often lie in a repository of their own."""
    place = home / "config" / "localspec" / "presets" / "mine.txt"
    place.parent.mkdir(parents=True)
    place.symlink_to(home / "dotfile")
    (home / "dotfile").write_text("old")
    assert localspec("presets", "save", "mine", "new").exit_code == 0
    assert place.is_symlink()
    assert (home / "dotfile").read_text() == "new\n"


def test_a_preset_that_was_written_by_hand_may_be_wrong(home: Path) -> None:
    """It is told what is wrong with it, and hides no others."""
    presets = home / "config" / "localspec" / "presets"
    presets.mkdir(parents=True)
    (presets / "price.txt").write_text("It costs $5.")
    (presets / "my own.txt").write_text("No name has a blank.")
    (presets / "latin.txt").write_bytes("Größe".encode("latin1"))
    listed = localspec("presets", "list").stdout
    assert "It costs $5." in listed
    assert "is not UTF-8 text" in listed
    assert "@translate" in listed
    asked = localspec("chat", "--no-spawn", "-s", "@price", "hi")
    assert "a $ that begins no variable" in asked.stderr
    assert asked.exit_code == 2


def test_a_preset_is_a_system_prompt_of_one_question(peer: Peer) -> None:
    """-s @NAME variable=value."""
    peer.streams = [answer("oui")]
    assert localspec("chat", "-s", "@translate language=French", "yes").exit_code == 0
    assert "into French" in peer.question["messages"][0]["content"]


def test_the_configuration_says_whether_chats_are_kept_and_how_they_look(home: Path) -> None:
    """Where there is no file nothing has to be read to know it."""
    assert chosen.chat() == (True, "auto", False)
    file = home / "config" / "localspec" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text('[chat]\nkeep = false\ntheme = "light"\n')
    assert chosen.chat() == (False, "light", False)
