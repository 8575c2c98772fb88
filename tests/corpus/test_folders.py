"""Which files belong to a corpus: those that git would keep, with text and without secrets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.corpus import folders, secrets
from localspec.corpus.folders import File, Found


def walked(folder: Path | str, **most: int) -> Found:
    """The files of a folder, walked to the end."""
    walk = folders.walk(str(folder), **most)
    while True:
        try:
            next(walk)
        except StopIteration as end:
            found: Found = end.value
            return found


def names(found: Found) -> set[str]:
    """The files by their paths inside the folder."""
    root = folders.place_of(found.folder).resolve()
    return {str(Path(file.path).relative_to(root)) for file in found.files}


def put(root: Path, name: str, text: str | bytes = "text\n") -> Path:
    """A file in a folder."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_files_that_git_ignores_are_left_out(tmp_path: Path) -> None:
    """By the files of the folder, of those inside it and of the repository around it."""
    (tmp_path / ".git" / "info").mkdir(parents=True)
    put(tmp_path, ".git/info/exclude", "*.orig\n")
    put(tmp_path, ".gitignore", "build/\n*.log\n!keep.log\n/top.txt\n# a comment\n\n")
    put(tmp_path, "src/.gitignore", "generated_*\n!*.orig\n")
    for name in (
        "src/a.py", "src/build/b.py", "build/c.py", "src/x.log", "src/keep.log", "top.txt",
        "src/top.txt", "src/generated_d.py", "a.orig", "src/a.orig", "src/deep/generated_e.py",
    ):  # fmt: skip
        put(tmp_path, name)
    kept = {"src/a.py", "src/keep.log", "src/top.txt", "src/a.orig"}
    assert names(walked(tmp_path)) == kept
    inside = {name.removeprefix("src/") for name in kept}
    assert names(walked(tmp_path / "src")) == inside
    assert walked(tmp_path).left_out["ignored"] == 7


def test_hidden_large_and_linked_files_are_left_out(tmp_path: Path) -> None:
    """And what is no file at all, which would never end."""
    put(tmp_path, "a.py")
    put(tmp_path, ".env", "KEY=1")
    put(tmp_path, ".config/b.py")
    put(tmp_path, "large.txt", "x" * (folders.FILE_BYTES + 1))
    put(tmp_path, "empty.txt", "")
    (tmp_path / "link.py").symlink_to(tmp_path / "a.py")
    (tmp_path / "around").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    found = walked(tmp_path)
    assert names(found) == {"a.py"}
    assert found.left_out == {"hidden": 2, "large": 1, "link": 2, "not a file": 1}


@pytest.mark.parametrize("name", [
    "id_rsa", "id_ed25519.bak", "server.pem", "SERVER.KEY", "prod.env", "prod.env.local", "a.p12",
    "credentials.json", "aws-credentials.csv", "secrets.yaml", "token", "db.kdbx", "main.tfstate",
])  # fmt: skip
def test_a_file_with_a_name_of_secrets_is_left_out(tmp_path: Path, name: str) -> None:
    """Its contents do not matter: it is not opened."""
    put(tmp_path, name)
    found = walked(tmp_path)
    assert (names(found), found.left_out) == (set(), {"secret": 1})


@pytest.mark.parametrize("name", ["tokens.py", "secret.rs", "keyboard.txt", "monkey.py", "a.md"])
def test_code_about_secrets_is_read(tmp_path: Path, name: str) -> None:
    """A parser's tokens are none."""
    put(tmp_path, name)
    assert names(walked(tmp_path)) == {name}


@pytest.mark.parametrize("text", [
    "-----BEGIN RSA PRIVATE KEY-----\nMIIE", "-----BEGIN PRIVATE KEY-----",
    "key = AKIA" + "A1B2C3D4E5F6G7H8",
    "x = 'ghp_" + "a1B2" * 9 + "'", "HF = hf_" + "abCD" * 8, "sk-" + "aB3" * 10,
    "url = postgres://user:hunter2hunter2@db/x", "api_key = 'a8F3kd93Kd02kfK39dk20dkf'",
    '"client_secret": "Zm9vYmFyMTIzNDU2Nzg5MHF3ZXJ0"', "password: 9aB8c7D6e5F4g3H2i1J0k",
    "eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.SflKxwRJSMeKKF2QT4",
])  # fmt: skip
def test_a_text_with_a_secret_is_left_out(tmp_path: Path, text: str) -> None:
    """Anywhere in it."""
    file = put(tmp_path, "settings.py", f"a = 1\n{text}\nb = 2\n")
    (seen,) = walked(tmp_path).files
    assert seen.path == str(file)
    assert folders.read(seen) == (None, "secret")


