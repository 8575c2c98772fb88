"""Errors as OpenAI's API words them; llama-server and most others do the same. Pure."""

from __future__ import annotations

from localspec.errors import LocalSpecError
from localspec_daemon.api.dialect import Json


def errors(error: LocalSpecError) -> Json:
    """The error object; `{"error"` comes first, because a client recognises errors by it."""
    fields: Json = {
        "message": str(error),
        "type": error.kind,
        "param": error.param,
        "code": error.code,
    }
    if error.fix:
        fields |= {"message": error.message, "fix": error.fix}
    return {"error": fields | error.details}
