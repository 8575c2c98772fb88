"""The worker as a process: how it refuses, leaves and dies."""

from __future__ import annotations

import math
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf
import msgspec
import pytest
import tiny
from worker_peer import CONTEXT, PATIENCE_SECONDS, Files, Worker, load

from localspec.config import Config, Speculation
from localspec.errors import TooLarge
from localspec.types import SpeculationParams
from localspec.wire import frames
from localspec.wire.messages import (
    MAX_FRAME_BYTES,
    Cancel,
    Delta,
    Detokenize,
    Event,
    Failed,
    Finished,
    Goodbye,
    Heartbeat,
    Load,
    Message,
    Progress,
    Question,
    QuestionAnswer,
    Quit,
    Refused,
    Tokenize,
)
from localspec.worker import limits
from localspec.worker.questions import MAX_TOKENS

ENDOFTEXT = 259
"""The tiny vocabulary's longest token, of 13 characters."""


def is_last(event: Event) -> bool:
    """Whether nothing follows this event."""
    return isinstance(event, Goodbye)


def refused(worker: Worker, command: Load) -> tuple[Refused, int]:
    """The refusal of a load, and the exit code after it."""
    worker.send(command)
    *_, refusal, _goodbye = worker.until(is_last)
    assert isinstance(refusal, Refused)
    assert worker.receive() is None
    return refusal, worker.process.wait(PATIENCE_SECONDS)


def changed(command: Load, **fields: Any) -> Load:
    """The command with other fields."""
    return Load(
        **{**{name: getattr(command, name) for name in command.__struct_fields__}, **fields}
    )


def test_ready_describes_the_loaded_model(worker: Worker, files: Files) -> None:
    """Sizes, drafters, exactness and devices come from the model itself."""
    ready = worker.ready
    assert (ready.n_vocab, ready.context_train) == (262, 4096)
    assert CONTEXT - 32 <= ready.context <= CONTEXT
    assert ready.drafters == ["lookup", "grammar", "model", "early_exit"]
    assert ready.speculation_off is None
    assert ready.exactness == "strict"
    assert {device.what.split()[0] for device in ready.devices} == {"target", "draft"}
    assert ready.target_path == str(files.target)
    assert ready.parameters > 0
    assert ready.load_seconds > 0


@pytest.mark.parametrize("which", ["target_path", "draft_path"])
def test_an_unknown_file_is_refused(
    fresh: Worker, files: Files, which: str, tmp_path: Path
) -> None:
    """A path without a file is a Refused with code, sentence and fix; exit code 65."""
    refusal, code = refused(fresh, changed(load(files), **{which: str(tmp_path / "no.gguf")}))
    assert refusal.code == "model_error"
    assert "no.gguf" in refusal.message
    assert refusal.fix
    assert code == 65


def test_a_file_that_is_no_model_is_refused(fresh: Worker, files: Files, tmp_path: Path) -> None:
    """Its header is looked at before native code sees it, and the refusal is a sentence."""
    junk = tmp_path / "junk.gguf"
    junk.write_bytes(b"GGUF" + bytes(100))
    refusal, code = refused(fresh, changed(load(files), target_path=str(junk)))
    assert refusal.code == "bad_gguf"
    assert "junk.gguf cannot be used" in refusal.message
    assert code == 65


def test_an_unknown_drafter_in_the_config_is_refused(fresh: Worker, files: Files) -> None:
    """A drafter that does not exist is the configuration's error, exit code 78."""
    config = Config(speculation=Speculation(drafters=("lookup", "oracle")))
    refusal, code = refused(fresh, changed(load(files), config=config))
    assert (refusal.code, code) == ("config_error", 78)
    assert "oracle" in refusal.message