@pytest.mark.parametrize("text", [
    "password = get_password_of_the_user_from_prompt()", "api_key = os.environ['API_KEY_OF_THIS']",
    "def secret(self, token: str) -> None: ...", "token = tokens[position]", "sk-learn",
    "secret: str = ''",
    "url = http://user:password@host/  # of eight letters, as documents show it"[:24],
])  # fmt: skip
def test_code_that_names_secrets_has_none(text: str) -> None:
    """Names and calls do not look drawn."""
    assert not secrets.in_text(text)


@given(st.text(max_size=400))
def test_any_text_is_looked_at(text: str) -> None:
    """Without an error; what holds a private key is found in it."""
    assert secrets.in_text(text) in {True, False}
    assert secrets.in_text(f"{text}\n-----BEGIN PRIVATE KEY-----\n{text}")


@pytest.mark.parametrize(
    ("data", "why"),
    [(b"a\0b", "binary"), (b"\xff\xfe\x00", "binary"), (b"caf\xe9", "binary"), (b"ok", "")],
)
def test_what_is_no_text_is_left_out(tmp_path: Path, data: bytes, why: str) -> None:
    """UTF-8 is text."""
    put(tmp_path, "a.bin", data)
    (seen,) = walked(tmp_path).files
    assert folders.read(seen).why == why


def test_a_file_that_changes_is_read_another_time(tmp_path: Path) -> None:
    """So is one that has gone, has become a directory, or a link."""
    for name in ("longer", "touched", "gone", "directory", "linked"):
        put(tmp_path, name)
    found = {Path(file.path).name: file for file in walked(tmp_path).files}
    put(tmp_path, "longer", "other text\n")
    os.utime(tmp_path / "touched", (1, 1))
    for name in ("gone", "directory", "linked"):
        (tmp_path / name).unlink()
    (tmp_path / "directory").mkdir()
    (tmp_path / "linked").symlink_to("/etc/hostname")
    why = {name: folders.read(file).why for name, file in found.items()}
    assert why == {
        "longer": "changing", "touched": "changing", "gone": "unreadable",
        "directory": "unreadable", "linked": "unreadable",
    } | ({"directory": "not a file"} if why["directory"] == "not a file" else {})  # fmt: skip


@pytest.mark.parametrize(("make", "says"), [
    (lambda _home: None, "is not there"),
    (lambda home: put(home, "folder"), "is not a folder"),
    (lambda home: (home / "folder").symlink_to("/usr"), "leads out of your home, to /usr"),
    (lambda home: (home / "folder").symlink_to(home / "folder"), "cannot be read"),
])  # fmt: skip
def test_a_folder_that_cannot_be_used_has_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: object, says: str
) -> None:
    """And no files."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert callable(make)
    make(tmp_path)
    found = walked("~/folder")
    assert says in found.why
    assert "~/folder" in found.why
    assert not found.files


@pytest.mark.parametrize("name", ["~", "~/", "/", "{home}", "{parent}", "{home}/src/.."])
def test_what_holds_all_of_the_home_is_no_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Nobody means all of that; a folder beside the home or in it can be one."""
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    put(tmp_path / "me" / "src", "code")
    put(tmp_path / "beside", "code")
    found = walked(name.format(home=tmp_path / "me", parent=tmp_path))
    assert "holds all of your home" in found.why
    assert not found.files
    for other in ("~/src", str(tmp_path / "beside")):
        assert [Path(file.path).name for file in walked(other).files] == ["code"]


