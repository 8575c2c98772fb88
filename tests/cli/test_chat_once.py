"""One question: input from arguments, pipes and files; output as text or JSON; how it ends."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, get_args

import pytest
import terminal
from click.testing import CliRunner, Result
from full_disk import full_disk
from hypothesis import given
from hypothesis import strategies as st
from scripted import PATIENCE_SECONDS, SPECULATION, TIMINGS, USAGE, Peer, answer, chunk

from localspec.chats import archive
from localspec.chats.transcript import Conversation
from localspec.cli import footer, render
from localspec.cli.main import cli
from localspec.cli.material import MAX_INPUT_BYTES
from localspec.client import End
from localspec.engine.routing import SPECULATING, Reason

COST = {"cost_ms_by_rows": {"1": 38.0, "2": 41.0}}
"""Of the model "tiny"; a round of 39.9 ms without drafts would have taken 37 ms for one row."""
SPEED = "212 tokens at 48.1 tokens/s, 1.8 times as fast as without speculation"


def chat(*arguments: str, stdin: str | bytes = "") -> Result:
    """`localspec chat ARGUMENTS`, in process."""
    return CliRunner().invoke(cli, ["chat", *arguments], input=stdin)


def interrupt(process: subprocess.Popen[bytes]) -> None:
    """Press Ctrl-C until it is felt: Python may miss a signal just before it begins to wait."""
    for _ in range(round(PATIENCE_SECONDS)):
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1.0)
            return
    process.kill()


def said(peer: Peer) -> str:
    """The last message that reached the peer."""
    text: str = peer.asked[-1].body["messages"][-1]["content"]
    return text


@pytest.mark.parametrize("wish", [(), ("--verbose",), ("-v",), ("--stats",), ("--no-stats",)])
def test_a_pipe_gets_the_answer_and_nothing_else(
    peer: Peer, home: Path, wish: Sequence[str]
) -> None:
    """With any configuration and options: figures are for terminals, and --json has them all."""
    configured(home, "verbose = true")
    peer.streams = [answer("Hello", " **you**.")]
    result = chat("hi", *wish)
    assert result.exit_code == 0
    assert result.stdout == "Hello **you**.\n"
    assert result.stderr == ""


def configured(home: Path, line: str) -> None:
    """Put a line into the table [chat] of the configuration."""
    config = home / "config" / "localspec" / "config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(f"[chat]\n{line}\n")


@pytest.mark.parametrize(
    ("wish", "setting", "told"),
    [
        ((), "", False),
        (("--verbose",), "", True),
        ((), "verbose = true", True),
        (("--no-verbose",), "verbose = true", False),
        (("--json", "--verbose"), "", False),
    ],
)
def test_a_terminal_is_told_the_speed_where_that_is_wanted(
    peer: Peer, home: Path, wish: Sequence[str], setting: str, *, told: bool
) -> None:
    """How fast the answer came, and how much of that speculation brought."""
    configured(home, setting)
    peer.status["models"] = [{"name": "tiny", **COST}]
    peer.streams = [answer("Hello")]
    shown = at_a_terminal("chat", "hi", *wish)
    assert (SPEED in shown) == told
    assert ("tokens/s" in shown) == told


@given(st.floats(0.2, 50.0))
def test_a_busy_machine_makes_no_speed_up_look_smaller(slower: float) -> None:
    """Everything of an answer takes so much longer: what speculation brought is the same."""
    costs = {"cost_ms_by_rows": {"1": 20.0, "2": 24.0, "4": 30.0, "8": 50.0}}
    report: dict[str, Any] = {**SPECULATION}
    times = []
    for factor in (1.0, slower):
        seconds = {name: factor * report[name] for name in ("verify_seconds", "host_seconds")}
        end = End("stop", speculation={**report, **seconds})
        times.append(footer.plain_ms(costs, end) / factor)
    assert times[0] == pytest.approx(times[1])
    assert footer.plain_ms({}, end) == footer.plain_ms(costs, End("stop")) == 0.0


def at_a_terminal(*arguments: str, **environment: str) -> str:
    """The output of `localspec ARGUMENTS` in a terminal of 200 columns."""
    here = os.environ | {"TERM": "dumb"} | environment
    shown = terminal.shown([*terminal.COMMAND, *arguments], here, 200)
    return shown.decode().replace("\r\n", "\n")


def test_words_need_no_quotes(peer: Peer) -> None:
    """`localspec chat hello world` is one question; options may stand between its words."""
    peer.streams = [answer("ok"), answer("ok")]
    chat("hello", "world")
    assert said(peer) == "hello world"
    chat("how", "-t", "0", "fast", "--", "-is", "it?")
    assert said(peer) == "how fast -is it?"


def test_a_pipe_is_added_to_the_prompt(peer: Peer) -> None:
    """`git diff | localspec chat "review"`."""
    peer.streams = [answer("ok"), answer("ok")]
    chat("review", stdin="+ x = 1\n")
    assert said(peer) == "review\n\n+ x = 1\n"
    chat(stdin="only the pipe")
    assert said(peer) == "only the pipe"


def test_files_come_in_a_fence_that_they_cannot_close(peer: Peer, home: Path) -> None:
    """A Markdown file with code in it stays one file."""
    (home / "a.md").write_text("```\ncode\n```")
    peer.streams = [answer("ok")]
    chat("explain", "-f", str(home / "a.md"))
    assert said(peer) == "explain\n\na.md:\n````\n```\ncode\n```\n````"


def test_options_become_fields_of_the_request(peer: Peer) -> None:
    """And what was not said is left to the daemon's defaults."""
    peer.streams = [answer("ok"), answer("ok")]
    options = "-m tiny -s brief -t 0 --seed 7 --max-tokens 9 --draft on --colour-origins"
    chat("hi", *options.split())
    body = peer.asked[-1].body
    assert body["messages"][0] == {"role": "system", "content": "brief"}
    wanted = {
        "model": "tiny", "temperature": 0, "seed": 7, "max_tokens": 9,
        "speculation": {"mode": "always"}, "return_origins": True,
    }  # fmt: skip
    assert {name: body[name] for name in wanted} == wanted
    chat("hi")
    assert not wanted.keys() & peer.asked[-1].body.keys()


