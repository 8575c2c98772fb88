"""Makes the OpenAPI document from the table of routes and the types of their bodies."""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from importlib import metadata
from typing import Any

import msgspec
from aiohttp import web

from localspec_daemon.api.dialect import Json
from localspec_daemon.http.access import OPEN_PATHS
from localspec_daemon.http.output import json_response
from localspec_daemon.http.route import Route, family
from localspec_daemon.page.routes import ENTRY

ROUTES: web.AppKey[tuple[Route, ...]] = web.AppKey("routes", tuple)
"""The routes that the application's document describes."""

REF = "#/components/schemas/{name}"
JSON = "application/json"

_ANY = (400, 401, 403, 417, 431)
"""Errors of any request: a bad head, no token, a web page or a wrong Host."""
_BODY = (413, 415)
_MODEL = (404, 422, 429, 502, 503, 507)
"""Errors of a model, in this order: it is unknown, the request is refused (`poisonous`), there are
too many requests, its worker died, it cannot load now, it does not fit into memory."""
_NAMED = (404,)

_ABOUT = (
    "One machine's own inference daemon. An unknown field is ignored, and null means "
    "absent. On the private socket the kernel says who speaks; over TCP the token does."
)
_SECURITY: Json = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "key": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
}


async def serve(request: web.Request) -> web.Response:
    """GET /openapi.json."""
    return json_response(await asyncio.to_thread(document, request.app[ROUTES]))


@functools.cache
def document(routes: tuple[Route, ...]) -> Json:
    """The OpenAPI document of these routes."""
    kinds = [*dict.fromkeys(kind for route in routes for kind in _kinds(route))]
    shown, components = msgspec.json.schema_components(kinds, ref_template=REF)
    schemas = dict(zip(kinds, shown, strict=True))
    paths: dict[str, Json] = {}
    for route in routes:
        operations = paths.setdefault(written(route.path), {})
        operations[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "LocalSpec", "version": _version(), "description": _ABOUT},
        "security": [{}, *({scheme: []} for scheme in _SECURITY)],
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": {
                _refusal(route, code): _error_response(code, schemas[family(route.path).shape])
                for route in routes
                for code in _refusals(route)
            },
            "securitySchemes": _SECURITY,
        },
    }


def written(path: str) -> str:
    """A path without the patterns of its parameters."""
    return re.sub(r"\{(\w+):[^}]*\}", r"{\1}", path)


def _kinds(route: Route) -> Iterator[Any]:
    """The types of a route's bodies."""
    answers = (route.takes, route.gives, route.stream and route.stream.frame)
    yield from (kind for kind in answers if kind and not isinstance(kind, str))
    yield from (kind for _, kind in route.also)
    yield family(route.path).shape


def _operation(route: Route, schemas: dict[Any, Json]) -> Json:
    """The operation of a path's method."""
    operation: Json = {
        "operationId": _identity(route),
        "summary": route.about,
        "tags": [family(route.path).name],
        "parameters": [*_parameters(route)],
        "responses": {str(code): one for code, one in _responses(route, schemas)},
    }
    if route.takes:
        content = {JSON: {"schema": schemas[route.takes]}}
        operation["requestBody"] = {"required": True, "content": content}
    if route.path in OPEN_PATHS or route.path.startswith(ENTRY):
        operation["security"] = []
    return operation


def _identity(route: Route) -> str:
    """A name for the operation, such as post_v1_messages."""
    return "_".join([route.method.lower(), *re.findall(r"\w+", written(route.path))])


def _parameters(route: Route) -> Iterator[Json]:
    for name in re.findall(r"\{(\w+)\}", written(route.path)):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
    for name in route.queries:
        yield {"name": name, "in": "query", "schema": {"type": "string"}}


def _responses(route: Route, schemas: dict[Any, Json]) -> Iterator[tuple[int, Json]]:
    """The responses by status."""
    content: Json = {}
    if isinstance(route.gives, str):
        content[route.gives] = {"schema": {"type": "string"}}
    elif route.gives:
        content[JSON] = {"schema": schemas[route.gives]}
    if route.stream:
        frame = schemas[route.stream.frame]
        content[route.stream.framing.media_type] = {"schema": {"type": "string"}, "x-frame": frame}
    if content:
        yield 200, {"description": route.about, "content": content}
    for code, kind in route.also:
        yield code, _error_response(code, schemas[kind])
    for code in sorted({*_refusals(route)} - {code for code, _ in route.also}):
        yield code, {"$ref": f"#/components/responses/{_refusal(route, code)}"}


def _refusals(route: Route) -> Iterable[int]:
    body = _BODY if route.takes else ()
    asks = route.takes or route.queries or "{" in route.path
    return (*_ANY, *body, *(_MODEL if route.loads else _NAMED if asks else ()))


def _refusal(route: Route, code: int) -> str:
    """The name of an error that several routes share."""
    return f"{family(route.path).name}{code}"


def _error_response(code: int, schema: Json) -> Json:
    return {"description": HTTPStatus(code).phrase, "content": {JSON: {"schema": schema}}}


def _version() -> str:
    try:
        return metadata.version("localspec")
    except metadata.PackageNotFoundError:
        return "0"  # run from its sources, not installed
