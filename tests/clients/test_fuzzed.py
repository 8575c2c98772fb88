"""Requests generated from the OpenAPI document have responses that follow the document.

Bodies that fit their type and bodies that do not, over the private socket, to the real worker; with
the marker of the storm, many more of them.
"""

from __future__ import annotations

import json
from typing import Any

import httpx2
import hypothesis
import openapi_check
import pytest
import schemathesis
from hypothesis import strategies as st
from schemathesis.core.result import Ok
from schemathesis.generation.case import Case
from schemathesis.generation.modes import GenerationMode
from storm.hostile import ANY

from localspec_daemon.http.routes import TABLE

ENDLESS = ("/models/sse", "/v1/models/sse")
OPERATIONS = [
    operation
    for result in schemathesis.openapi.from_dict(openapi_check.DOCUMENT).get_all_operations()
    if isinstance(result, Ok) and (operation := result.ok()).path not in ENDLESS
]
LENGTHS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict", "n", "n_cmpl")
"""Fields that would make a made-up request take minutes."""


def meant(body: dict[str, Any]) -> dict[str, Any]:
    """A body that fits its type, with something to answer in it."""
    given = {name: value for name, value in body.items() if value is not None}
    short = dict.fromkeys(set(LENGTHS) & set(given), 3)
    return ANY | given | short | {"model": "alpha"}


def on_socket(served: Any) -> httpx2.Client:
    """A client of the private socket."""
    transport = httpx2.HTTPTransport(uds=served.socket)
    return httpx2.Client(transport=transport, base_url="http://localspec", timeout=60)


@pytest.mark.parametrize("path", [route.path for route in TABLE if route.takes and route.stream])
def test_each_frame_of_a_stream_follows_the_document(served: Any, path: str) -> None:
    """In every dialect, from the first frame to the last."""
    usage = {"stream_options": {"include_usage": True}, "top_logprobs": 1, "n_probs": 1}
    logprobs: Any = {"logprobs": True} if path.endswith(("chat/completions", "/api/chat")) else {}
    if path.endswith("responses"):  # a prompt there is one that was stored
        logprobs = {"include": ["message.output_text.logprobs"], "prompt": None}
    with on_socket(served) as http:
        answer = http.post(path, json=ANY | usage | logprobs | {"stream": True, "tools": None})
    openapi_check.holds("POST", path, answer)
    if "infill" in path:
        assert answer.status_code == 400  # that model names no tokens for it
    else:
        assert len(openapi_check.frames(answer.text)) > 1


@pytest.mark.parametrize("mode", GenerationMode)
@pytest.mark.parametrize("examples", [40, pytest.param(1000, marks=pytest.mark.storm)])
def test_responses_follow_the_document(served: Any, mode: GenerationMode, examples: int) -> None:
    """Only declared statuses and shapes, so no 500; no worker dies."""

    @hypothesis.settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate],
    )
    @hypothesis.given(st.one_of([one.as_strategy(generation_mode=mode) for one in OPERATIONS]))
    def promised(case: Case[Any]) -> None:
        if mode is GenerationMode.POSITIVE and isinstance(case.body, dict):
            case.body = meant(case.body)
        sent = case.as_transport_kwargs(base_url="http://localspec")
        sent["content"] = sent.pop("data", None)
        del sent["cookies"]
        openapi_check.holds(case.method, case.path, http.request(**sent))

    with on_socket(served) as http:
        promised()
        status = json.loads(http.get("/v1/status").content)
    assert [model["last_crash"] for model in status["models"] if "last_crash" in model] == []
