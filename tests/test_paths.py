"""Places, and the one way to write a file: the old content or the new one, whatever happens."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import textwrap
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

import platformdirs
import pytest

from localspec import config_file, paths
from localspec.errors import ConfigError

REPOSITORY = Path(__file__).resolve().parent.parent
OLD = b"old " * 1000
NEW = b"new! " * 2000


def child(code: str, *arguments: object) -> subprocess.Popen[str]:
    """A Python process that runs `code` with `paths`, `os`, `sys` and `resource` imported."""
    head = "import os, resource, sys\nfrom pathlib import Path\nfrom localspec import paths\n"
    command = [sys.executable, "-c", head + textwrap.dedent(code), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def assert_only(directory: Path, *names: str) -> None:
    """No temporary file stays behind."""
    assert sorted(entry.name for entry in directory.iterdir()) == sorted(names)


def test_a_write_creates_the_file_and_its_directories(tmp_path: Path) -> None:
    """Nobody has to prepare a place for it."""
    path = tmp_path / "a" / "b" / "file"
    paths.write_atomically(path, NEW)
    assert path.read_bytes() == NEW
    assert_only(path.parent, "file")


@pytest.mark.parametrize("mode", [0o600, 0o640])
def test_a_write_has_the_mode_asked_for(tmp_path: Path, mode: int) -> None:
    """0600 is the default; a looser file that is replaced does not pass its mode on."""
    path = tmp_path / "file"
    path.write_bytes(OLD)
    path.chmod(0o666)
    paths.write_atomically(path, NEW, mode)
    assert path.stat().st_mode & 0o777 == mode
    assert paths.write_atomically.__defaults__ == (0o600,)


@pytest.mark.parametrize("limit_bytes", [0, 1, 4096, len(NEW) - 1])
def test_a_write_that_fails_half_way_keeps_the_old_file(tmp_path: Path, limit_bytes: int) -> None:
    """The kernel refuses bytes beyond the limit, as a full disk does: the old content stays."""
    path = tmp_path / "file"
    path.write_bytes(OLD)
    writer = child(
        """
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
        try:
            paths.write_atomically(Path(sys.argv[1]), b"new! " * 2000)
        except OSError as error:
            print(type(error).__name__)
        """,
        path,
        limit_bytes,
    )
    output, errors = writer.communicate()
    assert output.strip() == "OSError", errors
    assert path.read_bytes() == OLD
    assert_only(tmp_path, "file")


def test_a_write_without_a_free_descriptor_keeps_the_old_file(tmp_path: Path) -> None:
    """A process that ran out of files cannot lose one by trying to save it."""
    path = tmp_path / "file"
    path.write_bytes(OLD)
    writer = child(
        """
        lowest = os.open(os.devnull, os.O_RDONLY)
        os.close(lowest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, lowest))
        try:
            paths.write_atomically(Path(sys.argv[1]), b"new")
        except OSError as error:
            print(error.errno)
        """,
        path,
    )
    output, errors = writer.communicate()
    assert output, errors
    assert path.read_bytes() == OLD
    assert_only(tmp_path, "file")


def test_a_write_that_cannot_take_the_name_leaves_nothing_behind(tmp_path: Path) -> None:
    """A directory in the file's place, or a file in its parent's, is refused with OSError."""
    taken = tmp_path / "taken"
    taken.mkdir()
    with pytest.raises(OSError, match="taken"):
        paths.write_atomically(taken, NEW)
    file = tmp_path / "file"
    file.write_bytes(OLD)
    with pytest.raises(OSError, match="file"):
        paths.write_atomically(file / "inside", NEW)
    assert file.read_bytes() == OLD
    assert_only(tmp_path, "file", "taken")


@pytest.mark.parametrize("rounds", range(1, 9))
def test_a_writer_that_is_killed_leaves_one_whole_file(tmp_path: Path, rounds: int) -> None:
    """SIGKILL at any moment of an endless run of writes: what is there is all old or all new."""
    path = tmp_path / "file"
    writer = child(
        """
        while True:
            for content in (b"old " * 1000, b"new! " * 2000):
                paths.write_atomically(Path(sys.argv[1]), content)
                print(flush=True)
        """,
        path,
    )
    with writer:
        assert writer.stdout is not None
        for _ in range(rounds):
            assert writer.stdout.readline() == "\n"
        writer.send_signal(signal.SIGKILL)
    assert path.read_bytes() in {OLD, NEW}


def test_writers_and_readers_never_meet_half_a_file(tmp_path: Path) -> None:
    """Two threads write one path while the reader looks: always one of the whole contents."""
    path = tmp_path / "file"
    paths.write_atomically(path, OLD)
    failures: list[BaseException] = []

    def write(content: bytes) -> None:
        try:
            for _ in range(50):
                paths.write_atomically(path, content)
        except BaseException as error:  # noqa: BLE001 - the test reports whatever a writer met
            failures.append(error)

    writers = [threading.Thread(target=write, args=(content,)) for content in (OLD, NEW)]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        assert path.read_bytes() in {OLD, NEW}
    assert failures == []
    assert_only(tmp_path, "file")


def test_the_socket_is_in_the_runtime_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A runtime directory that exists is the place; without one, or a stale name, the state's."""
    fallback = paths.state_dir() / "localspec.sock"
    assert paths.socket_path() == fallback
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert paths.socket_path() == tmp_path / "localspec" / "localspec.sock"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "gone"))
    assert paths.socket_path() == fallback


