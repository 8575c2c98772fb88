"""Writes errors in OpenAI's shape, which llama-server and most others share. Pure."""

from __future__ import annotations

from localspec.errors import LocalSpecError
from localspec_daemon.api.dialect import Json


def errors(error: LocalSpecError) -> Json:
    """Returns the error object. `{"error"` comes first: one client recognises errors by it."""
    fields: Json = {
        "message": str(error),
        "type": error.kind,
        "param": error.param,
        "code": error.code,
    }
    if error.fix:
        fields |= {"message": error.message, "fix": error.fix}
    return {"error": fields | error.details}
