"""Reads the text of the configuration file, and finds the line of a mistake in it."""

from __future__ import annotations

import codecs
import os
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

from localspec import paths
from localspec.errors import ConfigError, unreadable

MAX_BYTES = 1 << 20
"""A hundred times the size of the shipped file. The parser needs ten seconds for ten megabytes."""
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def read(path: Path) -> str | None:
    """The file's text, without a byte order mark; None where there is no file.

    Raises ConfigError, also for a file that others may write, because the file says which servers
    get prompts.
    """
    try:
        with paths.open_regular(path) as file:
            _refuse_foreign(path, file.fileno())
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        fix = f"See what stands there: ls -ld {shlex.quote(str(path))}"
        raise ConfigError(f"{path} cannot be read: {unreadable(error)}.", fix=fix) from error
    if len(data) > MAX_BYTES:
        raise ConfigError(
            f"{path} is longer than {MAX_BYTES >> 20} MiB, which no configuration is.",
            fix=f"mv {shlex.quote(str(path))} {shlex.quote(f'{path}.old')}",
        )
    return _decoded(path, data)


def _decoded(path: Path, data: bytes) -> str:
    """Decode UTF-8. Raises ConfigError for other data, with the command that converts it."""
    wide = data.startswith(_UTF16) or b"\0" in data
    try:
        if not wide:
            return data.decode("utf-8-sig")
        line, what, known = 1, "UTF-16 text or no text at all, since it has bytes 0", "UTF-16"
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        what, known = f"not UTF-8 text, by its byte {error.start}", "WINDOWS-1252"
    raise ConfigError(
        f"{path}:{line}: the file cannot be read: it is {what}.",
        fix="Save it as UTF-8; this prints it so: "
        f"iconv -f {known} -t UTF-8 {shlex.quote(str(path))}",
    )


def _refuse_foreign(path: Path, handle: int) -> None:
    who = paths.other_writers(os.fstat(handle))
    if who == "owner":
        raise ConfigError(
            f"{path} belongs to another user, who could send your prompts to a server of theirs.",
            fix=f"Make it yours: cp {path} {path}.mine && mv {path}.mine {path}",
        )
    if who:
        raise ConfigError(
            f"{path} may be written by others, who could send your prompts to a server of theirs.",
            fix=f"chmod go-w {path}",
        )


def table(text: str, origin: str) -> dict[str, Any]:
    """The values of TOML text. Raises ConfigError, which names the line."""
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ConfigError(
            f"{origin} is not valid TOML: its values are nested too deeply.",
            fix="No key has more than a table of lists.",
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise _syntax_error(text, origin, str(error)) from error


def _syntax_error(text: str, origin: str, said: str) -> ConfigError:
    problem, _, where = said.rpartition(" (at ")
    counted = re.match(r"line (\d+)", where)
    line = int(counted[1]) if counted else text.count("\n") + 1  # "at end of document"
    key = text.split("\n")[line - 1].partition("=")[0].strip()
    fix = 'A line is `key = value` or `[table]`; text has quotes: log_level = "info".'
    if problem.startswith("Cannot overwrite"):
        problem, fix = f"{key} is set further up already", "Keep one of the two."
    elif twice := re.match(r"Cannot declare \((.*?),?\) twice", problem):
        name = ".".join(re.findall(r"'([^']*)'", twice[1]))
        problem, fix = f"[{name}] stands further up already", "Put its keys below one heading."
    return ConfigError(f"{origin}:{line}: this is not valid TOML: {problem}.", fix=fix)


def line_of(text: str, key: str) -> int:
    """The line, from 1, that sets `key`, else the nearest table around it, else a key inside it.

    0 if there is none. Keys are read line by line, so a line in a multi-line string may be mistaken
    for one.
    """
    heading, nearest, found = "", "", 0
    holder = f"{key.partition('[')[0]}."
    for number, line in enumerate(text.split("\n"), 1):
        if named := re.match(r"\s*\[+([^\]]+)\]", line):
            name = heading = _plain(named[1])
        elif named := re.match(r"\s*([^\s#=\[][^#=]*)=", line):
            name = f"{heading}.{_plain(named[1])}".removeprefix(".")
        else:
            continue
        if key.startswith(name) and key[len(name) :][:1] in ".[" and len(name) > len(nearest):
            nearest, found = name, number
        elif not found and name.startswith(holder):
            found = number
    return found


def _plain(name: str) -> str:
    """A dotted key without quotes, and without spaces at its dots."""
    return ".".join(part.strip().strip("\"'") for part in name.split("."))
