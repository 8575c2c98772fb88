"""The OpenAPI document as a judge: whether an answer is one that it tells of."""

from __future__ import annotations

import functools
import json
import re
from typing import Any

import httpx2
import jsonschema_rs

from localspec_daemon.http import openapi
from localspec_daemon.http.routes import TABLE

DOCUMENT = json.loads(json.dumps(openapi.document(TABLE)))
PATTERNS = {path: re.sub(r"\{\w+\}", ".+", path) for path in DOCUMENT["paths"]}


def holds(method: str, path: str, answer: httpx2.Response) -> None:
    """Nothing if the answer's status, media type and every object in it are declared there.

    Raises AssertionError, or the validator's own error.
    """
    place = (
        path
        if path in PATTERNS
        else next(known for known, pattern in PATTERNS.items() if re.fullmatch(pattern, path))
    )
    responses = DOCUMENT["paths"][place][method.lower()]["responses"]
    status = str(answer.status_code)
    assert status in responses, (method, path, answer.status_code, answer.text)
    declared = responses[status]
    if "$ref" in declared:
        declared = DOCUMENT["components"]["responses"][declared["$ref"].rpartition("/")[2]]
    kind = answer.headers.get("Content-Type", "").partition(";")[0]
    assert kind in declared["content"], (method, path, kind)
    content = declared["content"][kind]
    if "x-frame" in content:
        for frame in frames(answer.text):
            validator(json.dumps(content["x-frame"])).validate(frame)
    elif kind == openapi.JSON:
        validator(json.dumps(content["schema"])).validate(answer.json())


def frames(text: str) -> list[Any]:
    """The objects of a stream, whichever way it is cut, but for an error that ends it."""
    lines = [line.removeprefix("data: ") for line in text.splitlines()]
    found = [json.loads(line) for line in lines if line.startswith("{")]
    return [frame for frame in found if "error" not in frame]


@functools.cache
def validator(schema: str) -> jsonschema_rs.Draft202012Validator:
    """One that knows the document's types."""
    return jsonschema_rs.Draft202012Validator(
        json.loads(schema) | {"components": DOCUMENT["components"]}
    )
