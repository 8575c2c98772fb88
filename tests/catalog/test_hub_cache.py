"""A file that other programs of the Hub keep is not fetched again; their token is the user's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from catalog.conftest import Steps

from localspec.catalog import hub_cache
from localspec.catalog.entries import Entry, HubFile
from localspec.catalog.pull import pull
from localspec.catalog.transfer import remains


@pytest.fixture(autouse=True)
def unmoved(monkeypatch: pytest.MonkeyPatch, own_home: Path) -> Path:
    """The default place of the Hub's programs, in an empty home."""
    for name in [name for name in os.environ if name.startswith(("HF_", "HUGGING"))]:
        if name != "HF_ENDPOINT":
            monkeypatch.delenv(name)
    return own_home / "cache" / "huggingface"


def keep(cache: Path, entry: Entry, data: bytes) -> Path:
    """Put the entry's file into a cache, as huggingface_hub does."""
    source = entry.source[0]
    assert isinstance(source, HubFile)
    blob = cache / f"models--{source.repo.replace('/', '--')}" / "blobs" / entry.sha256
    blob.parent.mkdir(parents=True)
    blob.write_bytes(data)
    blob.chmod(0o644)
    return blob


def hugging_face(code: str) -> str:
    """The output of a program that uses the Hub's own library, in the environment of the test."""
    command = [
        sys.executable,
        "-c",
        f"from huggingface_hub import constants, hf_hub_download; {code}",
    ]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_what_the_hubs_own_library_fetches_is_shared(
    hub: Any, entry: Entry, tmp_path: Path, steps: Any
) -> None:
    """Also the file that several repositories share, to which the cache has a link then."""
    source = entry.source[0]
    assert isinstance(source, HubFile)
    code = f"print(hf_hub_download({source.repo!r}, {source.file!r}), end='')"
    fetched = Path(hugging_face(code))
    asked = len(hub.ranges)
    path = pull(entry, tmp_path / "models", steps)
    assert path.samefile(fetched)
    assert len(hub.ranges) == asked
    path.unlink()
    blob, shared = fetched.resolve(), tmp_path / "shared"
    blob.rename(shared)
    blob.symlink_to(os.path.relpath(shared, blob.parent))
    path = pull(entry, tmp_path / "models", steps)
    assert path.samefile(shared)
    assert not path.is_symlink()


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"XDG_CACHE_HOME": "/srv/cache"},
        {"HF_HOME": "~/hf"},
        {"HF_HOME": "$HOME/hf", "HF_HUB_CACHE": "/srv/hub"},
        {"HF_TOKEN_PATH": "~/secrets/token", "HUGGINGFACE_HUB_CACHE": "/srv/old"},
    ],
)
def test_places_are_those_of_the_hubs_own_library(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever variables move them."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    said = hugging_face("print(constants.HF_HUB_CACHE, constants.HF_TOKEN_PATH, sep=chr(10))")
    assert [str(hub_cache.directory()), str(hub_cache.token_file())] == said.splitlines()


@pytest.mark.parametrize("moved", [None, "HF_HOME", "HF_HUB_CACHE"])
def test_what_is_kept_is_shared(
    hub: Any, entry: Entry, unmoved: Path, monkeypatch: pytest.MonkeyPatch, moved: str | None
) -> None:
    """Nothing is fetched, the file takes no room, and each name outlives the other."""
    models, steps = unmoved.parent / "models", Steps()
    cache = unmoved.with_name("elsewhere") if moved else unmoved
    if moved:
        monkeypatch.setenv(moved, str(cache))
    data = hub.files[entry.file]
    kept = keep(cache if moved == "HF_HUB_CACHE" else cache / "hub", entry, data)
    path = pull(entry, models, steps)
    assert path.samefile(kept)
    assert hub.tokens == []
    assert steps.stages == ["verifying", "done"]
    shutil.rmtree(cache)
    assert path.read_bytes() == data
    assert pull(entry, models, steps) == path


@pytest.mark.parametrize("fault", ["damaged", "cut", "a directory", "writable by others"])
def test_what_cannot_be_trusted_is_fetched(
    hub: Any, entry: Entry, tmp_path: Path, unmoved: Path, fault: str
) -> None:
    """The cache is as it was, and a file of our own is there."""
    data = hub.files[entry.file]
    kept = keep(unmoved / "hub", entry, data)
    if fault == "damaged":
        kept.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    elif fault == "cut":
        kept.write_bytes(data[:-1])
    elif fault == "a directory":
        kept.unlink()
        kept.mkdir()
    else:
        kept.chmod(0o666)
    path = pull(entry, tmp_path / "models", Steps())
    assert path.read_bytes() == data
    assert not path.samefile(kept)
    assert [each.name for each in path.parent.iterdir() if each.name.endswith("tmp")] == []


def test_a_pull_that_was_interrupted_takes_what_another_program_has_fetched(
    hub: Any, entry: Entry, tmp_path: Path, steps: Any, unmoved: Path
) -> None:
    """Nothing of the interrupted one is left."""
    models = tmp_path / "models"
    models.mkdir()
    data = hub.files[entry.file]
    (models / f"{entry.file}.partial").write_bytes(data[:1000])
    keep(unmoved / "hub", entry, data)
    assert pull(entry, models, steps).read_bytes() == data
    assert list(models.glob("*.partial")) == []
    assert hub.tokens == []


def test_a_pull_that_was_killed_after_it_took_a_file_leaves_nothing(
    hub: Any, entry: Entry, tmp_path: Path, steps: Any
) -> None:
    """The file has its name, and what an earlier pull had fetched of it is still there."""
    data = hub.files[entry.file]
    (tmp_path / entry.file).write_bytes(data)
    for left in remains(tmp_path / entry.file):
        left.write_bytes(data[:1000])
    assert pull(entry, tmp_path, steps).read_bytes() == data
    assert sorted(each.name for each in tmp_path.iterdir()) == [".verified.json", entry.file]
    assert hub.tokens == []


def test_another_disk_gets_a_copy(
    hub: Any, entry: Entry, tmp_path: Path, steps: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name cannot be given across disks; the copy is checked too."""
    there = Path("/dev/shm")  # noqa: S108 - another disk
    if not there.is_dir() or there.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is one disk")
    cache = there / f"localspec-{os.getpid()}"
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    data = hub.files[entry.file]
    try:
        keep(cache, entry, data)
        path = pull(entry, tmp_path / "models", steps)
    finally:
        shutil.rmtree(cache, ignore_errors=True)
    assert path.read_bytes() == data
    assert path.stat().st_mode & 0o777 == 0o644
    assert hub.tokens == []


def test_the_token_is_the_one_that_was_stored(
    hub: Any, entry: Entry, tmp_path: Path, steps: Any, unmoved: Path
) -> None:
    """As `hf auth login` stores it."""
    unmoved.mkdir(parents=True)
    (unmoved / "token").write_text("hf_stored\n")
    pull(entry, tmp_path, steps)
    assert {token for _, token in hub.tokens} == {"Bearer hf_stored"}


@pytest.mark.parametrize(
    ("variables", "stored", "token"),
    [
        ({"HF_TOKEN": " hf_said\n"}, b"hf_stored", "hf_said"),
        ({"HF_TOKEN": ""}, b"hf_stored", "hf_stored"),
        ({"HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}, b"hf_stored", ""),
        ({"HF_HUB_DISABLE_IMPLICIT_TOKEN": "1", "HF_TOKEN": "hf_said"}, b"hf_stored", "hf_said"),
        ({"HF_TOKEN": "two\r\nlines"}, b"hf_stored", ""),
        ({}, b"\xff\x00", ""),
        ({}, b"two\nlines", ""),
        ({}, b"x" * 5000, "x" * 4096),
    ],
)
def test_which_token_counts(
    unmoved: Path,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    stored: bytes,
    token: str,
) -> None:
    """Characters that a header cannot hold are no token."""
    unmoved.mkdir(parents=True)
    (unmoved / "token").write_bytes(stored)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert hub_cache.token() == token


def test_a_token_may_lie_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HF_TOKEN_PATH names the file; a pipe that nobody writes to is none."""
    (tmp_path / "mine").write_text("hf_mine")
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "mine"))
    assert hub_cache.token() == "hf_mine"
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "pipe"))
    assert not hub_cache.token()
