"""The OpenAPI document describes all that the application serves, and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, cast

import pytest

from localspec_daemon.http import openapi
from localspec_daemon.http.app import create_app
from localspec_daemon.http.routes import TABLE
from localspec_daemon.supervisor.supervisor import Supervisor

DOCUMENT = json.loads(json.dumps(openapi.document(TABLE)))
OPERATIONS = [
    (method.upper(), path, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
]


def test_it_has_every_route_of_the_application_and_no_other() -> None:
    """HEAD is described with GET, and the catch-all is not a route."""
    router = create_app(cast("Supervisor", None)).router
    served = {
        (route.method, route.resource.canonical)
        for route in router.routes()
        if route.resource is not None
    }
    told = {(method, path) for method, path, _ in OPERATIONS}
    assert {(method, path) for method, path in served if method not in {"HEAD", "*"}} == told
    assert len({operation["operationId"] for _, _, operation in OPERATIONS}) == len(told)


def test_every_reference_leads_somewhere() -> None:
    """Each `$ref` has a definition."""

    def references(value: Any) -> list[str]:
        if isinstance(value, list):
            return [found for one in value for found in references(one)]
        if not isinstance(value, dict):
            return []
        inner = [found for one in value.values() for found in references(one)]
        return [*inner, value["$ref"]] if isinstance(value.get("$ref"), str) else inner

    found = set(references(DOCUMENT))
    assert len(found) > 80
    for reference in found:
        place = DOCUMENT
        for name in reference.removeprefix("#/").split("/"):
            place = place[name]


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        ("/v1/chat/completions", "Error"),
        ("/v1/messages", "AnthropicError"),
        ("/api/chat", "OllamaError"),
    ],
)
def test_errors_have_the_shape_of_their_dialect(path: str, shape: str) -> None:
    """Each status that a request may get is there, and never 500, which would be a bug."""
    responses = DOCUMENT["paths"][path]["post"]["responses"]
    assert {"200", "400", "401", "404", "429", "502", "503"} < set(responses)
    for name, response in DOCUMENT["components"]["responses"].items():
        assert not name.endswith("500")
        assert response["content"]["application/json"]["schema"]["$ref"]
    refused = responses["400"]["$ref"].rpartition("/")[2]
    schema = DOCUMENT["components"]["responses"][refused]["content"]["application/json"]["schema"]
    assert schema["$ref"].endswith(f"/{shape}")


def test_both_schemes_of_authentication_are_told_and_what_needs_none() -> None:
    """The socket needs no token, and health needs none anywhere."""
    schemes = DOCUMENT["components"]["securitySchemes"]
    assert {scheme["type"] for scheme in schemes.values()} == {"http", "apiKey"}
    assert DOCUMENT["security"] == [{}, *({name: []} for name in schemes)]
    free = {path for _, path, operation in OPERATIONS if operation.get("security") == []}
    assert free == {"/health", "/v1/health", "/web/enter/{code}"}


def test_the_command_prints_it() -> None:
    """`localspec openapi`, without a daemon."""
    command = [sys.executable, "-m", "localspec.cli.main", "openapi"]
    printed = subprocess.run(command, capture_output=True, check=True)
    assert json.loads(printed.stdout) == DOCUMENT
