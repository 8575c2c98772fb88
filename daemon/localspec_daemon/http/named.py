"""The model that a request names: in its body, or in the query of its address."""

from __future__ import annotations

from aiohttp import web

from localspec.errors import RequestError


def named(request: web.Request, in_body: str | None = None) -> str | None:
    """The name in the query or in the body; None for none. Raises RequestError if they differ."""
    names = {*request.query.getall("model", []), in_body} - {None, ""}
    if len(names) > 1:
        raise RequestError(
            "The address names one model and the body another.",
            fix="Name one, in either place.",
            param="model",
        )
    return next(iter(names), None)
