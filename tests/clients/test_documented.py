"""docs/api.md is true: each request has the answer that stands there, and no path is missing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx2
import openapi_check
import pytest

from localspec_daemon.http.openapi import written
from localspec_daemon.http.routes import TABLE

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^(GET|POST|DELETE) (\S+) ?(\{.*\})?\n(\d{3}) (.*)$", PAGE, re.MULTILINE)


def fits(value: Any, shown: Any) -> bool:
    """Whether an answer has all that is shown of it; "..." stands for anything."""
    if shown == "...":
        return value is not None
    if isinstance(shown, dict):
        return isinstance(value, dict) and all(
            name in value and fits(value[name], one) for name, one in shown.items()
        )
    if isinstance(shown, list):
        return isinstance(value, list) and len(value) >= len(shown) and all(map(fits, value, shown))
    return bool(value == shown)


def test_every_example_is_answered_as_the_page_says(
    served: Any, door: str, transport: httpx2.HTTPTransport
) -> None:
    """All of them, by both doors, in the page's order."""
    assert len(EXAMPLES) > 50
    headers = {"Authorization": f"Bearer {served.token}", "Content-Type": "application/json"}
    with httpx2.Client(
        transport=transport, base_url=served.base(door), headers=headers, timeout=60
    ) as http:
        for method, path, body, status, shown in EXAMPLES:
            answer = http.request(method, path, content=body or None)
            where = (method, path, body, answer.text)
            assert answer.status_code == int(status), where
            assert fits(json.loads(answer.content), json.loads(shown)), where
            if path in openapi_check.PATTERNS and method in {"GET", "POST"} and status != "405":
                openapi_check.holds(method, path, answer)
        assert http.get("/").text == "Ollama is running"
        assert http.get("/metrics").status_code == 200


PATHS = {route.path for route in TABLE if not route.path.startswith("/web/")}


@pytest.mark.parametrize("path", sorted(PATHS))
def test_every_path_is_on_the_page(path: str) -> None:
    """The served paths are the documented ones."""
    shown = written(path).replace("{id}", "alpha")
    assert re.search(rf"(GET|POST|DELETE) {re.escape(shown)}[ ?\n`]|`{re.escape(shown)}`", PAGE)
