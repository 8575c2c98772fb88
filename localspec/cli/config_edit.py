"""Changes one key of the configuration file; comments, order and everything else stay.

The file is replaced only if the daemon would accept the new one.
"""

from __future__ import annotations

import contextlib
import difflib
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias, get_args, get_origin

import msgspec
import tomlkit
from tomlkit.exceptions import TOMLKitError

from localspec import config, config_file, paths, wording
from localspec.errors import ConfigError

Change: TypeAlias = Callable[[tomlkit.TOMLDocument], None]

AFTER_RESTART = frozenset({"server.socket", "server.tcp"})
"""Keys of sockets, which the daemon opens once, when it starts."""
_YES, _NO = {"true", "yes", "on", "1"}, {"false", "no", "off", "0"}


def apply(
    file: Path,
    change: Change,
    check: Callable[[config.Config], Iterable[ConfigError]] | None = None,
) -> None:
    """Apply `change` to the file. Raises ConfigError; the file is then unchanged.

    `check` may find more faults than the daemon would, such as a model that is not there.
    """
    place = file.resolve()
    paths.make_directory(place.parent)
    with paths.alone(place.parent):  # else one of two changes at once would be lost
        _apply(place, file, change, check or (lambda _: ()))


def _apply(
    place: Path,
    file: Path,
    change: Change,
    check: Callable[[config.Config], Iterable[ConfigError]],
) -> None:
    text = config_file.read(place)
    try:
        document = tomlkit.parse(text or "")
    except TOMLKitError as error:
        config_file.table(text or "", str(file))  # raises ConfigError in the usual words
        raise ConfigError(
            f"{file} cannot be changed: {error}.", fix="Correct it by hand."
        ) from error
    change(document)
    new = tomlkit.dumps(document).rstrip("\n") + "\n"
    made = config.parse(new, str(file))
    for fault in check(made):
        raise fault
    mode = 0o600 if text is None else place.stat().st_mode & 0o777
    paths.write_atomically(place, new.encode(), mode)


def set_to(key: str, text: str) -> Change:
    """A change that gives `key` the value that `text` means for it. Raises ConfigError."""
    *tables, name = steps = parts(key)
    value = _value(key, text, wording.kind_at(config.Config, steps))

    def change(document: tomlkit.TOMLDocument) -> None:
        place: Any = document
        for table in tables:
            if table not in place:
                place[table] = tomlkit.table(is_super_table=table != tables[-1])
            place = place[table]
        put(place, name, value)

    return change


def put(table: Any, name: str, value: Any) -> None:
    """Give a key its value; items of a list that stay keep their comments and their layout."""
    there = table.get(name)
    if not isinstance(there, tomlkit.items.Array) or not isinstance(value, list):
        table[name] = value
        return
    for place in reversed(range(len(there))):
        if there.unwrap()[place] not in value:
            del there[place]
    for place, item in enumerate(value):
        behind = there.unwrap()[place:]
        if behind[:1] == [item]:
            continue
        if item in behind:
            del there[place + behind.index(item)]
        there.insert(place, item)
    while len(there) > len(value):
        del there[-1]


def shown(key: str, text: str) -> str:
    """`key = value` as the file has it."""
    value = _value(key, text, wording.kind_at(config.Config, parts(key)))
    return f"{key} = {tomlkit.item(value).as_string()}"


def without(key: str) -> Change:
    """A change that removes `key`, and tables that are empty without it. Raises ConfigError."""
    *tables, name = parts(key)

    def change(document: tomlkit.TOMLDocument) -> None:
        place: Any = document
        trail = []
        with contextlib.suppress(KeyError, TypeError):
            for table in tables:
                trail.append((place, table))
                place = place[table]
            del place[name]
        for outer, table in reversed(trail):
            if outer.get(table) == {} and not outer[table].as_string().strip():
                del outer[table]

    return change


def parts(key: str) -> list[str]:
    """The names in a key, written as in TOML: a.b, or a."b.c" for a name with a dot.

    Raises ConfigError if it is no key of the configuration.
    """
    try:
        found: Any = tomllib.loads(f"{key} = 0") if "\n" not in key and "=" not in key else {}
    except tomllib.TOMLDecodeError:
        found = {}
    names: list[str] = []
    while isinstance(found, dict) and len(found) == 1:
        ((name, found),) = found.items()
        names.append(name)
    if names and wording.kind_at(config.Config, names) is not None:
        return names
    names = key.split(".")
    for count in range(1, len(names)):  # a table of free names, in which dots need no quotes
        if get_origin(wording.kind_at(config.Config, names[:count])) is dict:
            whole = [*names[:count], ".".join(names[count:])]
            if wording.kind_at(config.Config, whole) is str:
                return whole
    raise unknown(key)


def unknown(key: str) -> ConfigError:
    """The error for an unknown key, with the nearest known one."""
    near = difflib.get_close_matches(key, keys(), 1)
    meant = f"Did you mean {near[0]}? " if near else ""
    return ConfigError(
        f"There is no key {key}.", fix=f"{meant}`localspec config show` lists all.", param=key
    )


def keys(kind: Any = config.Config, prefix: str = "") -> list[str]:
    """Every key of the configuration; a table with free keys is named as a whole."""
    found = []
    for field in msgspec.structs.fields(kind):
        name = f"{prefix}{field.name}"
        is_table = isinstance(field.type, type) and issubclass(field.type, msgspec.Struct)
        found += keys(field.type, f"{name}.") if is_table else [name]
    return found


def _value(key: str, text: str, kind: Any) -> Any:
    """`text` as a value of type `kind`. Raises ConfigError."""
    if kind is str or wording.choices(kind):
        return text
    if kind is bool:
        return _truth(key, text)
    if get_origin(kind) in {list, tuple} and not text.lstrip().startswith("["):
        return [item for part in text.split(",") if (item := _item(part.strip(), kind)) != ""]
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text  # config.parse refuses it, and names the type


def _truth(key: str, text: str) -> bool:
    word = text.strip().lower()
    if word not in _YES | _NO:
        raise ConfigError(f'{key} must be true or false, not "{text}".', param=key)
    return word in _YES


def _item(text: str, kind: Any) -> Any:
    if get_args(kind)[0] is str:
        return text
    with contextlib.suppress(tomllib.TOMLDecodeError):
        return tomllib.loads(f"value = {text}")["value"]
    return text
