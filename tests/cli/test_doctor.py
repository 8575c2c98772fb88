"""`localspec doctor` over machines that are really broken: sockets, modes, files, settings."""

from __future__ import annotations

import json
import os
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import encoders
import msgspec
import pytest
import tiny
from user_home import UserHome

from localspec import paths
from localspec.bench import proof
from localspec.catalog import devices, entries, header
from localspec.catalog.devices import Device
from localspec.cli import doctor, findings
from localspec.cli.findings import DirectoryCheck, Finding
from localspec.config import Config
from localspec.config import Engine as EngineSettings

READ = os.R_OK | os.X_OK


def verdicts(found: list[Finding]) -> list[tuple[str, str]]:
    """Subjects and states of the findings."""
    return [(finding.what, finding.verdict) for finding in found]


def only_wrong(found: list[Finding]) -> Finding:
    """The one finding that is wrong; it says how to mend it."""
    (wrong,) = [finding for finding in found if finding.verdict == "wrong"]
    assert wrong.fix
    return wrong


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the daemon's socket would be; short, as sockets must be."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "localspec.sock"
        monkeypatch.setenv("LOCALSPEC_HOST", f"unix://{path}")
        yield path


def test_a_build_is_told_with_its_own_kernels() -> None:
    """The instruction set of our kernels is no yes or no, and named all the same."""
    said = doctor.features(
        "llama-cpp-python 1; CPU : AVX512 = 1 | ROWS = AVX512_VNNI | GRAPHS = 1 |"
    )
    assert said == "llama-cpp-python 1 with AVX512, GRAPHS, own kernels (AVX512_VNNI)"


def test_no_daemon_is_fine(door: Path) -> None:
    """The daemon starts at the first request."""
    assert verdicts(list(findings.daemon())) == [("daemon", "ok")]
    assert not door.exists()


def test_a_socket_that_was_left_behind_is_told(door: Path) -> None:
    """Bound by a process that is gone."""
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(door))
    wrong = only_wrong(list(findings.daemon()))
    assert wrong.what == "socket"
    assert "left behind" in wrong.said
    assert "localspec start" in wrong.fix


def test_a_file_in_the_sockets_place_is_told(door: Path) -> None:
    """The daemon would refuse to start; `rm` is for the user to type."""
    door.write_text("mine")
    wrong = only_wrong(list(findings.daemon()))
    assert "no socket" in wrong.said
    assert door.read_text() == "mine"


def test_a_directory_that_a_group_may_write_to_is_told_where_it_matters(tmp_path: Path) -> None:
    """For the socket, not for the cache; another's right to write is wrong everywhere."""
    tmp_path.chmod(0o770)
    places = {place.what: place for place in findings.places(tmp_path, tmp_path / "socket")}
    nowhere = tmp_path / "token"
    assert verdicts(list(findings.permissions([places["models"]], nowhere))) == [
        ("permissions", "ok")
    ]
    wrong = only_wrong(list(findings.permissions([places["socket"]], nowhere)))
    assert "0770" in wrong.said
    assert wrong.fix == f"chmod go-w {tmp_path}"
    tmp_path.chmod(0o707)
    assert only_wrong(list(findings.permissions([places["models"]], nowhere)))


def seen_by_another(check: Callable[[], list[Finding]]) -> list[Finding]:
    """The findings of a check that runs as another user than root, for whom nothing is closed."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        if os.getuid() == 0:
            os.setuid(65534)
        os.write(theirs, msgspec.json.encode(check()))
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as said:
        found = msgspec.json.decode(said.read(), type=list[Finding])
    os.waitpid(child, 0)
    return found


def test_closed_directories_are_told() -> None:
    """Mode 0000: by its mode, and where models are looked for; room is not asked for there."""
    with tempfile.TemporaryDirectory() as folder:
        closed = Path(folder) / "closed"
        closed.mkdir()
        Path(folder).chmod(0o755)
        closed.chmod(0)
        places = [
            DirectoryCheck("models", closed / "models", READ, 0),
            DirectoryCheck("models", closed, READ, 0),
        ]
        token = closed / "token"
        told = seen_by_another(lambda: list(findings.permissions(places, token)))
        assert "cannot be looked at" in told[0].said
        assert "closed to you" in told[1].said
        told = seen_by_another(lambda: findings.models(closed, "big")[0])
        assert "Permission denied" in only_wrong(told).said
        assert verdicts(seen_by_another(lambda: list(findings.disk(places)))) == [("disk", "ok")]
        closed.chmod(0o700)


def test_free_memory_is_that_of_the_machine() -> None:
    """llama.cpp lists a CPU as if nothing else used its memory; a GPU's own figures hold."""
    cpu = proof.Device("CPU", "a CPU", "cpu", "", 10**15, 10**15)
    gpu = proof.Device("CUDA0", "a GPU", "gpu", "", 3 * 10**9, 8 * 10**9)
    total = devices.host().total_bytes / 1e9
    assert doctor.room(cpu).said.endswith(f" of {total:.1f} GB free")
    assert doctor.room(gpu).said == "CUDA0: a GPU, 3.0 of 8.0 GB free"