def test_a_file_may_predict_the_answer(peer: Peer, home: Path) -> None:
    """Its text goes with the request as it is; one that is no text, or too long, is refused."""
    (home / "a.py").write_text("x = 1\n")
    (home / "b.bin").write_bytes(b"\xff\xfe")
    (home / "long").write_bytes(b"a" * (MAX_INPUT_BYTES + 1))
    peer.streams = [answer("ok"), answer("ok")]
    chat("add types", "--prediction", str(home / "a.py"))
    assert peer.asked[-1].body["prediction"] == {"type": "content", "content": "x = 1\n"}
    chat("hi")
    assert "prediction" not in peer.asked[-1].body
    for name, words in (("b.bin", "not UTF-8"), ("long", "larger than"), ("none", "cannot be")):
        refused = chat("hi", "--prediction", str(home / name))
        assert refused.exit_code == 2
        assert words in refused.stderr


def test_a_prediction_is_of_one_answer(peer: Peer, home: Path) -> None:
    """The next question goes without it, also where an earlier version kept it."""
    (home / "a.py").write_text("x = 1\n")
    older = Conversation(name="plans", params={"prediction": "x = 0\n", "seed": 7})
    older.say("user", "hello")
    archive.keep(older)
    peer.streams = [answer("ok"), answer("ok"), answer("ok")]
    for option in ((), ("--prediction", str(home / "a.py")), ()):
        assert chat("--chat", "plans", "more", *option).exit_code == 0
    sent = [asked.body for asked in peer.asked if "messages" in asked.body]
    assert [body.get("prediction", {}).get("content") for body in sent] == [None, "x = 1\n", None]
    assert archive.load("plans").params == {"seed": 7}


def test_a_prediction_needs_a_question(peer: Peer, home: Path) -> None:
    """It is of one answer, so that a conversation cannot begin with it."""
    (home / "a.py").write_text("x = 1\n")
    refused = chat("--prediction", str(home / "a.py"))
    assert (refused.exit_code, peer.asked) == (2, [])
    assert "give a PROMPT" in refused.stderr


def test_json_is_one_object_with_every_figure(peer: Peer) -> None:
    """Nothing but the object on stdout, and nothing but messages on stderr."""
    peer.streams = [answer("Hé", "llo")]
    result = chat("hi", "--json")
    given = json.loads(result.stdout)
    assert 0 <= given.pop("waited_seconds") < PATIENCE_SECONDS
    assert given == {
        "content": "Héllo",
        "model": "tiny",
        "finish_reason": "stop",
        "usage": USAGE,
        "timings": TIMINGS,
        "speculation": SPECULATION,
    }


