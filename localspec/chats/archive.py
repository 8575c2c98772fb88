"""Conversations on disk: one JSON file each in the state directory, private and replaced whole.

From its first question on, a conversation has a generated name, the time and a few letters, until
it is given another. Terminals and the page write the same files. None of them replaces a change
that it has not seen: its conversation goes on under a new name. Nothing here is sent anywhere.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localspec import paths
from localspec.chats.transcript import MODES, Conversation
from localspec.errors import LocalSpecError, RequestError

FORMAT = 2
_TITLE_CHARS = 72
_OWN_NAME = re.compile(r"\d{4}-\d{2}-\d{2}-\d{4}-[0-9a-f]{6}")


@dataclass(frozen=True, slots=True)
class Kept:
    """One conversation of the list. `changed_at` is the file's time, in seconds since 1970.

    `turns` counts questions, each with its answer.
    """

    name: str
    title: str
    turns: int
    model: str
    changed_at: float


def directory() -> Path:
    """The directory of conversations; it need not exist."""
    return paths.state_dir() / "chats"


class UnknownChat(RequestError):
    """The error of a name under which nothing is kept."""

    status, code = 404, "chat_not_found"


def keep(conversation: Conversation) -> Path:
    """Write a conversation under its name, a new one if it has none. Raises OSError, RequestError.

    It also gets a new name if another program has changed the file since `stamp`.
    """
    path = _path(conversation.name or _new_name())
    data = _written(conversation)
    paths.make_private(path.parent)
    with paths.alone(path.parent):
        if conversation.stamp and _stamp_of(path) not in {"", conversation.stamp, _stamp(data)}:
            path = _path(_new_name())
        paths.write_atomically(path, data)
    conversation.name, conversation.stamp = path.stem, _stamp(data)
    return path


def _written(conversation: Conversation) -> bytes:
    kept = {
        "version": FORMAT,
        "model": conversation.model,
        "system": conversation.system,
        "draft": conversation.draft,
        "params": conversation.params,
        "trimmed": conversation.trimmed,
        "turns": conversation.turns,
    }
    return json.dumps(kept, ensure_ascii=False, indent=1).encode("utf-8", "surrogatepass")


def _new_name() -> str:
    return f"{time.strftime('%Y-%m-%d-%H%M')}-{os.urandom(3).hex()}"


def _stamp(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _stamp_of(path: Path) -> str:
    """The stamp of the file as it is now; "" where there is none."""
    try:
        return _stamp(paths.read_regular(path))
    except FileNotFoundError:
        return ""


def rename(conversation: Conversation, name: str) -> Path:
    """Rename a conversation. Raises OSError, and RequestError where another one has the name.

    The old file is deleted if its name was a generated one and no other program has changed it.
    """
    path, before, stamp = _path(name), conversation.name, conversation.stamp
    data = _written(conversation)
    own = {"", _stamp(data), stamp if before == name else ""}
    paths.make_private(path.parent)
    with paths.alone(path.parent):
        if _stamp_of(path) not in own:
            raise RequestError(
                f"There is a saved chat {name} already, and it would be lost.",
                fix=f"Choose another name, or delete it: localspec chats rm {name}",
            )
        paths.write_atomically(path, data)
        conversation.name, conversation.stamp = name, _stamp(data)
        if before != name and _OWN_NAME.fullmatch(before) and _stamp_of(_path(before)) == stamp:
            _path(before).unlink()
    return path


def load(name: str) -> Conversation:
    """The conversation of that name. Raises RequestError, LocalSpecError when it is damaged."""
    path = _path(name)
    try:
        return _read(path)
    except FileNotFoundError as error:
        known = ", ".join(names()[:10]) or "none yet"
        raise UnknownChat(f'There is no saved chat "{name}".', fix=f"Saved: {known}.") from error


def names() -> list[str]:
    """Names of the conversations, the latest first."""
    return [path.stem for path in _files()]


def latest() -> str:
    """The name of the conversation that was changed last. Raises RequestError if there is none."""
    for name in names():
        return name
    raise RequestError("No conversation was kept yet.", fix="localspec chat  # begins one")


def listed() -> Iterator[Kept]:
    """The conversations, the latest first; damaged files are listed as such."""
    for path in _files():
        try:
            found = _read(path)
            yield _described(path, found)
        except (LocalSpecError, OSError):
            yield Kept(path.stem, "(damaged)", 0, "", _changed_at(path))


def search(words: str) -> Iterator[tuple[Kept, str]]:
    """Conversations in which all words occur, each with the line of the first of them."""
    wanted = words.lower().split()
    for path in _files():
        try:
            found = _read(path)
        except (LocalSpecError, OSError):
            continue
        text = "\n".join([found.system, *(turn["content"] for turn in found.turns)])
        if wanted and all(word in text.lower() for word in wanted):
            line = next(line for line in text.split("\n") if wanted[0] in line.lower())
            yield _described(path, found), line.strip()


def remove(name: str) -> None:
    """Delete a conversation. Raises RequestError if there is none, OSError."""
    load_path = _path(name)
    if not load_path.exists():
        raise UnknownChat(f'There is no saved chat "{name}".', fix="localspec chats list")
    load_path.unlink()


def title(conversation: Conversation) -> str:
    """The title: the first line with a word of the first question."""
    for turn in conversation.turns:
        if turn["role"] == "user":
            worded = (line for line in turn["content"].split("\n") if re.search(r"\w", line))
            line = next(worded, "").strip()
            return line if len(line) <= _TITLE_CHARS else line[: _TITLE_CHARS - 1] + "…"
    return ""


def markdown(conversation: Conversation) -> str:
    """The whole conversation as a document."""
    parts = [f"# {title(conversation) or conversation.name}"]
    if conversation.system:
        parts.append("\n".join(f"> {line}" for line in conversation.system.split("\n")))
    for turn in conversation.turns:
        who = "Question" if turn["role"] == "user" else "Answer"
        parts.append(f"## {who}\n\n{turn['content'].strip()}")
    return "\n\n".join(parts) + "\n"


def _described(path: Path, found: Conversation) -> Kept:
    return Kept(path.stem, title(found), found.count, found.model or "", _changed_at(path))


def _read(path: Path) -> Conversation:
    data = paths.read_regular(path)
    try:
        kept: dict[str, Any] = json.loads(data)
        turns = [{"role": str(t["role"]), "content": str(t["content"])} for t in kept["turns"]]
        params = dict(kept.get("params", {}))
        params.pop("prediction", None)  # of one answer; earlier versions kept it
        return Conversation(
            model=kept["model"],
            system=str(kept["system"]),
            turns=turns,
            draft=kept.get("draft", "auto") if kept.get("draft") in MODES else "auto",
            params=params,
            trimmed=min(max(int(kept.get("trimmed", 0)), 0), len(turns)),
            name=path.stem,
            stamp=_stamp(data),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LocalSpecError(
            f"{path} is not a saved chat: {error!r}.", fix=f"rm {path}  # if nothing in it matters"
        ) from error


def _files() -> list[Path]:
    return sorted(directory().glob("*.json"), key=_changed_at, reverse=True)


def _changed_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _path(name: str) -> Path:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise RequestError(
            f'"{name}" cannot name a saved chat.', fix="Use letters, digits, dot, dash, underscore."
        )
    return directory() / f"{name}.json"