def test_a_name_that_is_not_utf8_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a file, a directory, what a link leads to, or the folder itself, which has a sentence."""
    monkeypatch.setenv("HOME", str(tmp_path))
    put(tmp_path, "src/a.py")
    odd = tmp_path / os.fsdecode(b"caf\xe9")
    put(odd, "b.py")
    put(tmp_path / "src", os.fsdecode(b"\xff.py"))
    put(tmp_path / "src", os.fsdecode(b"deep\xff/c.py"))
    (tmp_path / "linked").symlink_to(odd)
    found = walked("~/src")
    assert (names(found), found.left_out) == ({"a.py"}, {"name not UTF-8": 2})
    assert not walked("~/linked").files
    assert "not UTF-8" in walked(odd).why


def test_a_folder_inside_a_linked_one_is_as_far_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link inside of the home is none; a folder named where it really is may be anywhere."""
    home, outside = tmp_path / "home", tmp_path / "outside"
    put(home, "src/a.py")
    put(outside, "deep/b.py")
    monkeypatch.setenv("HOME", str(home))
    (home / "out").symlink_to(outside)
    (home / "in").symlink_to(home / "src")
    assert "leads out" in folders.unusable("~/out/deep")
    assert "leads out" in folders.unusable(str(home / "out"))
    assert names(walked("~/in")) == {"a.py"}
    assert names(walked(outside)) == {"deep/b.py"}


def test_a_home_that_is_a_link_is_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As /home is on some machines."""
    put(tmp_path, "real/src/a.py")
    (tmp_path / "home").symlink_to(tmp_path / "real")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert folders.unusable("~/src") == ""
    assert folders.unusable(str(tmp_path / "real" / "src")) == ""


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_counted(tmp_path: Path) -> None:
    """The rest is there."""
    put(tmp_path, "a.py")
    put(tmp_path, "closed/b.py").parent.chmod(0)
    put(tmp_path, "c.py").chmod(0)
    found = walked(tmp_path)
    assert found.left_out["unreadable"] == 1
    assert sorted(folders.read(file).why for file in found.files) == ["", "unreadable"]


def test_a_directory_of_any_size_is_looked_through_in_pieces(tmp_path: Path) -> None:
    """Not listed at once: a request that comes meanwhile waits for a piece, and no longer."""
    for number in range(1000):
        put(tmp_path, f"{number:04}.py")
    pieces = len([*folders.walk(str(tmp_path))])
    assert pieces >= 5
    assert len(walked(tmp_path).files) == 1000


def test_a_folder_that_is_too_large_is_used_as_far_as_it_was_seen(tmp_path: Path) -> None:
    """With a sentence."""
    for number in range(20):
        put(tmp_path, f"{number:02}.py")
    found = walked(tmp_path, most_files=7)
    assert len(found.files) == 7
    assert "too large" in found.why


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 9)), max_size=20), st.integers(0, 300))
def test_the_newest_files_find_room_first(sizes: list[tuple[int, int]], room: int) -> None:
    """All that fit, none twice, in the order of their paths."""
    files = [File(f"/{at:02}", size, time, at) for at, (size, time) in enumerate(sizes)]
    found = [Found("/", files=files), Found("/again", files=files[:3])]
    chosen, crowded_out = folders.newest(found, room)
    assert chosen == sorted(set(chosen))
    assert len(chosen) + crowded_out == len(files)
    used = sum(file.size for file in chosen)
    assert used <= room
    newest_out = max((file.mtime_ns for file in files if file not in chosen), default=-1)
    smaller = sum(file.size for file in chosen if file.mtime_ns >= newest_out)
    left = [file for file in files if file not in chosen and file.mtime_ns == newest_out]
    assert not left or min(file.size for file in left) + smaller > room


@pytest.mark.parametrize("line", ["a*b*c*d*e*f*g*h*i", "[", "\\", "x" * 500, "*" * 150, "\0"])
def test_an_odd_pattern_names_nothing(tmp_path: Path, line: str) -> None:
    """Nor does it take long, or keep others from being read."""
    put(tmp_path, ".gitignore", f"{line}\nignored.py\n")
    put(tmp_path, "ignored.py")
    put(tmp_path, "a" * 200)
    assert names(walked(tmp_path)) in ({"a" * 200}, set())
