"""The base of most types of answers."""

from __future__ import annotations

import msgspec


class Shape(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """An object with these fields and no others; those with the default `UNSET` may be absent."""