def test_every_place_is_in_the_users_home(own_home: Path) -> None:
    """Nothing is kept beside the program or in a shared directory."""
    places = [
        paths.config_file(),
        paths.models_dir(),
        paths.state_dir(),
        paths.cache_dir(),
        paths.socket_path(),
    ]
    assert all(place.is_relative_to(own_home) for place in places)
    assert all("localspec" in place.parts for place in places)


def test_variables_move_the_configuration_and_the_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LOCALSPEC_CONFIG and LOCALSPEC_MODELS are whole paths; empty means unset."""
    usual = paths.config_file(), paths.models_dir()
    monkeypatch.setenv("LOCALSPEC_CONFIG", str(tmp_path / "mine.toml"))
    monkeypatch.setenv("LOCALSPEC_MODELS", str(tmp_path / "models"))
    assert (paths.config_file(), paths.models_dir()) == (
        tmp_path / "mine.toml",
        tmp_path / "models",
    )
    monkeypatch.setenv("LOCALSPEC_CONFIG", "")
    monkeypatch.setenv("LOCALSPEC_MODELS", "")
    assert (paths.config_file(), paths.models_dir()) == usual


def test_a_private_directory_is_the_users_alone(tmp_path: Path) -> None:
    """Mode 0700 whatever the umask, and a looser one that is already there is tightened."""
    fresh, loose = tmp_path / "new" / "fresh", tmp_path / "loose"
    loose.mkdir(mode=0o755)
    for directory in (fresh, loose):
        assert paths.make_private(directory) == directory
        assert directory.stat().st_mode & 0o777 == 0o700


def shared_data() -> dict[str, str]:
    """The wheel's files beside the code: source in the checkout to place under the prefix."""
    text = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    table: dict[str, Any] = tomllib.loads(text)
    found: dict[str, str] = table["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"]
    return found


def test_what_travels_with_the_wheel_exists_and_keeps_its_name() -> None:
    """`shipped(name)` means the same file in a checkout and in an installation."""
    for source, place in shared_data().items():
        assert (REPOSITORY / source).exists()
        manual = source == "docs/man"  # `man` has a place of its own
        assert place == ("share/man" if manual else f"share/localspec/{source}")
    assert paths.shipped("config.toml") == REPOSITORY / "config.toml"
    heads = {str(file.relative_to(REPOSITORY)) for file in (REPOSITORY / "models/heads").iterdir()}
    assert heads <= {*shared_data()}  # a directory's would be left out where git ignores their kind


