"""Tests of fetching over real HTTP: resumed, checked, done once, with reasons for failures."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from machine import silent_server

from localspec.catalog import hub as hub_source
from localspec.catalog.entries import Entry, HubFile
from localspec.catalog.pull import pull
from localspec.catalog.transfer import NoAnswer, Partial, open_partial
from localspec.errors import ChecksumMismatch, DiskFull, PullError

PARTIAL = "tiny-q8_0.gguf.partial"


def test_a_file_is_fetched_checked_and_named(
    hub: Any, entry: Entry, tiny_source: Path, tmp_path: Path, steps: Any
) -> None:
    """The bytes arrive whole, nothing else is left behind, and every byte was reported."""
    path = pull(entry, tmp_path, steps)
    assert path.read_bytes() == tiny_source.read_bytes()
    assert sorted(found.name for found in tmp_path.iterdir()) == [".verified.json", entry.file]
    assert steps.stages == ["connecting", "downloading", "done"]
    assert steps[-2].done_bytes == steps[-2].total_bytes == entry.size_bytes
    assert hub.ranges == [None]


def test_what_is_here_and_verified_is_not_read_again(
    hub: Any, entry: Entry, tmp_path: Path, steps: Any
) -> None:
    """A second pull neither asks the network nor hashes; a touched file is hashed once."""
    path = pull(entry, tmp_path, steps)
    steps.clear()
    assert pull(entry, tmp_path, steps) == path
    assert steps == []
    path.touch()
    assert pull(entry, tmp_path, steps) == path
    assert steps.stages == ["verifying", "done"]
    assert hub.ranges == [None]


def test_a_file_put_there_by_hand_is_checked_and_never_overwritten(
    hub: Any, entry: Entry, tmp_path: Path, steps: Any
) -> None:
    """Another file under the catalog's name stays, and the error says so."""
    theirs = tmp_path / entry.file
    theirs.write_bytes(b"precious")
    with pytest.raises(ChecksumMismatch, match="not the catalog's file"):
        pull(entry, tmp_path, steps)
    assert theirs.read_bytes() == b"precious"
    assert hub.ranges == []


def test_a_cut_connection_goes_on_where_it_stopped(
    hub: Any, entry: Entry, tiny_source: Path, tmp_path: Path, steps: Any
) -> None:
    """Each cut costs one more request from the byte reached, and no byte twice."""
    hub.cuts, hub.cut_after = 2, 50_000
    path = pull(entry, tmp_path, steps)
    assert path.read_bytes() == tiny_source.read_bytes()
    assert hub.ranges == [None, "bytes=50000-", "bytes=100000-"]


def test_a_server_without_ranges_is_read_from_the_start(
    hub: Any, entry: Entry, tiny_source: Path, tmp_path: Path, steps: Any
) -> None:
    """An answer that ignores the range replaces what was here instead of being appended."""
    (tmp_path / PARTIAL).write_bytes(tiny_source.read_bytes()[:70_000])
    hub.ignores_ranges = True
    assert pull(entry, tmp_path, steps).read_bytes() == tiny_source.read_bytes()
    assert hub.ranges == ["bytes=70000-"]


