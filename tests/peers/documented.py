"""Finds fields of llama-server that this daemon would take and pass over in silence.

They are read from its source: the schema of its requests, and what its README says of /completion
and of chats. Each must be a field that is served, or one that is refused by name.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from localspec_daemon.api.infill import InfillRequest
from localspec_daemon.api.llama_server import LlamaCompletionRequest
from localspec_daemon.api.openai_types import ChatRequest, CompletionRequest, StreamOptions

SCHEMA, README = "tools/server/server-schema.cpp", "tools/server/README.md"
SECTIONS = (
    "### POST `/completion`",
    "### POST `/v1/chat/completions`: OpenAI",
    "### POST `/infill`",
)
BODIES = (LlamaCompletionRequest, ChatRequest, CompletionRequest, InfillRequest, StreamOptions)
LEAST = 60
"""Fields that the source has at least: fewer means that it is written in another way now."""


def unknown(source: Path) -> list[str]:
    """Returns the documented fields that no body has. Raises ValueError if too few are found."""
    schema = re.findall(r"(?:field_[a-z]+|add_alias)\(\"([a-z_]+)\"", (source / SCHEMA).read_text())
    readme = (source / README).read_text()
    told = [
        name
        for part in re.split(r"\n(?=#{2,4} )", readme)
        if part.startswith(SECTIONS)
        for name in re.findall(r"^`([a-z_]+)`\s*:", part, re.MULTILINE)
    ]
    if len({*schema, *told}) < LEAST or not told:
        raise ValueError(f"{len(schema)} fields are in {SCHEMA}, {len(told)} in {README}")
    served = {field.encode_name for body in BODIES for field in msgspec.structs.fields(body)}
    return sorted({*schema, *told} - served)
