"""From a name to files that load: the INT4 draft is built by the real quantizer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import gguf
import msgspec
import pytest
import tiny
from machine import children_of

from localspec import paths
from localspec.catalog import header, pairing, prepare, quantize
from localspec.catalog.entries import Entry
from localspec.catalog.locks import building
from localspec.catalog.pull import pull
from localspec.catalog.registry import Registry
from localspec.errors import BadGGUF, EngineError, ModelError, PullError, UnknownModel

MADE = "tiny-q4_0.gguf"


@pytest.fixture
def draft_entry(entry: Entry) -> Entry:
    """An entry that is fetched as Q8_0 and serves as Q4_0."""
    return msgspec.structs.replace(entry, quantize="q4_0", quantized_file=MADE)


def test_the_draft_is_fetched_built_and_its_source_removed(
    hub: Any, draft_entry: Entry, tmp_path: Path, steps: Any, tiny_source: Path
) -> None:
    """The result is pure Q4_0, speaks the same tokens, and the disk holds nothing else."""
    result = prepare.ensure_entry(draft_entry, tmp_path, steps)
    assert result is not None
    made = header.read(tmp_path / MADE)
    assert {t.type.name for t in made.tensors if len(t.shape) > 1} == {"Q4_0"}
    assert pairing.check(header.read(tiny_source), made).can_speculate
    assert result.bytes_after == made.file_bytes < result.bytes_before
    assert (result.tokens_per_second_before or 0) > 0
    assert (result.tokens_per_second_after or 0) > 0
    assert "instead of" in steps[-1].detail
    assert sorted(path.name for path in tmp_path.iterdir()) == [".verified.json", MADE]
    steps.clear()
    assert prepare.ensure_entry(draft_entry, tmp_path, steps) is None
    assert steps == []
    assert hub.ranges == [None]


@pytest.mark.parametrize("kind", ["F16", "Q4_1", "Q5_0", "Q8_0", "Q4_0"])
def test_a_draft_without_kernels_is_made_int4(tmp_path: Path, steps: Any, kind: str) -> None:
    """Once; what was here stays, and one that has kernels drafts as it is."""
    quantization = gguf.GGMLQuantizationType[kind]
    tiny.build(tmp_path / "small.gguf", quantization=quantization)
    name = prepare.int4_draft("small", tmp_path, steps)
    assert name == ("small" if kind in {"Q8_0", "Q4_0"} else "small-q4_0")
    made = header.read(tmp_path / f"{name}.gguf")
    kinds = {each.type.name for each in made.tensors if len(each.shape) > 1}
    assert kinds == {"Q8_0" if kind == "Q8_0" else "Q4_0"}
    steps.clear()
    assert prepare.int4_draft("small", tmp_path, steps) == name
    assert steps == []
    assert (tmp_path / "small.gguf").exists()


def test_a_source_that_the_user_wants_is_kept(
    draft_entry: Entry, tmp_path: Path, steps: Any
) -> None:
    """With `keep_source`, or if it was here before, the source stays."""
    prepare.ensure_entry(draft_entry, tmp_path, steps, keep_source=True)
    assert (tmp_path / draft_entry.file).exists()
    (tmp_path / MADE).unlink()
    prepare.ensure_entry(draft_entry, tmp_path, steps)
    assert (tmp_path / draft_entry.file).exists()
    assert (tmp_path / MADE).exists()


def test_an_interrupted_build_goes_on_with_what_was_fetched(
    hub: Any, draft_entry: Entry, tmp_path: Path, steps: Any
) -> None:
    """The fetched source waits in the workplace; only the build is repeated, then it goes."""

    def interrupt(step: Any) -> None:
        if step.stage == "quantizing":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare.ensure_entry(draft_entry, tmp_path, interrupt)
    workplace = tmp_path / draft_entry.workplace
    assert (workplace / draft_entry.file).exists()
    assert not list(tmp_path.glob("*.gguf"))
    assert prepare.ensure_entry(draft_entry, tmp_path, steps) is not None
    assert not workplace.exists()
    assert hub.ranges == [None]


def test_a_build_waits_for_another_one(draft_entry: Entry, tmp_path: Path, steps: Any) -> None:
    """While one process builds, a second waits, says so, and then finds the work done."""
    waiting = threading.Event()

    def report(step: Any) -> None:
        if step.stage == "waiting":
            waiting.set()

    results: list[Any] = []
    with building(tmp_path, lambda: None):
        thread = threading.Thread(
            target=lambda: results.append(prepare.ensure_entry(draft_entry, tmp_path, report))
        )
        thread.start()
        assert waiting.wait(60)
        quantize.quantize(pull(draft_entry, tmp_path, steps), tmp_path / MADE, steps, measure=False)
    thread.join()
    assert results == [None]


def test_a_quantizer_that_dies_is_an_error_and_leaves_nothing(
    tiny_source: Path, tmp_path: Path
) -> None:
    """The native process is killed in the middle: EngineError, and no half file anywhere."""

    def kill(step: Any) -> None:
        assert step.stage in {"quantizing", "measuring"}
        for child in children_of(os.getpid()):
            os.kill(child, signal.SIGKILL)

    with pytest.raises(EngineError, match="was ended by SIGKILL"):
        quantize.quantize(tiny_source, tmp_path / MADE, kill)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.timeout(60)
def test_what_a_killed_quantizing_left_is_deleted_later(tmp_path: Path, tiny_source: Path) -> None:
    """By the next pull, import or start, like any temporary file."""
    code = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from localspec.catalog.quantize import quantize\n"
        "def report(step):\n"
        "    if step.done_bytes:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "quantize(Path(sys.argv[1]), Path(sys.argv[2]) / 'made.gguf', report)\n"
    )
    command = [sys.executable, "-P", "-c", code, str(tiny_source), str(tmp_path)]
    ended = subprocess.run(command, check=False, capture_output=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert len(list(tmp_path.iterdir())) == 1
    paths.sweep(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_model_never_reaches_the_quantizer(tmp_path: Path, steps: Any) -> None:
    """The header gate stands before the native process too."""
    (tmp_path / "page.gguf").write_bytes(b"<html>")
    with pytest.raises(BadGGUF):
        quantize.quantize(tmp_path / "page.gguf", tmp_path / MADE, steps)
    assert steps == []


def test_a_user_s_model_is_quantized_beside_itself(
    tiny_source: Path, tmp_path: Path, steps: Any
) -> None:
    """The new model has the old one's draft; making it twice is refused."""
    (tmp_path / "mine.gguf").write_bytes(tiny_source.read_bytes())
    (tmp_path / "small.gguf").write_bytes(tiny_source.read_bytes())
    registry = Registry(tmp_path)
    registry.attach("mine", "small")
    result = prepare.quantize_model("mine", tmp_path, steps, kind="q4_0")
    assert result.path == tmp_path / "mine-q4_0.gguf"
    assert registry.resolve("mine-q4_0").draft_path == tmp_path / "small.gguf"
    with pytest.raises(ModelError, match="already here"):
        prepare.quantize_model("mine", tmp_path, steps, kind="q4_0")


