"""Hostile requests and files: mutated JSON, long prompts, templates, damaged models."""

from __future__ import annotations

import copy
import functools
import json
from pathlib import Path
from random import Random
from typing import Any, cast

from localspec_daemon.http.app import create_app
from localspec_daemon.supervisor.supervisor import Supervisor

BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "model": "alpha",
        "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}],
        "max_tokens": 3,
        "temperature": 0.8,
        "logit_bias": {"65": 1.0},
        "stop": ["zz"],
        "stream_options": {"include_usage": True},
        "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}},
        "prediction": {"type": "content", "content": "hello"},
        "speculation": {"mode": "always", "max_draft": 4},
        "logprobs": True,
        "top_logprobs": 2,
        "n": 2,
    },
    "/v1/completions": {
        "prompt": "hello", "max_tokens": 3, "seed": 1, "top_p": 0.9, "echo": True, "logprobs": 1,
    },
    "/v1/replay": {"prompt": "hello", "text": "world"},
    "/v1/models/load": {"model": "alpha"},
}  # fmt: skip
"""A good body of some routes."""
ANY: dict[str, Any] = {
    "model": "alpha", "messages": [{"role": "user", "content": "hi"}], "prompt": "hello",
    "input": "hello", "content": "hello", "tokens": [1, 2], "system": "be brief", "stream": False,
    "max_tokens": 3, "max_output_tokens": 3, "n_predict": 3, "options": {"num_predict": 3},
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
}  # fmt: skip
"""A body of all other routes: each understands a part of it."""
NOT_HERE = ("unload", "sse", "pull", "delete", "/web", "*", "{path}")
"""Routes that never end, ask other machines, or take away what other events need."""

VALUES: list[Any] = [
    None, True, -1, 0, 2**31, 2**63, -(2**63) - 1, 10**400, 1e-310, -1e308, 0.5, "", "a", "\u0000",
    "\ud800", "é" * 5000, [], {}, [[]], {"": {}}, [None] * 300, {"type": "object"}, ["a", 1],
    {"enum": [-(2**63)]}, {"const": 2**53}, {"minimum": 5, "maximum": 5}, {"$ref": "#"},
    {"pattern": "(a*)*b"}, {"type": "array", "minItems": 10**9}, "{% for i in 1 %}", "@deep@",
]  # fmt: skip
DEEP, NESTED = "@deep@", "[" * 990 + "]" * 990


@functools.cache
def routes() -> list[tuple[str, str]]:
    """Every method and path that the application answers."""
    app = create_app(cast("Supervisor", None))
    found = {
        (route.method, resource.canonical.replace("{id}", "alpha"))
        for route in app.router.routes()
        if (resource := route.resource) is not None
    }
    return sorted(
        (method, path)
        for method, path in found
        if method in {"GET", "POST"} and not any(part in path for part in NOT_HERE)
    )


def mutated(random: Random, path: str) -> bytes:
    """A body of that route with some of it changed."""
    body: Any = json.loads(json.dumps(BODIES.get(path, ANY)))
    for _ in range(random.randrange(1, 4)):
        _spoil(random, body)
    text = json.dumps(body, ensure_ascii=random.random() < 0.9).replace(f'"{DEEP}"', NESTED)
    data = text.encode("utf-8", "surrogatepass")
    dice = random.random()
    if dice < 0.1:
        return data[: random.randrange(len(data))]
    if dice < 0.2:
        place = random.randrange(len(data))
        return data[:place] + random.randbytes(random.randrange(1, 9)) + data[place + 1 :]
    return data


def _spoil(random: Random, body: Any) -> None:
    """One change, somewhere."""
    places = [(body, key) for key in body]
    for inside, key in places:
        value = inside[key]
        if isinstance(value, dict):
            places += [(value, each) for each in value]
        elif isinstance(value, list):
            places += [(value, each) for each in range(len(value))]
    inside, key = random.choice(places)
    value = copy.deepcopy(random.choice(VALUES))
    if isinstance(inside, dict) and random.random() < 0.1:
        inside[str(value)[:20]] = inside.pop(key)
    else:
        inside[key] = value


def bomb(random: Random) -> dict[str, Any]:
    """Completion with a prompt that takes long to parse: long, without blanks, or special."""
    size = random.choice((10_000, 300_000, 7_000_000))
    text = random.choice(("x", " ", "ab ", "<|im_end|>", "0,", "\n", "é", "{% raw %}"))
    prompt: Any = text * (size // len(text))
    if random.random() < 0.2:
        prompt = [random.randrange(-1, 263) for _ in range(size // 10)]
    return {"prompt": prompt, "max_tokens": 2}


TEMPLATES = (
    "{% for i in range(999999999) %}x{% endfor %}",
    "{{ 'x' * 999999999 }}",
    "{% set a = ('f' * 6000000) | int(base=16) %}{{ a // 7 }}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{{ messages.__class__.__mro__ }}",
    "{{ raise_exception('no') }}",
    "{{",
)


def spoilt(random: Random, good: bytes) -> bytes:
    """Model file with some bytes changed, most of them in its header, or truncated."""
    data = bytearray(good)
    for _ in range(random.choice((1, 1, 2, 8, 64))):
        end = len(data) if random.random() < 0.2 else min(len(data), 6000)
        place = random.randrange(4, end)
        width = random.choice((1, 4, 8))
        value = random.choice((0, 1, 0xFF, 2**31, 2**63, random.getrandbits(64)))
        data[place : place + width] = (value % 2 ** (8 * width)).to_bytes(width, "little")
    if random.random() < 0.15:
        del data[random.randrange(len(data)) :]
    return bytes(data)


def write(path: Path, data: bytes) -> None:
    """Write a file atomically."""
    beside = path.with_suffix(".part")
    beside.write_bytes(data)
    beside.replace(path)
