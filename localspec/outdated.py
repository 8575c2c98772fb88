"""Brings configurations of earlier releases up to date: keys that are gone, names that changed."""

from __future__ import annotations

import functools
import logging
from typing import Any

_log = logging.getLogger("localspec.config")

_GONE = (("server", "max_loaded", "memory decides; server.memory_bytes bounds it"),)
"""Keys of earlier releases that are gone, and what replaces them."""

RENAMED_DRAFTERS = {"hydra": "feature_head"}
"""Names that drafters had before 0.2.0; configurations and requests may still use them."""


def renew(table: dict[str, Any], origin: str) -> None:
    """Drop keys that are gone, and rename drafters; a warning tells each change once."""
    for section, key, instead in _GONE:
        values = table.get(section)
        if isinstance(values, dict) and values.pop(key, None) is not None:
            tell_once(f"{origin}: {section}.{key} has no effect any more: {instead}.")
    speculation = table.get("speculation")
    if isinstance(speculation, dict) and isinstance(names := speculation.get("drafters"), list):
        for old in RENAMED_DRAFTERS.keys() & {name for name in names if isinstance(name, str)}:
            new = names[names.index(old)] = RENAMED_DRAFTERS[old]
            tell_once(f'{origin}: the drafter "{old}" is called "{new}" now.')


@functools.cache
def tell_once(sentence: str) -> None:
    """Warn on standard error or in the daemon's log, only once: a file is read many times."""
    _log.warning("%s", sentence)