@pytest.mark.parametrize("deep", ["state", "a/b/state"])
def test_a_directory_that_could_not_be_made_is_told(deep: str) -> None:
    """Where it is to be written: the daemon does not start without. Others may stay away."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        state, token = home / deep, home / "token"
        for mode, access, expected in (
            (0o555, READ | os.W_OK, "wrong"),
            (0o555, READ, "ok"),
            (0o777, READ | os.W_OK, "ok"),
        ):
            home.chmod(mode)
            places = [DirectoryCheck("state", state, access, 0)]
            told = seen_by_another(lambda: list(findings.permissions(places, token)))  # noqa: B023
            assert verdicts(told) == [("permissions", expected)]
            assert expected == "ok" or str(state) in told[0].said
            assert expected == "ok" or str(home) in told[0].said


def test_a_file_where_a_directory_belongs_and_a_token_for_all_are_told(tmp_path: Path) -> None:
    """Both at once, each with its own line."""
    file, token = tmp_path / "file", tmp_path / "token"
    file.touch()
    token.touch(mode=0o644)
    found = list(findings.permissions([DirectoryCheck("cache", file, READ, 0)], token))
    assert verdicts(found) == [("permissions", "wrong")] * 2
    assert "no directory" in found[0].said
    assert found[1].fix == f"chmod 600 {token}"


def test_a_sound_pair_is_sound(tmp_path: Path) -> None:
    """A model of the user's own, with a draft that fits."""
    tiny.build(tmp_path / "big.gguf")
    tiny.build(tmp_path / "small.gguf", seed=1)
    (tmp_path / "drafts.json").write_text('{"big": "small"}')
    found, pair = findings.models(tmp_path, "big")
    assert verdicts(found) == [("model", "ok"), ("draft", "ok")]
    assert len(pair) == 2


def test_a_draft_that_is_larger_than_its_target_is_told(tmp_path: Path) -> None:
    """It is not loaded: what is said of memory is of the target alone."""
    tiny.build(tmp_path / "small.gguf")
    tiny.build(tmp_path / "big.gguf", layers=12)
    (tmp_path / "drafts.json").write_text('{"small": "big"}')
    found, loaded = findings.models(tmp_path, "small")
    wrong = only_wrong(found)
    assert wrong.what == "draft"
    assert "larger than its target" in wrong.said
    assert len(loaded) == 1


def test_models_that_cannot_be_used_are_told(tmp_path: Path) -> None:
    """None there, none of that name, a draft that is an encoder, a file cut short, a dead link."""
    found, pair = findings.models(tmp_path / "nowhere", Config().models.default)
    assert "localspec models pull" in only_wrong(found).fix
    assert pair == []
    big = tiny.build(tmp_path / "big.gguf", layers=40)  # larger than the next one
    misspelt = only_wrong(findings.models(tmp_path, "bgi")[0])
    assert misspelt.fix.startswith("Did you mean big?")
    assert misspelt.said.startswith('models.default = "bgi": ')
    encoders.bert(tmp_path / "small.gguf")
    (tmp_path / "drafts.json").write_text('{"big": "small"}')
    assert "writes no text" in only_wrong(findings.models(tmp_path, "big")[0]).said
    tiny.build(tmp_path / "small.gguf", extra_tokens=1, layers=1)
    (fine,) = [one for one in findings.models(tmp_path, "big")[0] if one.what == "draft"]
    assert (fine.verdict, "another tokenizer" in fine.said) == ("ok", True)
    (tmp_path / "drafts.json").unlink()
    (tmp_path / "dead.gguf").symlink_to("nowhere")
    assert "leads nowhere" in only_wrong(findings.models(tmp_path, "big")[0]).said
    (tmp_path / "dead.gguf").unlink()
    big.write_bytes(big.read_bytes()[:5000])
    wrong = only_wrong(findings.models(tmp_path, "big")[0])
    assert wrong.what == "model"
    assert "big.gguf" in wrong.said


def test_a_file_that_is_not_the_catalogs_is_told(tmp_path: Path) -> None:
    """Its name and a sound header are not enough."""
    entry = next(entry for entry in entries.load().values() if not entry.quantize)
    tiny.build(tmp_path / entry.file)
    found, _ = findings.models(tmp_path, entry.name)
    told = [one.said for one in found if one.verdict == "wrong" and one.what == "model"]
    assert told == [f"{tmp_path / entry.file} is not what the catalog has."]


def test_settings_with_a_mistake_are_told() -> None:
    """And the examination goes on with the defaults."""
    file = paths.config_file()
    file.parent.mkdir(parents=True)
    file.write_text("[engine]\nslots = 1000\n")
    finding, chosen = findings.settings()
    assert "engine.slots" in only_wrong([finding]).said
    assert chosen == Config()