def test_a_draft_of_another_vocabulary_writes_in_the_targets_tokens(
    fresh: Worker, files: Files
) -> None:
    """The text is plain's. Asked for with rejection sampling it is refused, else left out there."""
    fresh.send(changed(load(files), draft_path=str(files.stranger)))
    fresh.until_ready()
    assert fresh.ready.drafters == ["lookup", "grammar", "model", "early_exit"]
    assert fresh.ready.speculation_off is None
    plain = fresh.one("hello hello", speculation=SpeculationParams(mode="off"))
    wish = SpeculationParams(mode="always", drafters=["model"])
    drafted = fresh.one("hello hello", speculation=wish)
    assert drafted.tokens == plain.tokens
    assert drafted.finished.speculation.sources["model"].drafted > 0
    wish = msgspec.structs.replace(wish, verify="rejection")
    refused = fresh.one("hello hello", speculation=wish).failed
    assert refused.param == "speculation.verify"
    assert "another tokenizer" in refused.message
    wish = msgspec.structs.replace(wish, drafters=None)
    other = fresh.one("hello hello", speculation=wish).finished
    assert "model" not in other.speculation.sources


def test_a_draft_of_another_vocabulary_is_left_out_where_rejection_is_configured(
    fresh: Worker, files: Files
) -> None:
    """The model answers without it, lookup stays, and the reason is reported."""
    command = changed(load(files), draft_path=str(files.stranger))
    speculation = Speculation(verify="rejection")
    config = msgspec.structs.replace(command.config, speculation=speculation)
    fresh.send(changed(command, config=config))
    fresh.until_ready()
    assert fresh.ready.drafters == ["lookup", "grammar", "early_exit"]
    assert "another tokenizer" in (fresh.ready.speculation_off or "")
    assert fresh.one("hello hello hello").finished.usage.completion_tokens == 12


@pytest.mark.parametrize("safe", [False, True])
def test_forwards_that_give_no_numbers_end_the_load_once(
    fresh: Worker, files: Files, tmp_path: Path, *, safe: bool
) -> None:
    """Like a crash; plain kernels are tried next, and if they fail too the error names it."""
    halves = gguf.GGMLQuantizationType.F16
    broken = tiny.build(tmp_path / "broken.gguf", sharpness=math.nan, quantization=halves)
    command = changed(load(files), target_path=str(broken), draft_path=None, safe_kernels=safe)
    fresh.send(command)
    heard = list(iter(fresh.receive, None))
    if safe:
        (refused,) = (event for event in heard if isinstance(event, Refused))
        assert refused.code == "no_numbers"
        assert "broken.gguf" in refused.message
    else:
        assert fresh.process.wait(PATIENCE_SECONDS) == -signal.SIGABRT
        assert "broken.gguf gives no usable numbers" in fresh.last_words()


@pytest.mark.parametrize("why", ["", "The draft is larger than its target."])
def test_a_single_model_speculates_by_lookup_alone(fresh: Worker, files: Files, why: str) -> None:
    """Without a draft nothing is wrong and nothing reported as off, unless one was left out."""
    fresh.send(changed(load(files), draft_path=None, no_draft=why))
    fresh.until_ready()
    assert fresh.ready.drafters == ["lookup", "grammar", "early_exit"]
    assert fresh.ready.speculation_off == (why or None)


def test_a_broken_template_spoils_chats_and_nothing_else(
    fresh: Worker, files: Files, tmp_path: Path
) -> None:
    """A hostile loop in the file ends as template_error; completions are answered afterwards."""
    loop = "{% for a in range(99999) %}"
    bad = tmp_path / "bad.gguf"
    tiny.build(bad, template=loop * 4 + "{% endfor %}" * 4)
    fresh.send(changed(load(files), target_path=str(bad)))
    fresh.until_ready()
    stream = fresh.request("hello", max_tokens=100)
    chat = fresh.request(endpoint="chat", messages=[Message("user", "hi")])
    fresh.send(stream)
    fresh.until(lambda event: isinstance(event, Delta))
    fresh.send(chat)
    *_, first = fresh.until(lambda event: isinstance(event, Finished | Failed))
    assert isinstance(first, Finished)  # nobody's next token waits for the chat
    *_, failed = fresh.until(lambda event: isinstance(event, Failed))
    assert isinstance(failed, Failed)
    assert failed.id == chat.id
    assert failed.code == "template_error"
    assert "seconds" in failed.message
    assert fresh.one("hello").finished.usage.completion_tokens == 12


