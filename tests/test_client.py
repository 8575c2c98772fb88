"""The client against a scripted peer on a real socket."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest
from scripted import PATIENCE_SECONDS, SPECULATION, TIMINGS, USAGE, Peer, answer, chunk, event

from localspec.client import Client, End, Piece, Waiting
from localspec.errors import (
    Busy,
    ConfigError,
    ContextOverflow,
    DaemonError,
    LocalSpecError,
    NotRunning,
    RequestError,
    WorkerCrashed,
)

HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture
def peer() -> Iterator[Peer]:
    """A peer with nothing to say yet."""
    with Peer() as found:
        yield found


@pytest.fixture
def client(peer: Peer) -> Client:
    """A client of the peer."""
    return Client(peer.socket_path)


def test_a_streamed_answer_arrives_as_pieces_and_one_end(peer: Peer, client: Client) -> None:
    """Text keeps its order and origins; the end carries every figure that was sent."""
    origins = [[2, "lookup"], [1, "target"]]
    peer.streams = [[chunk("Hé…", origins=origins), *answer("!")]]
    first, second, end = client.chat(HELLO, seed=7)
    assert first == Piece("Hé…", ((2, "lookup"), (1, "target")))
    assert second == Piece("!")
    assert end == End("stop", "tiny", USAGE, TIMINGS, SPECULATION)
    sent = peer.asked[-1].body
    assert sent["messages"] == HELLO
    assert sent["seed"] == 7
    assert sent["stream_options"] == {"include_usage": True}


def test_a_predicted_answer_is_sent_as_openai_has_it(peer: Peer, client: Client) -> None:
    """A plain string becomes the object; none is not sent at all."""
    peer.streams = [answer("a"), answer("a")]
    list(client.chat(HELLO, prediction="x = 1"))
    assert peer.asked[-1].body["prediction"] == {"type": "content", "content": "x = 1"}
    list(client.chat(HELLO))
    assert "prediction" not in peer.asked[-1].body


def test_a_completion_reads_the_text_of_its_choice(peer: Peer, client: Client) -> None:
    """The completions API puts text elsewhere; the events are the same."""
    parts = [event({"choices": [{"text": "42", "finish_reason": "stop"}]}), b"data: [DONE]\n\n"]
    peer.streams = [parts]
    assert list(client.complete("6*7=")) == [Piece("42"), End("stop")]
    assert peer.asked[-1].body["prompt"] == "6*7="


def test_loading_is_told_while_the_answer_waits(peer: Peer, client: Client) -> None:
    """Comment lines before the first chunk become Waiting; empty ones keep the line alive only."""
    peer.streams = [[b": loading target 42%\n\n", b":\n\n", *answer("x")]]
    assert next(client.chat(HELLO)) == Waiting("loading target 42%")


def test_reading_a_prompt_is_told_with_its_speed(peer: Peer, client: Client) -> None:
    """llama-server's `prompt_progress` in words; what is nonsense or over is not told."""
    told = [
        {"total": 400, "cache": 100, "processed": 100, "time_ms": 0},
        {"total": 400, "cache": 100, "processed": 200, "time_ms": 500},
        {"total": 400, "cache": 100, "processed": 400, "time_ms": 900},
        {"total": "x"},
        7,
    ]
    peer.streams = [
        [*(event({"choices": [], "prompt_progress": each}) for each in told), *answer("x")]
    ]
    events = list(client.chat(HELLO))
    assert [each.text for each in events if isinstance(each, Waiting)] == [
        "reading the prompt 25%",
        "reading the prompt 50%, 200 tokens/s",
    ]


def test_an_error_is_of_the_class_that_its_code_names(peer: Peer, client: Client) -> None:
    """Message, fix, parameter and details survive the socket."""
    fields = {
        "message": "Too long.", "type": "exceed_context_size_error", "param": "messages",
        "code": "context_length_exceeded", "fix": "Shorten it.", "n_ctx": 64,
    }  # fmt: skip
    peer.streams = [(400, {"error": fields})]
    with pytest.raises(ContextOverflow) as caught:
        list(client.chat(HELLO))
    assert (caught.value.message, caught.value.fix) == ("Too long.", "Shorten it.")
    assert (caught.value.param, caught.value.details) == ("messages", {"n_ctx": 64})


def test_an_unknown_code_is_still_an_error(peer: Peer, client: Client) -> None:
    """A newer daemon can never break an older client."""
    peer.streams = [(418, {"error": {"message": "Teapot.", "code": "from_the_future"}})]
    with pytest.raises(LocalSpecError, match="Teapot"):
        list(client.chat(HELLO))


def test_an_error_in_the_stream_comes_after_the_text_before_it(peer: Peer, client: Client) -> None:
    """The text written before the worker died is not lost."""
    died = {"error": {"message": "It died.", "code": "worker_crashed"}}
    peer.streams = [[chunk("half"), event(died)]]
    events = client.chat(HELLO)
    assert next(events) == Piece("half")
    with pytest.raises(WorkerCrashed):
        next(events)


def test_a_stream_that_breaks_off_is_an_error(peer: Peer, client: Client) -> None:
    """A half answer must never look like a whole one."""
    peer.streams, peer.drop = [[chunk("half")]], True
    with pytest.raises(DaemonError, match="broke"):
        list(client.chat(HELLO))