def test_an_installed_package_finds_its_files_under_the_prefix(tmp_path: Path) -> None:
    """Away from the checkout, `shipped` points below the interpreter's data directory."""
    package = tmp_path / "localspec"
    package.mkdir()
    shutil.copy(REPOSITORY / "localspec" / "paths.py", package)
    (package / "__init__.py").touch()
    command = "from localspec import paths; print(paths.shipped('config.toml'))"
    found = subprocess.run(
        [sys.executable, "-c", command],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    expected = Path(sysconfig.get_path("data")) / "share" / "localspec" / "config.toml"
    assert found.stdout.strip() == str(expected)


MASKS = [0o000, 0o022, 0o027, 0o077, 0o277]


@pytest.fixture(params=MASKS, ids=[f"{mask:03o}" for mask in MASKS])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """The umask of this process, for a test."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    """Its permissions."""
    return path.stat().st_mode & 0o777


@pytest.mark.usefixtures("umask")
def test_files_and_directories_have_their_modes_whatever_the_umask(tmp_path: Path) -> None:
    """A strict one too: what nobody may read is no use, and what all may write is no proof."""
    tmp_path.chmod(0o700)
    paths.write_atomically(tmp_path / "a" / "b" / "file", NEW)
    paths.write_atomically(tmp_path / "a" / "b" / "shared", NEW, 0o644)
    assert [mode(tmp_path / name) for name in ("a", "a/b")] == [0o700, 0o700]
    assert [mode(tmp_path / "a" / "b" / name) for name in ("file", "shared")] == [0o600, 0o644]
    assert mode(paths.make_private(tmp_path / "c" / "d")) == mode(tmp_path / "c") == 0o700
    assert mode(paths.make_directory(tmp_path / "e" / "f", 0o755)) == mode(tmp_path / "e") == 0o755
    os.close(paths.create(tmp_path / "g", 0o644))
    assert mode(tmp_path / "g") == 0o644


def test_what_decides_is_read_only_where_nobody_else_could_write_it(tmp_path: Path) -> None:
    """Neither the file nor, but for a sticky one, its directory; a link is none."""
    path = tmp_path / "own" / "file"
    paths.write_atomically(path, NEW)
    assert paths.read_own(path) == NEW
    path.chmod(0o602)
    with pytest.raises(PermissionError):
        paths.read_own(path)
    path.chmod(0o600)
    path.parent.chmod(0o777)
    with pytest.raises(PermissionError):
        paths.read_own(path)
    path.parent.chmod(0o1777)
    assert paths.read_own(path) == NEW
    link = tmp_path / "own" / "link"
    link.symlink_to(path)
    with pytest.raises(OSError, match="link"):
        paths.read_own(link)


def test_a_tilde_is_a_home_or_itself(own_home: Path) -> None:
    """Of a user whom nobody knows it names no file."""
    assert paths.expanded("~/x") == own_home / "x"
    assert paths.expanded("~root").is_absolute()
    assert paths.expanded("~nobody-here/x") == Path("~nobody-here/x")
    assert paths.expanded("x/~") == Path("x/~")


def test_a_pipe_is_read_where_somebody_writes_to_it(tmp_path: Path) -> None:
    """As <(...) of a shell, whatever is written when; nobody waits for a writer to come."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="nobody writes"):
        paths.read_named(tmp_path / "pipe", 9)
    reading, writing = os.pipe()
    read: Queue[bytes] = Queue()
    reader = Thread(target=lambda: read.put(paths.read_named(Path(f"/dev/fd/{reading}"), 9)))
    reader.start()
    os.write(writing, b"text")
    os.close(writing)
    assert read.get(timeout=60) == b"text"
    reader.join()
    os.close(reading)


@pytest.mark.parametrize(("most", "found"), [(3, b"abc"), (6, b"abcdef"), (9, b"abcdef")])
def test_a_named_file_is_read_up_to_a_bound(tmp_path: Path, most: int, found: bytes) -> None:
    """A device without an end as well; a directory is refused."""
    (tmp_path / "file").write_bytes(b"abcdef")
    assert paths.read_named(tmp_path / "file", most) == found
    assert paths.read_named(Path("/dev/zero"), most) == b"\0" * most
    assert paths.read_named(Path("/dev/null"), most) == b""
    with pytest.raises(IsADirectoryError):
        paths.read_named(tmp_path, most)


def test_what_an_earlier_release_left_open_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the default places, and only what others may write."""
    for name in ("CACHE", "STATE", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))
    paths.write_atomically(paths.cache_dir() / "exactness" / "file", NEW)
    paths.write_atomically(paths.state_dir() / "token", NEW)
    model = Path(platformdirs.user_data_dir(paths.APP)) / "models" / "model.gguf"
    paths.make_directory(model.parent, 0o777)
    paths.write_atomically(model, NEW, 0o666)
    (paths.cache_dir() / "exactness").chmod(0o777)
    opened = paths.close_to_others()
    exactness = paths.cache_dir() / "exactness"
    assert set(opened) == {exactness, model, model.parent, model.parent.parent}
    assert mode(model) == 0o644
    assert mode(model.parent) == 0o755
    assert mode(exactness) == 0o755
    assert paths.close_to_others() == []


def test_a_closed_directory_is_not_taken_for_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The configuration is read then, and the error says what stands in the way."""
    closed, user = tmp_path / "closed", os.geteuid()
    closed.mkdir(mode=0o000)
    monkeypatch.setenv("LOCALSPEC_CONFIG", str(closed / "config.toml"))
    if user == 0:
        os.seteuid(65534)  # root may look everywhere
    try:
        assert paths.is_configured()
        with pytest.raises(ConfigError, match="Permission denied"):
            config_file.read(paths.config_file())
    finally:
        os.seteuid(user)
    closed.chmod(0o700)
    assert not paths.is_configured()
