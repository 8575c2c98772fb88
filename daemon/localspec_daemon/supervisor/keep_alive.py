"""How long a model stays in memory without a request: `keep_alive` of requests and settings."""

from __future__ import annotations

import contextlib
import math

from localspec import config as settings
from localspec.errors import ConfigError, RequestError


def requested_seconds(keep_alive: object) -> float | None:
    """The span of a request's `keep_alive`: "5m", or seconds; negative for ever.

    Returns:
        Seconds, math.inf for ever, None where the request has no `keep_alive`.

    Raises:
        RequestError: it is no span of time.
    """
    if keep_alive is None:
        return None
    if isinstance(keep_alive, int | float) and not isinstance(keep_alive, bool):
        with contextlib.suppress(OverflowError):  # JSON's numbers may have 400 digits
            return float(keep_alive) if keep_alive >= 0 else math.inf
    if isinstance(keep_alive, str):
        with contextlib.suppress(ConfigError):
            return configured_seconds(keep_alive)
    raise RequestError(
        f"keep_alive is no span of time: {str(keep_alive)[:40]!r}.",
        fix='Send "5m", seconds, 0 (unload after the answer) or -1 (never unload).',
        param="keep_alive",
    )


def configured_seconds(text: str) -> float:
    """The span of a setting, in seconds; math.inf for ever. Raises ConfigError."""
    found = settings.seconds(text)
    return math.inf if found is None else found