def test_a_chat_waits_for_no_grammar(worker: Worker) -> None:
    """Forty grammars of 42 kB came before it, each of which takes a second to compile."""
    words = [" | ".join(f'"w{one}x{at:04d}"' for at in range(2600)) for one in range(40)]
    kinds = [{"type": "gbnf", "grammar": f"root ::= ({one})+"} for one in words]
    costly = [worker.request("a", response_format=kind, ignore_eos=False) for kind in kinds]
    for request in costly:
        worker.send(request)
    chat = worker.request(endpoint="chat", messages=[Message("user", "hi")])
    short = worker.request("a", response_format={"type": "regex", "pattern": "[ab]{3}"},
                           ignore_eos=False)  # fmt: skip
    worker.send(chat)
    worker.send(short)
    ended: list[str] = []
    while not {chat.id, short.id} <= set(ended):
        (*_, last) = worker.until(lambda event: isinstance(event, Finished | Failed))
        assert isinstance(last, Finished | Failed)
        ended.append(last.id)
    assert len(ended) <= 12
    for request in costly:
        worker.send(Cancel(request.id))
    worker.idle()


FORTY_MB = "'a'*40000000"
SPEECHES = {
    "an exception": f"{{{{ raise_exception({FORTY_MB}) }}}}",
    "an exception below the limit of a frame": "{{ raise_exception('a'*22000000) }}",
    "control characters": "{{ raise_exception('\\x1b'*9000000) }}",
    "half of a pair": "{{ raise_exception('\\ud800'*9) }}",
    "a list": f"{{{{ raise_exception([{FORTY_MB}]) }}}}",
    "a name": f"{{{{ messages[{FORTY_MB}].x }}}}",
    "a file": f"{{% include {FORTY_MB} %}}",
    "a filter": f"{{{{ 1 | map({FORTY_MB}) | list }}}}",
    "a call": f"{{{{ ({FORTY_MB})() }}}}",
    "a form of time": f"{{{{ strftime_now({FORTY_MB})[0].y.z }}}}",
    "a key": f"{{{{ {{}}[{FORTY_MB}]['x'] }}}}",
}


@pytest.mark.parametrize("template", SPEECHES.values(), ids=list(SPEECHES))
def test_a_templates_error_is_bounded(
    fresh: Worker, files: Files, tmp_path: Path, template: str
) -> None:
    """The chat ends with a bounded sentence, the worker goes on."""
    speaker = tiny.build(tmp_path / "speaker.gguf", template=template)
    fresh.send(changed(load(files), target_path=str(speaker), draft_path=None))
    fresh.until_ready()
    failed = fresh.one(endpoint="chat", messages=[Message("user", "hi")]).failed
    assert failed.code == "template_error"
    assert len(failed.message.encode()) < 30_000
    assert fresh.one("hello").finished.usage.completion_tokens == 12


CHANNEL = """
import socket, sys
from localspec.wire.messages import *
from localspec.worker.channel import Channel
channel = Channel(socket.socket(fileno=int(sys.argv[1])))
huge, half = "x" * (33 << 20), chr(0xD800)
channel.send(Delta("1", huge, []))
channel.send(QuestionAnswer("2", half))
channel.send(QuestionAnswer("3", tokens=[1 << 64]))
channel.send(Failed("4", "code", "why", details={"n": 1 << 70}))
channel.send(Progress("target", 0.5, huge))
channel.send(Goodbye())
assert channel.receive(60) == Cancel("1")
"""