def test_a_full_disk_costs_no_finished_answer(peer: Peer) -> None:
    """The whole object is printed, and then why the conversation was not kept."""
    older = Conversation(name="plans")
    older.say("user", "hello")
    archive.keep(older)
    peer.streams = [answer("Hello")]
    with full_disk():
        result = chat("--chat", "plans", "hi", "--json")
    assert json.loads(result.stdout)["content"] == "Hello"
    assert "There is no room" in result.stderr
    assert result.exit_code == 69


def test_streamed_json_is_one_object_per_piece(peer: Peer) -> None:
    """The lines before the last add up to the answer."""
    peer.streams = [answer("Hé", "llo")]
    *texts, end = [
        json.loads(line) for line in chat("hi", "--json", "--stream").stdout.splitlines()
    ]
    assert "".join(line["text"] for line in texts) == "Héllo"
    assert (end["type"], end["timings"]) == ("end", TIMINGS)


@pytest.mark.parametrize("reason", get_args(Reason))
def test_an_answer_without_speculation_says_why_in_words(peer: Peer, reason: str) -> None:
    """Every reason that there is has a sentence; no code of ours is shown."""
    peer.streams = [answer("ok", reason=reason, drafted=0, accepted=0, sources={})]
    shown = at_a_terminal("chat", "hi", "--verbose")
    assert reason not in shown.replace("without speculation", "")
    assert ("without speculation" in shown) == (reason != SPECULATING)


def test_what_was_said_before_an_error_is_printed(peer: Peer) -> None:
    """The text stays, the error follows on stderr, the exit code is the error's."""
    died = {"error": {"message": "The worker died.", "code": "worker_crashed", "fix": "Try again."}}
    peer.streams = [[chunk("half an"), b"data: " + json.dumps(died).encode() + b"\n\n"]]
    result = chat("hi")
    assert result.exit_code == 69
    assert result.stdout == "half an\n"
    assert result.stderr.endswith("error: The worker died.\n  Try again.\n")


@pytest.mark.parametrize("older", ["0.0.1", "99.0"])
def test_an_error_of_a_daemon_of_another_version_says_so(peer: Peer, older: str) -> None:
    """It may be the reason; one of the same version, or another server, says nothing of it."""
    refused = (404, {"error": {"message": "Nothing is served at this path.", "code": "not_found"}})
    own = metadata.version("localspec")
    hint = f"The daemon is LocalSpec {older}, and this command {own}: localspec restart"
    for server, said in ((older, True), (own, False), ("", False)):
        peer.server = f"localspec/{server}" if server else "llama.cpp"
        peer.streams = [refused]
        assert (hint in chat("hi").stderr) is said
    peer.status |= {"version": older, "uptime_seconds": 1.0}
    shown = CliRunner().invoke(cli, ["status"]).stdout
    assert hint in shown


LOADING = [f": loading target {n}%\n\n".encode() for n in range(100)]


def test_loading_is_told_once_per_stage_where_lines_cannot_be_replaced(peer: Peer) -> None:
    """Such a terminal gets two lines for two stages, not a hundred."""
    peer.streams = [[*LOADING, b": loading draft 3%\n\n", *answer("ok")]]
    lines = [line for line in at_a_terminal("chat", "hi").splitlines() if "reading" in line]
    assert lines == ["reading the model 0%", "reading the draft model 3%"]


def test_a_pipe_hears_of_no_wait(peer: Peer) -> None:
    """A script, or cron, which mails all that is said, gets the answer and nothing else."""
    peer.streams = [[*LOADING, b": loading draft 3%\n\n", *answer("ok")]]
    result = chat("hi")
    assert (result.stdout, result.stderr) == ("ok\n", "")
    log = io.StringIO()
    notice = render.Notice(log)
    notice.show("reading the model 10%")
    notice.clear()
    assert not log.getvalue()


