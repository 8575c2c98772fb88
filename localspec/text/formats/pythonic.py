"""Reads the arguments of a call in Python, with Python's own parser.

This is for notations that `values.py` does not read: strings in parts and with prefixes, other
bases, `**{...}`, `dict(...)`, sets, comments. Nothing is evaluated.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

_MOST_SIGNS = 400
"""The most brackets and signs in the text: Python's parser recurses on each of them, in C."""
_WORDS = {"true": True, "false": False, "null": None}
_PLAIN = (str, int, float, bool, type(None))


def arguments(text: str, names: Sequence[str]) -> dict[str, Any]:
    """The arguments between a call's parentheses; those without a name have `names`, in order.

    Raises ValueError.
    """
    if sum(map(text.count, "([{-+~")) > _MOST_SIGNS:
        raise ValueError("too many brackets")
    try:
        call = ast.parse(f"f(\n{text}\n)", mode="eval").body
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError("not Python") from error
    if not isinstance(call, ast.Call):
        raise ValueError("more than a call")  # noqa: TRY004 - it is about the text
    found = dict(zip(names, map(_value, call.args), strict=False))
    if len(found) < len(call.args):
        raise ValueError("more arguments than parameters")
    return found | _named(call)


def _named(call: ast.Call) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for one in call.keywords:
        value = _value(one.value)
        if one.arg is not None:
            found[one.arg] = value
        elif isinstance(value, dict):  # **{...}
            found |= value
        else:
            raise ValueError("** of no object")
    return found


def _value(node: ast.expr) -> Any:  # noqa: PLR0911 - one of each
    match node:
        case ast.Constant(value=value) if isinstance(value, _PLAIN):
            return value
        case ast.Name(id=word) if word in _WORDS:
            return _WORDS[word]
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=inner):
            value = _value(inner)
            if isinstance(value, (int, float)):
                return -value if isinstance(sign, ast.USub) else value
        case ast.List(elts=several) | ast.Tuple(elts=several) | ast.Set(elts=several):
            return [_value(one) for one in several]
        case ast.Dict(keys=keys, values=values):
            return {_key(key): _value(one) for key, one in zip(keys, values, strict=True)}
        case ast.JoinedStr(values=several) if len(several) < 2:  # noqa: PLR2004 - one text or none
            return "".join(str(_value(one)) for one in several)
        case ast.Call(func=ast.Name(id="dict"), args=[]):
            return _named(node)
    raise ValueError("no value")


def _key(node: ast.expr | None) -> str:
    key = _value(node) if node is not None else None
    if not isinstance(key, str):
        raise ValueError("no key")  # noqa: TRY004 - it is about the text
    return key