def test_a_user_s_model_needs_no_network(
    hub: Any, tiny_path: Path, tmp_path: Path, steps: Any
) -> None:
    """A dropped file is a pair by itself; nothing is fetched for it."""
    (tmp_path / "mine.gguf").write_bytes(tiny_path.read_bytes())
    found = prepare.ensure_pair("MINE.gguf", tmp_path, steps)
    assert (found.name, found.draft_path) == ("mine", None)
    assert hub.tokens == []
    with pytest.raises(UnknownModel):
        prepare.ensure_pair("yours", tmp_path, steps)


def test_a_draft_that_cannot_be_had_does_not_stop_the_target(
    hub: Any, tmp_path: Path, tiny_path: Path, steps: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lookup speculates without one: the reason is reported, and only a strict caller fails."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    hub.status = 404
    (tmp_path / "mine.gguf").write_bytes(tiny_path.read_bytes())
    Registry(tmp_path).attach("mine", "qwen2.5-coder-0.5b-instruct")
    found = prepare.ensure_pair("mine", tmp_path, steps)
    assert (found.draft_name, found.draft_path) == ("qwen2.5-coder-0.5b-instruct", None)
    assert steps[-1].stage == "skipped"
    assert "No source could deliver" in steps[-1].detail
    with pytest.raises(PullError):
        prepare.ensure_pair("mine", tmp_path, steps, draft_required=True)