def test_a_pair_that_is_too_large_is_told(tmp_path: Path) -> None:
    """By headers alone, as a load would plan it; what is taken now does not matter."""
    pair = [header.read(tiny.build(tmp_path / "big.gguf"))]

    def on(mebibytes: int, **engine: Any) -> list[Finding]:
        host = Device("CPU", "cpu", 0, mebibytes << 20)
        there = [host]
        return list(findings.memory(Config(engine=EngineSettings(**engine)), pair, there))

    assert verdicts(on(1 << 20)) == [("memory", "ok")]
    assert "models plan" in only_wrong(on(1)).fix
    assert "engine.context" in only_wrong(on(79, context=4096)).fix
    assert verdicts(on(79, slots=1, context=64)) == [("memory", "ok")]


def test_a_sound_machine_is_one_screen_without_a_complaint(tmp_path: Path) -> None:
    """The whole command: it proves the build in a real worker, and changes nothing."""
    someone = UserHome(tmp_path)
    tiny.build(someone.models / "tiny.gguf")
    before = sorted(tmp_path.rglob("*"))
    lines = someone.run("doctor").stdout.splitlines()
    assert len(lines) < 24
    assert all(line.startswith("ok ") for line in lines)
    assert any("CPU: loads and decodes" in line for line in lines)
    assert sorted(tmp_path.rglob("*")) == before


def report(**model: Any) -> dict[str, Any]:
    """The status of a daemon with one model."""
    version = metadata.version("localspec")
    return {"pid": 7, "version": version, "models": [{"name": "big", "state": "ready", **model}]}


@pytest.mark.parametrize("state", ["ready", "loading", "unloaded"])
@pytest.mark.parametrize("crash", ["SIGKILL", "SIGSEGV", "a remote that went away"])
def test_what_a_model_has_come_through_is_one_line_and_not_wrong(state: str, crash: str) -> None:
    """A model answers, or will, after any death of its worker. Errors of earlier loads are past."""
    known = report(state=state, last_crash=crash, crashes=3, error="It died.")
    found = list(findings._running(known))  # noqa: SLF001 - no daemon can be made to say all that
    assert verdicts(found) == [("daemon", "ok"), ("history", "ok")]
    assert f"died of {crash}" in found[1].said
    quiet = list(findings._running(report(state=state)))  # noqa: SLF001
    assert verdicts(quiet) == [("daemon", "ok")]


@pytest.mark.parametrize(
    ("state", "fields", "said"),
    [
        ("failed", {"error": "There is no file x."}, "There is no file x."),
        ("failed", {"last_crash": "SIGSEGV", "crashes": 4}, "SIGSEGV"),
        ("ready", {"stalled": True}, "stands still"),
        ("ready", {"safe_kernels": True, "last_crash": "SIGILL"}, "slow kernels"),
    ],
)
def test_what_refuses_requests_or_slows_them_down_now_is_wrong(
    state: str, fields: dict[str, Any], said: str
) -> None:
    """Each is told once, with a command that helps."""
    found = list(findings._running(report(state=state, **fields)))  # noqa: SLF001 - as above
    assert said in only_wrong(found).said


def test_a_daemon_that_was_updated_while_it_ran_is_told_with_the_restart() -> None:
    """Its models are told as well: they may be fine."""
    found = list(findings._running(report(state="ready") | {"updated": True}))  # noqa: SLF001 - as above
    assert only_wrong(found).fix == "localspec restart"
    assert not [one for one in findings._running(report(state="ready")) if one.fix]  # noqa: SLF001


def test_a_worker_that_was_killed_and_came_back_is_history(tmp_path: Path) -> None:
    """The whole command, with a real worker and a real SIGKILL: one line, exit code 0."""
    someone = UserHome(tmp_path)
    tiny.build(someone.models / "tiny.gguf")
    someone.run("start")
    try:
        someone.run("chat", "Hello", "--max-tokens", "1")
        (model,) = json.loads(someone.run("status", "--json").stdout)["models"]
        os.kill(model["pid"], signal.SIGKILL)
        someone.run("chat", "Hello", "--max-tokens", "1")
        found = json.loads(someone.run("doctor", "--json").stdout)
        assert {one["verdict"] for one in found} == {"ok"}
        (history,) = [one["said"] for one in found if one["what"] == "history"]
        assert history == "tiny: a worker died of SIGKILL; another one has taken its place"
    finally:
        someone.run("stop")


def test_everything_that_is_wrong_is_in_one_screen(tmp_path: Path) -> None:
    """Exit code 1; the daemon's socket made public, its model gone, its configuration broken."""
    someone = UserHome(tmp_path)
    model = tiny.build(someone.models / "tiny.gguf")
    someone.run("start")
    try:
        Path(someone.run("socket").stdout.strip()).chmod(0o666)
        model.unlink()
        found = json.loads(someone.run("doctor", "--json", exit_code=1).stdout)
        wrong = {one["what"]: one["fix"] for one in found if one["verdict"] == "wrong"}
        assert wrong.keys() == {"socket", "model"}
        assert wrong["socket"].startswith("chmod 600")
        (tmp_path / "config.toml").write_text("[servre]\n")
        lines = someone.run("doctor", exit_code=1).stdout.splitlines()
        assert any(line.startswith("WRONG  settings") for line in lines)
    finally:
        (tmp_path / "config.toml").unlink()
        someone.run("stop")
