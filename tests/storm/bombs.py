"""Requests that take long to parse: another client's next token must not wait for them."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any, Self

from rude_schemas import RUDE

Bomb = tuple[str, dict[str, Any]]
"""A path, and what is sent there."""


def texts(size: int) -> dict[str, str]:
    """Texts of about so many characters, each slow for some parser."""
    mini = "function a(b){return c.d(e,f)?g:h;}" * 140
    kinds = {
        "prose": "The quick brown fox jumps over the lazy dog, again and again. ",
        "minified code": mini[:5000] + "\n",
        "one word": "x",
        "words as long as they may be": "x" * 190_000 + " ",
        "blanks": " " * 190_000 + "x",
        "special tokens": "<|im_end|>" + "word " * 200,
        "beginnings of special tokens": "< <|im " + "word " * 20,
        "letters of two bytes": "é ",
    }
    return {name: (piece * (size // len(piece) + 1))[:size] for name, piece in kinds.items()}


SCHEMAS: dict[str, dict[str, Any]] = {
    "a schema of 600 optional properties": {
        "type": "json_schema",
        "json_schema": {
            "schema": {
                "type": "object",
                "properties": {f"p{at}": {"type": "string"} for at in range(600)},
            }
        },
    },
    "a pattern that explodes": {"type": "regex", "pattern": "^(.*a.{200}b.*|.*c.{300}d.*)*$"},
    "a choice of thousands": {"type": "choice", "choices": [f"word{at}" for at in range(4000)]},
}


def structures() -> dict[str, Bomb]:
    """Requests with little text in very many parts."""
    hi = [{"role": "user", "content": "hi"}]
    parts = [{"type": "text", "text": "a"}] * 60_000
    properties = {f"p{at}": {"type": "string"} for at in range(15)}
    function = {"parameters": {"type": "object", "properties": properties}}
    tools = [{"type": "function", "function": {"name": f"f{at}"} | function} for at in range(900)]
    nested: list[Any] = []
    for _ in range(120):
        nested = [nested]
    chats: dict[str, dict[str, Any]] = {
        "3,000 messages": {"messages": hi * 3_000},
        "60,000 messages": {"messages": hi * 60_000},
        "60,000 parts": {"messages": [{"role": "user", "content": parts}]},
        "900 functions": {"messages": hi, "tools": tools},
        "2,000,000 lists": {"messages": hi, "chat_template_kwargs": {"x": [[]] * 2_000_000}},
        "20,000 lists": {"messages": hi, "chat_template_kwargs": {"x": [[]] * 20_000}},
        "500,000 numbers": {"messages": hi, "chat_template_kwargs": {"x": [1] * 500_000}},
        "deep lists": {"messages": hi, "chat_template_kwargs": {"x": nested * 300}},
    }
    found = {name: ("/v1/chat/completions", body) for name, body in chats.items()}
    found["500,000 tokens"] = ("/v1/completions", {"prompt": [1] * 500_000})
    for name in ("prose", "blanks", "letters of two bytes"):
        line = texts(1_000_000)[name]
        found[f"a line of {name}"] = ("/infill", {"input_suffix": "b", "prompt": f"{line} t"})
    for name in ("itself in forty places", "many definitions", "one large definition"):
        wanted = {"name": "f", "parameters": RUDE[name], "strict": True}
        asked = {"tools": [{"type": "function", "function": wanted}], "tool_choice": "required"}
        found[f"a schema of {name}"] = ("/v1/chat/completions", {"messages": hi, **asked})
    for name, wanted in SCHEMAS.items():
        found[name] = ("/v1/completions", {"prompt": "a", "response_format": wanted})
    return found


class Holds:
    """Longest single instruction of the current thread, in its processor time. A context manager.

    Between two instructions of Python another thread may go on; in the middle of one, such as a
    regular expression over megabytes, none can, unless it is a foreign function.
    """

    def __init__(self) -> None:
        self.longest_seconds = 0.0
        self.what = ""
        self._begun = 0.0

    def __enter__(self) -> Self:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, _frame: object, event: str, called: object) -> None:
        now = time.thread_time()
        if event in {"c_return", "c_exception"} and now - self._begun > self.longest_seconds:
            self.longest_seconds, self.what = now - self._begun, repr(called)
        self._begun = time.thread_time()


def waited_seconds(thread: int, process: int | None = None) -> float:
    """Time that a thread was ready and not running so far; 0 where the system does not count it."""
    try:
        path = Path(f"/proc/{process or os.getpid()}/task/{thread}/schedstat")
        return int(path.read_text().split()[1]) / 1e9
    except OSError:
        return 0.0
