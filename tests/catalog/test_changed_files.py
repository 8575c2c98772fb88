"""A file without a known SHA-256 is of one version and one URL, wherever its pull was cut off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from localspec.catalog.entries import Address, Entry
from localspec.catalog.pull import pull
from localspec.catalog.transfer import Step, remains

ETAG, DATE = {"ETag": '"one"'}, {"Last-Modified": "Fri, 27 Nov 2026 10:00:00 GMT"}
OTHER = {"ETag": '"two"'}, {"Last-Modified": "Sat, 28 Nov 2026 10:00:00 GMT"}


@pytest.fixture
def unknown(hub: Any, entry: Entry) -> Entry:
    """A file of any server: its SHA-256 is not known before."""
    source = Address(f"{hub.endpoint}/files/{entry.file}")
    return msgspec.structs.replace(entry, sha256="", source=[source])


def interrupt(hub: Any, entry: Entry, directory: Path, share: float = 0.6) -> int:
    """End a pull after a share of its bytes, and return how many are here."""
    reached = int(entry.size_bytes * share)

    def report(step: Step) -> None:
        if step.done_bytes >= reached:
            raise KeyboardInterrupt

    left, _ = remains(directory / entry.file)
    hub.cut_after = reached - (left.stat().st_size if left.exists() else 0)
    hub.cuts = int(share < 1)
    with pytest.raises(KeyboardInterrupt):
        pull(entry, directory, report)
    assert left.stat().st_size == reached
    hub.ranges.clear()
    hub.sent.clear()
    return reached


@pytest.mark.parametrize("validators", [ETAG, DATE, {"ETag": 'W/"one"', **DATE}])
def test_a_file_that_is_the_same_goes_on(
    hub: Any, unknown: Entry, tmp_path: Path, steps: Any, validators: dict[str, str]
) -> None:
    """It is known by a strong ETag, else by its date; nothing is left beside it."""
    hub.validators = validators
    reached = interrupt(hub, unknown, tmp_path)
    path = pull(unknown, tmp_path, steps)
    assert path.read_bytes() == hub.files[unknown.file]
    assert (hub.ranges, hub.sent) == ([f"bytes={reached}-"], [206])
    assert sorted(each.name for each in tmp_path.iterdir()) == [".verified.json", unknown.file]


@pytest.mark.parametrize("knows", [True, False])
@pytest.mark.parametrize("versions", [(ETAG, OTHER[0]), (DATE, OTHER[1])])
def test_a_file_that_has_changed_starts_anew(
    hub: Any, unknown: Entry, tmp_path: Path, versions: tuple[dict[str, str], ...], knows: bool
) -> None:
    """Also on a server that does not know If-Range, if it tells the file's version."""
    hub.validators, after = versions
    interrupt(hub, unknown, tmp_path)
    hub.validators, hub.ignores_if_range = after, not knows
    hub.files[unknown.file] = bytes(unknown.size_bytes)
    assert pull(unknown, tmp_path, print).read_bytes() == bytes(unknown.size_bytes)
    assert sorted(each.name for each in tmp_path.iterdir()) == [".verified.json", unknown.file]


@pytest.mark.parametrize("validators", [{}, {"ETag": 'W/"one"'}])
def test_what_no_server_can_tell_apart_starts_anew(
    hub: Any, unknown: Entry, tmp_path: Path, steps: Any, validators: dict[str, str]
) -> None:
    """A weak ETag may be that of other bytes."""
    hub.validators = validators
    interrupt(hub, unknown, tmp_path)
    hub.files[unknown.file] = bytes(unknown.size_bytes)
    assert pull(unknown, tmp_path, steps).read_bytes() == bytes(unknown.size_bytes)
    assert hub.ranges == [None]


@pytest.mark.parametrize("share", [0.6, 1.0])
def test_another_url_of_the_same_name_starts_anew(
    hub: Any, unknown: Entry, tmp_path: Path, steps: Any, share: float
) -> None:
    """Even if all bytes of the first are here; each server counts its own versions."""
    hub.validators = ETAG
    interrupt(hub, unknown, tmp_path, share)
    hub.files["other.gguf"] = bytes(unknown.size_bytes)
    other = msgspec.structs.replace(unknown, source=[Address(f"{hub.endpoint}/files/other.gguf")])
    assert pull(other, tmp_path, steps).read_bytes() == bytes(unknown.size_bytes)
    assert hub.ranges == [None]


def test_a_file_that_changes_between_two_connections_is_of_one_version(
    hub: Any, unknown: Entry, tmp_path: Path
) -> None:
    """Within one pull, too."""
    hub.validators = ETAG
    hub.cuts, hub.cut_after = 1, int(unknown.size_bytes * 0.6)

    def report(step: Step) -> None:
        if step.done_bytes == hub.cut_after:
            hub.validators = OTHER[0]
            hub.files[unknown.file] = bytes(unknown.size_bytes)

    assert pull(unknown, tmp_path, report).read_bytes() == bytes(unknown.size_bytes)
    assert hub.sent == [200, 200]


def test_what_a_file_with_a_hash_has_left_is_continued_by_none_without(
    hub: Any, entry: Entry, unknown: Entry, tmp_path: Path, steps: Any
) -> None:
    """Bytes of two sources are checked by the hash alone."""
    hub.validators = ETAG
    interrupt(hub, unknown, tmp_path, 0.3)
    interrupt(hub, entry, tmp_path)
    hub.files[unknown.file] = bytes(unknown.size_bytes)
    assert pull(unknown, tmp_path, steps).read_bytes() == bytes(unknown.size_bytes)