def test_a_channel_survives_any_event_that_no_frame_holds() -> None:
    """Each is an error of its own request, the engine hears of its end, and others are sent."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        command = [sys.executable, "-c", CHANNEL, str(theirs.fileno())]
        with subprocess.Popen(command, pass_fds=(theirs.fileno(),)) as process:
            theirs.close()
            with ours.makefile("rb") as stream:
                heard: list[Event] = []
                while header := stream.read(frames.HEADER_BYTES):
                    heard.append(frames.event(stream.read(frames.body_bytes(header))))
        assert process.returncode == 0
    *failures, last = heard
    codes = [(one.id, one.code) for one in failures if isinstance(one, Failed)]
    refused = "invalid_request"
    assert codes == [("1", "too_large"), ("2", refused), ("3", refused), ("4", refused)]
    assert isinstance(last, Goodbye)


def test_a_word_as_long_as_a_book_does_not_end_it(
    fresh: Worker, files: Files, tmp_path: Path
) -> None:
    """A tokenizer that recurses for each letter is given the depth it needs, up to a bound."""
    recursive = tmp_path / "bloom.gguf"
    token = f"<|{'long' * 100}|>"  # so many letters could be as few tokens
    tiny.build(recursive, specials=(token,))
    recursive.write_bytes(recursive.read_bytes().replace(b"qwen2", b"bloom"))
    fresh.send(changed(load(files), target_path=str(recursive)))
    fresh.until_ready()
    for character in ("a", " "):
        longest = character * limits.MAX_WORD_CHARS
        failed = fresh.one(longest).failed
        assert failed.details["n_prompt_tokens"] == limits.MAX_WORD_CHARS
        assert fresh.one(longest + character).failed.code == "too_large"


@pytest.mark.parametrize(
    "question",
    [
        Tokenize("q", "a " * (MAX_TOKENS // 2 + 1), add_special=False, parse_special=False),
        Detokenize("q", [ENDOFTEXT] * (limits.MAX_PROMPT_BYTES // 13 + 1)),
    ],
)
def test_an_answer_over_the_frame_size_does_not_end_the_worker(
    worker: Worker, question: Question
) -> None:
    """A message too long for a frame is refused, in either direction."""
    worker.send(question)
    events = worker.until(lambda event: isinstance(event, Failed | QuestionAnswer))
    assert isinstance(events[-1], Failed)
    assert events[-1].code == TooLarge.code
    assert worker.one("hello").finished.reason == "length"


def test_quit_is_answered_by_goodbye_and_exit_code_0(fresh: Worker, files: Files) -> None:
    """An orderly end: Goodbye is the last frame, then the end of the stream, then 0."""
    fresh.send(load(files))
    fresh.until_ready()
    fresh.send(Quit())
    assert isinstance(fresh.until(is_last)[-1], Goodbye)
    assert fresh.receive() is None
    assert fresh.process.wait(PATIENCE_SECONDS) == 0


def test_a_worker_killed_early_has_probed_for_good(files: Files, tmp_path: Path) -> None:
    """The first load's exactness result is on disk before the model is ready."""
    stages = []
    for _ in range(2):
        worker = Worker(tmp_path)
        worker.send(load(files))
        events = worker.until_ready()
        worker.process.kill()
        worker.close()
        stages.append({event.stage for event in events if isinstance(event, Progress)})
    assert stages[0] - stages[1] == {"probe"}


def test_it_leaves_when_the_supervisor_is_gone(fresh: Worker, files: Files) -> None:
    """The end of the socket ends the process, in the middle of an answer too."""
    fresh.send(load(files))
    fresh.until_ready()
    fresh.send(fresh.request("hello", max_tokens=400))
    fresh.until(lambda event: isinstance(event, Delta))
    assert fresh.leave() == 0


