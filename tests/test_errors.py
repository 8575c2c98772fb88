"""The error tree: what its drawing says is what the classes do."""

from __future__ import annotations

import errno
import inspect
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec import errors
from localspec.errors import (
    MAX_MESSAGE_CHARS,
    ContextOverflow,
    LocalSpecError,
    RequestError,
    by_code,
    of_system,
)

ROW = re.compile(
    r"^ {4}(?P<branch>[│├└─ ]*)(?P<name>\w+) +(?P<status>\d{3})(?: +exit (?P<exit>\d+))?"
)
LEVEL_WIDTH = 4
CLASSES = {
    name: found
    for name, found in inspect.getmembers(errors, inspect.isclass)
    if issubclass(found, LocalSpecError)
}


def drawn_tree() -> dict[str, tuple[str | None, int, int]]:
    """Name to (name of the base, status, exit code), read off the module's docstring.

    A row without an exit code has its base's.
    """
    path: list[str] = []
    found: dict[str, tuple[str | None, int, int]] = {}
    for line in (errors.__doc__ or "").splitlines():
        if row := ROW.match(line):
            depth = len(row["branch"]) // LEVEL_WIDTH
            base = path[depth - 1] if depth else None
            path[depth:] = [row["name"]]
            inherited = found[base][2] if base else 1
            found[row["name"]] = (base, int(row["status"]), int(row["exit"] or inherited))
    return found


def test_the_drawn_tree_is_the_real_one() -> None:
    """Every class stands in the drawing once, under its base, with its status and exit code."""
    real = {
        name: (
            None if found is LocalSpecError else found.__bases__[0].__name__,
            found.status,
            found.exit_code,
        )
        for name, found in CLASSES.items()
    }
    assert drawn_tree() == real


def test_every_error_says_which_kind_it_is() -> None:
    """A status is a client's or a server's fault, an exit code is not success, a kind is named."""
    for found in CLASSES.values():
        assert 400 <= found.status <= 599
        assert 1 <= found.exit_code <= 125
        assert found.kind.endswith("_error")


@pytest.mark.parametrize("found", CLASSES.values(), ids=CLASSES.keys())
def test_a_code_leads_back_to_its_class(found: type[LocalSpecError]) -> None:
    """`by_code` is injective: an error keeps its class on the way between processes."""
    assert by_code(found.code) is found


@given(st.text())
def test_any_code_leads_to_an_error(code: str) -> None:
    """`by_code` is total: a newer peer's code gives the root, never a failure of ours."""
    assert issubclass(by_code(code), LocalSpecError)
    if code not in {found.code for found in CLASSES.values()}:
        assert by_code(code) is LocalSpecError


def test_an_error_reads_as_its_message_and_its_fix() -> None:
    """str() is what a terminal shows: the reason first, then what helps."""
    error = ContextOverflow("9000 tokens do not fit.", fix="Shorten it.", details={"n_ctx": 8192})
    assert str(error) == "9000 tokens do not fit. Shorten it."
    assert (error.param, error.details) == (None, {"n_ctx": 8192})
    assert str(RequestError("No messages.")) == "No messages."


def test_errors_never_share_their_details() -> None:
    """The default is a fresh dict for each error."""
    RequestError("first").details["n_ctx"] = 1
    assert RequestError("second").details == {}


@pytest.mark.parametrize(
    ("file", "command"),
    [
        ("/state/chats/x.json", "df -h /state/chats"),
        ("/my state/x.json", "df -h '/my state'"),
        ("", "df -h ~"),
    ],
)
def test_a_full_disk_is_looked_at_where_it_is_full(file: str, command: str) -> None:
    """It may be another one than the home directory's."""
    assert of_system(OSError(errno.ENOSPC, "No space left on device", file)).fix == command


@given(st.text(max_size=40), st.integers(1, 3000), st.sampled_from(sorted(CLASSES)))
def test_no_text_of_an_error_is_longer_than_its_bound(text: str, times: int, name: str) -> None:
    """Files, templates, models and servers say what they like; an error has a bounded part of it.

    All of it can be encoded, so that it crosses frames, logs and JSON.
    """
    long = text * times
    error = CLASSES[name](long, fix=long, param=long, details={"n": 1, "said": long})
    for said in (error.message, error.fix, error.param or "", str(error.details["said"])):
        assert len(said.encode()) <= 12 * (MAX_MESSAGE_CHARS + 40)
    if len(long) <= MAX_MESSAGE_CHARS and long.isprintable():
        assert error.message == error.fix == long


def test_forty_megabytes_are_cut_and_counted() -> None:
    """A shortened message says how much is missing."""
    error = RequestError("a" * 40_000_000)
    assert error.message.endswith("(39998000 more characters)")
    assert len(str(error)) < 2100


def test_half_a_pair_of_surrogates_is_shown() -> None:
    """A file's name, and a template's text, can hold what no encoder takes."""
    assert RequestError("a\ud800b").message == "a\\ud800b"


CANARY = "c4n4ry-S3CRET_xyz"
SAID = [
    f"https://me:{CANARY}@host/v1 does not answer",
    f"proxy http://{CANARY}@proxy:3128 refused",
    f"https://host/file.gguf?download=1&token={CANARY} is gone",
    f"https://host/x?X-Amz-Signature={CANARY}&a=b",
    f"https://host/x?api_key={CANARY}#part",
    f"https://host/x?access_token={CANARY}",
    f"it sent Authorization: Bearer {CANARY}",
    f"authorization: basic {CANARY}==",
    "hf_c4n4ryS3CRETxyz was refused",
]


@pytest.mark.parametrize("said", SAID)
def test_no_error_repeats_a_secret(said: str) -> None:
    """Not in its message, nor in what it advises; the rest of the sentence is there."""
    error = RequestError(said, fix=said)
    for text in (error.message, error.fix, str(error)):
        assert "c4n4ry" not in text
        assert "***" in text
    assert errors.redacted(error.message) == error.message


@pytest.mark.parametrize(
    "said",
    [
        "server.tcp = 127.0.0.1:8080 cannot be used",
        "a@b.c wrote https://host/path?download=1&rev=main",
        "The prompt has 12 tokens; n_ctx = 8.",
        "localspec models pull someone/model:Q4_K_M",
        "Send Authorization: Bearer, or X-Api-Key, with the content of the file `token`.",
        "key=value, max_tokens=5 and logit_bias are fields",
    ],
)
def test_what_is_no_secret_is_said(said: str) -> None:
    """Addresses, fields and names of headers."""
    assert RequestError(said).message == said


@given(st.text(st.sampled_from("ab:/@?&=. ktoenyBr"), max_size=3000))
def test_looking_for_secrets_is_total(text: str) -> None:
    """Any text has one form without them."""
    assert errors.redacted(errors.redacted(text)) == errors.redacted(text)


def test_a_deleted_directory_is_named_as_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system's error for a process without a directory has no path."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(FileNotFoundError) as caught:
        Path.cwd()
    assert of_system(caught.value).message == "The current directory was deleted."


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EIO, errno.EACCES, errno.EPERM])
def test_a_refusal_that_names_no_file_suggests_no_look_at_one(number: int) -> None:
    """Of a call without a path, such as waiting: "ls -ld a file" helped nobody."""
    assert "ls " not in of_system(OSError(number, os.strerror(number))).fix
    assert of_system(OSError(number, os.strerror(number), "/x")).fix == "ls -ld /x"