@pytest.mark.parametrize(
    ("arguments", "stdin", "exit_code", "words"),
    [
        ((), "", 2, "nothing to ask"),
        (("--json",), "", 2, "nothing to ask"),
        (("review",), b"\xff\xfe", 2, "not UTF-8"),
        (("x", "-f", "missing.txt"), "", 2, "missing.txt"),
        (("x", "--temperature", "-1"), "", 2, "temperature"),
        (("x", "--max-tokens", "0"), "", 2, "max-tokens"),
        (("x", "--temperature", "nan"), "", 2, "not a number"),
        (("x", "-f", "{fifo}"), "", 2, "nobody writes"),
        (("x", "--prediction", "{fifo}"), "", 2, "nobody writes"),
        (("x", "-s", "@translate language"), "", 2, "needs language"),
        (("x", "-s", "@brief please"), "", 2, "knows no please"),
    ],
)
def test_wrong_input_says_what_is_wrong(  # noqa: PLR0917 - fixtures and a table
    peer: Peer,
    home: Path,
    arguments: tuple[str, ...],
    stdin: str | bytes,
    exit_code: int,
    words: str,
) -> None:
    """With the exit code of wrong usage, before the daemon is asked anything."""
    os.mkfifo(home / "fifo")
    result = chat(*(word.format(fifo=home / "fifo") for word in arguments), stdin=stdin)
    assert result.exit_code == exit_code
    assert words in result.stderr
    assert all(asked.path == "/v1/status" for asked in peer.asked)


def test_without_a_daemon_no_spawn_fails_with_the_command_to_run() -> None:
    """Exit code 69 and `localspec start`."""
    result = chat("hi", "--no-spawn")
    assert result.exit_code == 69
    assert result.stderr.endswith("  localspec start\n")


def test_a_model_that_is_not_pulled_names_the_command_off_a_terminal(peer: Peer) -> None:
    """A script gets an error; no question is asked and nothing is fetched."""
    fields = {
        "message": "tiny is not here.",
        "code": "model_not_found",
        "fix": "localspec models pull tiny",
    }
    peer.streams = [(404, {"error": fields})]
    result = chat("hi")
    assert result.exit_code == 2
    assert "localspec models pull tiny" in result.stderr


@pytest.mark.parametrize(
    ("key", "exit_code", "words"),
    [
        (b"n\n", 2, "localspec models pull tiny"),
        (b"y\n", 2, "There is no model"),  # the real pull runs, and its catalog has no such model
        (b"\x04", 130, "Pull it now?"),
    ],
)
def test_a_person_is_asked_before_anything_is_pulled(
    peer: Peer, home: Path, key: bytes, exit_code: int, words: str
) -> None:
    """No and Ctrl-D fetch nothing; yes runs `localspec models pull`."""
    fields = {
        "message": "tiny is not here.",
        "code": "model_not_found",
        "fix": "Run: localspec models pull tiny",
    }
    peer.streams = [(404, {"error": fields})]
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "localspec.cli.main", "chat", "hi"]
    with subprocess.Popen(
        command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        said = b""
        while b"now?" not in said:
            said += os.read(process.stderr.fileno(), 1000)
        os.write(ours, key)
        said += process.stderr.read()
    os.close(theirs)
    os.close(ours)
    assert process.returncode == exit_code
    assert words in said.decode()
    assert not list(home.rglob("*.gguf"))


def test_ctrl_c_keeps_the_text_and_frees_the_daemon(peer: Peer) -> None:
    """A real process under a real SIGINT: partial text, exit code 130, connection closed."""
    peer.streams = [[chunk("one "), chunk("two")]]
    command = [sys.executable, "-m", "localspec.cli.main", "chat", "hi"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        first = os.read(process.stdout.fileno(), 100)
        while b"two" not in first:
            first += os.read(process.stdout.fileno(), 100)
        interrupt(process)
        rest = process.stdout.read()
    assert first + rest == b"one two\n"
    assert process.returncode == 130
    assert peer.left.wait(PATIENCE_SECONDS)


def test_typing_does_not_tear_the_answer(peer: Peer) -> None:
    """While an answer streams the terminal echoes nothing; afterwards it is as it was."""
    peer.streams = [[chunk("one "), chunk("two")]]
    with terminal.owned("chat", "hi") as (process, handle, before):
        assert process.stdout is not None
        said = b""
        while b"two" not in said:
            said += os.read(process.stdout.fileno(), 100)
        during = terminal.echoes(handle)
        interrupt(process)
        process.wait(PATIENCE_SECONDS)
        after = terminal.echoes(handle)
    assert (before, during, after) == (True, False, True)


def test_a_model_cannot_command_the_terminal(peer: Peer) -> None:
    """Escape sequences in an answer reach a pipe as they are and a terminal not at all."""
    evil = "a\x1b]0;owned\x07b\x9b2J"
    peer.streams = [answer(evil), answer(evil)]
    assert chat("hi").stdout == f"{evil}\n"
    here = os.environ | {"TERM": "dumb"}
    shown = terminal.shown([*terminal.COMMAND, "chat", "hi"], here, 80, "stdout")
    assert shown == b"a]0;ownedb2J\r\n"