def test_it_leaves_when_nothing_was_ever_said(fresh: Worker) -> None:
    """A supervisor that dies before Load leaves no orphan."""
    assert fresh.leave() == 0


@pytest.mark.parametrize(
    "frame",
    [
        frames.pack(Cancel("x")),
        b"\x00\x00\x00\x01\xc1",
        (MAX_FRAME_BYTES + 1).to_bytes(4, "big"),
    ],
    ids=["not a load", "not a message", "too long"],
)
def test_a_frame_out_of_order_ends_the_worker(fresh: Worker, frame: bytes) -> None:
    """A protocol error ends the connection with a sentence and a non-zero code."""
    fresh.socket.sendall(frame)
    assert fresh.receive() is None
    assert fresh.process.wait(PATIENCE_SECONDS) == 70
    assert fresh.last_words().strip()


def test_the_interrupt_key_is_not_for_the_worker(worker: Worker) -> None:
    """SIGINT, which a terminal sends to the whole group, changes nothing."""
    worker.process.send_signal(signal.SIGINT)
    assert worker.one("still here").finished.usage.completion_tokens == 12


def test_heartbeats_go_on_while_it_is_idle(worker: Worker) -> None:
    """Health is sent about once a second without a request for it."""
    beats = worker.until(lambda event: isinstance(event, Heartbeat))
    assert isinstance(beats[-1], Heartbeat)
    assert worker.idle().active == 0


def test_a_cancelled_stream_frees_its_slot(worker: Worker) -> None:
    """Over the socket: the stream ends as cancelled, with fewer tokens than requested."""
    request = worker.request("hello", max_tokens=400)
    worker.send(request)
    worker.until(lambda event: isinstance(event, Delta) and event.id == request.id)
    worker.send(Cancel(request.id))
    last = worker.until(lambda event: isinstance(event, Finished) and event.id == request.id)[-1]
    assert isinstance(last, Finished)
    assert last.reason == "cancelled"
    assert last.usage.completion_tokens < 400
    assert worker.idle().waiting == 0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux kills children with their parent")
def test_a_worker_dies_with_a_killed_supervisor() -> None:
    """The kernel ends it even though another process still holds the socket."""
    ours, theirs = socket.socketpair()
    script = (
        "import subprocess, sys, time\n"
        "fd = int(sys.argv[1])\n"
        "command = [sys.executable, '-m', 'localspec.worker', '--fd', str(fd)]\n"
        "subprocess.Popen(command, pass_fds=(fd,))\n"
        "sys.stdin.read()\n"
    )
    with ours, theirs:
        parent = subprocess.Popen(
            [sys.executable, "-c", script, str(theirs.fileno())],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.PIPE,
        )
        theirs.close()
        ours.settimeout(PATIENCE_SECONDS)
        ours.sendall(frames.pack(Load("x", "/nowhere", None, Config())))
        assert ours.recv(4)  # it runs: its refusal has come
        parent.kill()
        parent.communicate()
        while ours.recv(4096):
            pass


def test_a_process_limits_what_its_death_leaves(worker: Worker) -> None:
    """No core dump contains prompts, and the kernel kills it first when memory runs out."""
    proc = Path(f"/proc/{worker.process.pid}")
    if not proc.exists():
        pytest.skip("no /proc here")
    limits = (proc / "limits").read_text()
    core = next(line for line in limits.splitlines() if line.startswith("Max core file size"))
    assert core.split()[4:6] == ["0", "0"]
    assert int((proc / "oom_score_adj").read_text()) > int(
        Path(f"/proc/{os.getpid()}/oom_score_adj").read_text()
    )


def test_a_supervisor_that_leaves_before_a_load_ends_the_process_in_silence(fresh: Worker) -> None:
    """Exit code 0, and not a word on standard error."""
    fresh.socket.close()
    _, said = fresh.process.communicate(timeout=PATIENCE_SECONDS)
    assert (fresh.process.returncode, said) == (0, b"")