def test_closing_the_iterator_closes_the_connection(peer: Peer, client: Client) -> None:
    """That is how the daemon learns to stop."""
    peer.streams = [[chunk("one"), chunk("two")]]
    with closing(cast("Any", client.chat(HELLO))) as events:
        assert next(events) == Piece("one")
    assert peer.left.wait(PATIENCE_SECONDS)


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'"text"'])
def test_what_does_not_speak_our_protocol_is_refused(
    peer: Peer, client: Client, body: bytes
) -> None:
    """A stranger on the socket gives an error with a sentence, not a traceback."""
    peer.streams = [(502, body), [b"data: " + body + b"\n\n"]]
    for _ in range(2):
        with pytest.raises(DaemonError, match="not from a LocalSpec daemon"):
            list(client.chat(HELLO))


def test_nobody_listening_names_the_command_that_helps(tmp_path: Path) -> None:
    """Neither a missing socket nor a stale one is mistaken for a daemon."""
    with pytest.raises(NotRunning) as caught:
        Client(tmp_path / "none").status()
    assert caught.value.fix == "localspec start"
    with Peer() as peer:
        stale = peer.socket_path.with_name("stale")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(stale))
        with pytest.raises(NotRunning):
            Client(stale).status()


def test_a_path_too_long_for_a_socket_is_a_configuration_error(tmp_path: Path) -> None:
    """The limit of the kernel is said as such."""
    with pytest.raises(ConfigError, match="too long"):
        Client(tmp_path / ("x" * 200)).status()


@pytest.mark.parametrize("value", [float("nan"), "\udcff"])
def test_what_json_cannot_hold_is_never_sent(peer: Peer, client: Client, value: object) -> None:
    """NaN and broken Unicode are the caller's mistake, found before the daemon hears of it."""
    with pytest.raises(RequestError):
        list(client.chat(HELLO, temperature=value))
    assert not peer.asked


def test_the_environment_chooses_a_socket(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    """LOCALSPEC_HOST=unix:///path."""
    monkeypatch.setenv("LOCALSPEC_HOST", peer.host)
    peer.models = [{"id": "tiny"}]
    assert Client.from_environment().models() == [{"id": "tiny"}]


def test_tcp_carries_the_token_of_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """LOCALSPEC_HOST=127.0.0.1:port with LOCALSPEC_API_KEY_FILE."""
    (tmp_path / "token").write_text("secret\n")
    monkeypatch.setenv("LOCALSPEC_API_KEY_FILE", str(tmp_path / "token"))
    with Peer(tcp=True) as peer:
        monkeypatch.setenv("LOCALSPEC_HOST", peer.host.replace("127.0.0.1", "localhost"))
        Client.from_environment().status()
        assert peer.asked[0].headers["Authorization"] == "Bearer secret"


@pytest.mark.parametrize("content", [b"a\nb", b"\0" * 9, b"x" * 10_000, "\u00e9".encode(), b"\xff"])
def test_a_file_that_holds_no_token_is_refused(
    content: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The error names the file and repeats nothing of it."""
    (tmp_path / "token").write_bytes(content)
    monkeypatch.setenv("LOCALSPEC_API_KEY_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("LOCALSPEC_HOST", "127.0.0.1:8080")
    with pytest.raises(ConfigError, match="token") as caught:
        Client.from_environment()
    assert str(tmp_path / "token") in caught.value.message
    assert len(caught.value.message) < 400


def test_a_token_file_without_an_end_is_not_read_to_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A device takes no memory; a pipe, as a shell's <(...) is one, is read."""
    monkeypatch.setenv("LOCALSPEC_API_KEY_FILE", "/dev/zero")
    with Peer(tcp=True) as peer:
        monkeypatch.setenv("LOCALSPEC_HOST", peer.host)
        with pytest.raises(ConfigError, match="not one line with a token"):
            Client.from_environment()
        reading, writing = os.pipe()
        os.write(writing, b"secret\n")
        os.close(writing)
        monkeypatch.setenv("LOCALSPEC_API_KEY_FILE", f"/dev/fd/{reading}")
        Client.from_environment().status()
        os.close(reading)
        assert peer.asked[0].headers["Authorization"] == "Bearer secret"


@pytest.mark.parametrize("host", ["0.0.0.0:80", "example.org:80", "/run/x.sock", "8080"])
def test_a_host_that_is_not_this_machine_is_refused(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token and the prompt never leave the machine in clear."""
    monkeypatch.setenv("LOCALSPEC_HOST", host)
    with pytest.raises(ConfigError, match="LOCALSPEC_HOST"):
        Client.from_environment()


def test_the_configuration_names_the_socket_where_the_environment_does_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """server.socket of the file that LOCALSPEC_CONFIG names."""
    (tmp_path / "c.toml").write_text('[server]\nsocket = "/run/mine.sock"\n')
    monkeypatch.delenv("LOCALSPEC_HOST", raising=False)
    monkeypatch.setenv("LOCALSPEC_CONFIG", str(tmp_path / "c.toml"))
    assert Client.from_environment().socket_path == Path("/run/mine.sock")


def test_a_busy_daemon_is_not_a_broken_one(peer: Peer, client: Client) -> None:
    """Exit code 75 tells scripts to try later."""
    peer.streams = [(429, {"error": {"message": "Queue full.", "code": "busy"}})]
    with pytest.raises(Busy) as caught:
        list(client.chat(HELLO))
    assert caught.value.exit_code == 75
