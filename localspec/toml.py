"""Writes values as TOML text: the standard library only reads it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any


def write(values: Mapping[str, Any]) -> str:
    """The text from which `tomllib.loads` gives these values again.

    Args:
        values: Strings, finite numbers, truth values, lists and tables by name; None is left out. A
            table at the top, whose name must be letters, gets a heading; a table inside another is
            written on one line.
    """
    tables = {name: value for name, value in values.items() if isinstance(value, Mapping)}
    plain = {name: value for name, value in values.items() if name not in tables}
    parts = [_lines(plain), *(f"[{name}]\n{_lines(inner)}" for name, inner in tables.items())]
    return "\n".join(filter(None, parts))


def _lines(values: Mapping[str, Any]) -> str:
    return "".join(f"{pair}\n" for pair in _pairs(values))


def _pairs(values: Mapping[str, Any]) -> list[str]:
    return [f"{_key(name)} = {_value(one)}" for name, one in values.items() if one is not None]


def _key(name: str) -> str:
    """A key: bare if it has only letters, digits, "_" and "-", as TOML allows, else quoted."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _value(name)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{ {', '.join(_pairs(value))} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
