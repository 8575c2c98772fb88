"""Pictures in the chat: each as a person would attach it."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from scripted import Peer, answer
from typist import ENTER, Typist

from localspec.chats import archive
from localspec.cli.main import cli

PICTURE = b"\x89PNG\r\n\x1a\n and so on"


def test_an_image_goes_with_the_next_question_and_stays_in_the_conversation(
    peer: Peer, talk: Typist, home: Path
) -> None:
    """Behind the question, by its name; the next request shows it again, the kept chat names it."""
    (home / "my cat.png").write_bytes(PICTURE)
    peer.streams = [answer("ok"), answer("ok")]
    shown = talk.type(f"/image {home}/my cat.png{ENTER}what is it?{ENTER}")
    assert "attached to the next question: my cat.png (/image - takes them off)" in shown
    label, url = (
        "[image: my cat.png]",
        f"data:image/png;base64,{base64.b64encode(PICTURE).decode()}",
    )
    parts = [
        {"type": "text", "text": "what is it?\n\n"},
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "text", "text": label},
    ]
    assert peer.question["messages"] == [{"role": "user", "content": parts}]
    talk.type(f"and {label} again?{ENTER}")
    assert peer.question["messages"][0]["content"] == parts
    assert [part["type"] for part in peer.question["messages"][2]["content"]] == [
        "text", "image_url", "text", "text",
    ]  # fmt: skip
    kept = archive.load(archive.latest())
    assert kept.turns[0]["content"] == f"what is it?\n\n{label}"
    assert kept.messages()[0]["content"] == f"what is it?\n\n{label}"


def test_pictures_of_one_name_are_told_apart(peer: Peer, talk: Typist, home: Path) -> None:
    """The same picture twice is one."""
    for place, more in (("a", b"1"), ("b", b"2"), ("c", b"1")):
        (home / place).mkdir()
        (home / place / "cat.png").write_bytes(PICTURE + more)
    peer.streams = [answer("ok")]
    lines = [f"/image {home}/{place}/cat.png{ENTER}" for place in "abc"]
    talk.type(f"{''.join(lines)}which?{ENTER}")
    content = peer.question["messages"][0]["content"]
    assert [part["text"].strip() for part in content if part["type"] == "text"] == [
        "which?", "[image: cat.png]", "[image: cat.png (2)]", "[image: cat.png]",
    ]  # fmt: skip


def test_an_image_that_the_model_cannot_see_leaves_by_itself(
    peer: Peer, talk: Typist, home: Path
) -> None:
    """The reason is said; the next question goes without it."""
    (home / "cat.png").write_bytes(PICTURE)
    why = "messages[0].content[1] is an image, and this model reads none."
    error = {"message": why, "code": "invalid_request", "param": "messages[0].content[1]"}
    peer.streams = [(400, {"error": error}), answer("ok")]
    shown = talk.type(f"/image {home}/cat.png{ENTER}what is it?{ENTER}")
    assert "this model reads none" in shown
    assert "Not sent any more: [image: cat.png]." in shown
    talk.type(f"hello{ENTER}")
    assert peer.question["messages"] == [{"role": "user", "content": "hello"}]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"x = 1", "is no picture in PNG"),
        (b"RIFF0000WAVE", "is no picture"),
        (b"II*\0\x08\0\0\0", "is a picture in TIFF"),
        (b"MM\0*\0\0\0\x08", "is a picture in TIFF"),
        (None, "No such file"),
    ],
)
def test_what_is_no_picture_is_not_attached(
    peer: Peer, talk: Typist, home: Path, data: bytes | None, words: str
) -> None:
    """And the question goes without it."""
    if data is not None:
        (home / "a.png").write_bytes(data)
    peer.streams = [answer("ok")]
    assert words in " ".join(talk.type(f"/image {home}/a.png{ENTER}hello{ENTER}").split())
    assert peer.question["messages"] == [{"role": "user", "content": "hello"}]


def test_a_picture_is_a_file_of_one_question(peer: Peer, home: Path) -> None:
    """`-f` takes both."""
    (home / "cat.png").write_bytes(PICTURE)
    (home / "a.py").write_text("x = 1\n")
    peer.streams = [answer("ok")]
    files = [f"-f{home}/cat.png", f"-f{home}/a.py"]
    done = CliRunner().invoke(cli, ["chat", "what is it?", *files], catch_exceptions=False)
    assert done.output.strip() == "ok"
    content = peer.question["messages"][0]["content"]
    assert [part["type"] for part in content] == ["text", "image_url", "text"]
    assert content[0]["text"] == "what is it?\n\na.py:\n```\nx = 1\n```\n\n"


@pytest.mark.usefixtures("home")
def test_a_pipe_among_the_files_is_read_once(peer: Peer) -> None:
    """Of `-f <(git diff)` no byte is lost by looking whether it is a picture."""
    reads, writes = os.pipe()
    os.write(writes, b"the first words and the others\n")
    os.close(writes)
    peer.streams = [answer("ok")]
    done = CliRunner().invoke(cli, ["chat", f"-f/dev/fd/{reads}", "what?"], catch_exceptions=False)
    os.close(reads)
    assert done.exit_code == 0, done.output
    assert "the first words and the others" in peer.question["messages"][0]["content"]