def test_an_interrupted_pull_resumes_from_its_partial(
    hub: Any, entry: Entry, tiny_source: Path, tmp_path: Path
) -> None:
    """Ctrl-C in the middle leaves a prefix behind, and the next pull asks only for the rest."""
    hub.hold = threading.Event()
    half = entry.size_bytes // 2
    (tmp_path / "entry.json").write_bytes(msgspec.json.encode(entry))
    code = (
        "import sys, msgspec\n"
        "from pathlib import Path\n"
        "from localspec.catalog.entries import Entry\n"
        "from localspec.catalog.pull import pull\n"
        "here = Path(sys.argv[1])\n"
        "entry = msgspec.json.decode((here / 'entry.json').read_bytes(), type=Entry)\n"
        "pull(entry, here, lambda step: print(step.done_bytes, flush=True))\n"
    )
    command = [sys.executable, "-P", "-c", code, str(tmp_path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line == f"{half}\n":
                break
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    hub.hold.set()
    hub.hold = None
    assert "KeyboardInterrupt" in said
    assert not (tmp_path / entry.file).exists()
    assert (tmp_path / PARTIAL).stat().st_size == half
    assert pull(entry, tmp_path, lambda _: None).read_bytes() == tiny_source.read_bytes()
    assert hub.ranges == [None, f"bytes={half}-"]


def wait_for_request(hub: Any) -> None:
    """Return once the server has begun to answer with a file."""
    seen = threading.Event()
    while not hub.ranges:
        seen.wait(0.005)


def test_a_corrupt_partial_is_discarded_and_fetched_anew(
    hub: Any, entry: Entry, tiny_source: Path, tmp_path: Path, steps: Any
) -> None:
    """Bytes spoiled on the disk are found by the checksum, and one more try repairs them."""
    (tmp_path / PARTIAL).write_bytes(b"\0" * 1000)
    assert pull(entry, tmp_path, steps).read_bytes() == tiny_source.read_bytes()
    assert hub.ranges == ["bytes=1000-", None]


def test_wrong_bytes_never_take_the_name(
    hub: Any, entry: Entry, tmp_path: Path, steps: Any
) -> None:
    """A source that sends other bytes of the right size fails, and leaves nothing behind."""
    hub.lists = False
    hub.files[entry.file] = bytes(entry.size_bytes)
    with pytest.raises(ChecksumMismatch, match="discarded"):
        pull(entry, tmp_path, steps)
    assert list(tmp_path.iterdir()) == []


def test_too_many_bytes_are_refused(hub: Any, entry: Entry, tmp_path: Path, steps: Any) -> None:
    """A source cannot fill the disk: what goes beyond the catalog's size ends it."""
    hub.lists = False
    hub.files[entry.file] += b"more"
    with pytest.raises(PullError, match=f"more than {entry.size_bytes} bytes"):
        pull(entry, tmp_path, steps)


def test_a_file_that_was_replaced_on_the_hub_is_not_even_fetched(
    hub: Any, entry: Entry, tmp_path: Path, steps: Any
) -> None:
    """The Hub's own listing tells that it is another file before a byte of it is read."""
    hub.listed_sha256 = "0" * 64
    with pytest.raises(PullError, match="not the catalog's file"):
        pull(entry, tmp_path, steps)
    assert hub.ranges == []


@pytest.mark.parametrize(
    ("status", "says"),
    [(404, "404 Not Found"), (401, "401 Unauthorized; set HF_TOKEN"), (503, "503 Service")],
)
def test_every_source_says_why_it_failed(
    hub: Any, entry: Entry, tmp_path: Path, status: int, says: str
) -> None:
    """The error lists each source with its reason; the next source is tried after the first."""
    hub.status = status
    second = HubFile("another/repo", entry.file)
    with pytest.raises(PullError, match=says) as failed:
        pull(msgspec.structs.replace(entry, source=[*entry.source, second]), tmp_path, print)
    assert "hf:someone/tiny-GGUF: " in failed.value.message
    assert "hf:another/repo: " in failed.value.message
    assert len(hub.ranges) == 2


def test_the_hub_can_be_forbidden(
    hub: Any, entry: Entry, tmp_path: Path, steps: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With HF_HUB_OFFLINE no connection is opened."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(PullError, match="HF_HUB_OFFLINE is set"):
        pull(entry, tmp_path, steps)
    assert hub.tokens == []


@pytest.mark.parametrize("endpoint", ["file:///etc", "ftp://example.com"])
def test_only_http_endpoints_are_used(
    entry: Entry, tmp_path: Path, steps: Any, monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    """HF_ENDPOINT cannot make the pull read local files."""
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    with pytest.raises(PullError, match="not an http address"):
        pull(entry, tmp_path, steps)


def test_the_token_goes_to_the_hub_and_not_to_its_storage(
    hub: Any, entry: Entry, tmp_path: Path, steps: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HF_TOKEN identifies the user to the Hub; the host that it redirects to never sees it."""
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    hub.redirect_to = f"{hub.endpoint}/storage/"
    pull(entry, tmp_path, steps)
    seen = {path.split("/")[1]: token for path, token in hub.tokens}
    assert seen == {"api": "Bearer hf_secret", "someone": "Bearer hf_secret", "storage": None}


def test_a_network_without_the_hub_costs_little_patience(entry: Entry, tmp_path: Path) -> None:
    """An address that accepts and never responds is given up after the stated time."""
    source = entry.source[0]
    assert isinstance(source, HubFile)
    with silent_server() as endpoint, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_ENDPOINT", endpoint)
        with (
            open_partial(entry, tmp_path / entry.file, lambda _: None) as partial,
            pytest.raises(NoAnswer, match=r"did not answer within 0.05 s|timed out"),
        ):
            hub_source.fetch(source, partial, patience_seconds=0.05)


def test_two_pulls_of_one_file_do_the_work_once(
    hub: Any, entry: Entry, tmp_path: Path, steps: Any
) -> None:
    """The second waits, says so, and finds the file that the first has fetched."""
    hub.hold = threading.Event()
    found: list[Path] = []
    waiting = threading.Event()

    def second() -> None:
        def report(step: Any) -> None:
            if step.stage == "waiting":
                waiting.set()

        found.append(pull(entry, tmp_path, report))

    first = threading.Thread(target=lambda: found.append(pull(entry, tmp_path, steps)))
    first.start()
    wait_for_request(hub)
    other = threading.Thread(target=second)
    other.start()
    assert waiting.wait(60)
    hub.hold.set()
    first.join()
    other.join()
    assert found == [tmp_path / entry.file] * 2
    assert hub.ranges == [None]


def test_room_on_the_disk_is_checked_before_the_first_byte(
    hub: Any, entry: Entry, tmp_path: Path, steps: Any
) -> None:
    """The error names both sizes, and no source was contacted."""
    with pytest.raises(DiskFull, match=r"tiny-draft needs \d+\.\d\d GB in .* free") as full:
        pull(msgspec.structs.replace(entry, size_bytes=1 << 60), tmp_path, steps)
    assert full.value.details["needed_bytes"] == 1 << 60
    assert hub.tokens == []


def test_a_disk_that_fills_up_keeps_what_fits(
    hub: Any, entry: Entry, tiny_source: Path, tmp_path: Path
) -> None:
    """Writing fails in the middle: DiskFull, and the next pull goes on from there."""
    (tmp_path / "entry.json").write_bytes(msgspec.json.encode(entry))
    code = (
        "import resource, sys, msgspec\n"
        "from pathlib import Path\n"
        "from localspec.catalog.entries import Entry\n"
        "from localspec.catalog.pull import pull\n"
        "from localspec.errors import DiskFull\n"
        "here = Path(sys.argv[1])\n"
        "entry = msgspec.json.decode((here / 'entry.json').read_bytes(), type=Entry)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))\n"
        "try:\n"
        "    pull(entry, here, lambda step: None)\n"
        "except DiskFull as error:\n"
        "    print(error)\n"
    )
    command = [sys.executable, "-P", "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "goes on where it stopped" in done.stdout
    assert (tmp_path / PARTIAL).stat().st_size == 60_000
    assert pull(entry, tmp_path, lambda _: None).read_bytes() == tiny_source.read_bytes()
    assert hub.ranges == [None, "bytes=60000-"]


def test_a_partial_that_is_too_long_starts_over(
    entry: Entry, tmp_path: Path, tiny_source: Path, steps: Any
) -> None:
    """A part longer than the file is no prefix of it."""
    (tmp_path / PARTIAL).write_bytes(tiny_source.read_bytes() + b"x")
    assert pull(entry, tmp_path, steps).read_bytes() == tiny_source.read_bytes()


def test_a_complete_partial_needs_no_network(
    hub: Any, entry: Entry, tmp_path: Path, tiny_source: Path, steps: Any
) -> None:
    """A pull that was killed just before the renaming is completed without the network."""
    (tmp_path / PARTIAL).write_bytes(tiny_source.read_bytes())
    assert pull(entry, tmp_path, steps).read_bytes() == tiny_source.read_bytes()
    assert hub.tokens == []


def test_a_directory_that_cannot_be_made_is_a_sentence(
    entry: Entry, tmp_path: Path, steps: Any
) -> None:
    """A models directory below a file is an error, not a traceback."""
    (tmp_path / "file").touch()
    with pytest.raises(PullError, match="cannot be written"):
        pull(entry, tmp_path / "file" / "models", steps)


def test_a_partial_belongs_to_the_file_that_was_opened(entry: Entry, tmp_path: Path) -> None:
    """An owner that leaves nothing behind leaves no empty file behind either."""
    with open_partial(entry, tmp_path / entry.file, lambda _: None) as partial:
        assert isinstance(partial, Partial)
        assert (tmp_path / PARTIAL).exists()
    assert list(tmp_path.iterdir()) == []
