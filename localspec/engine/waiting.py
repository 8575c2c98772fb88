"""Work done while a device computes a forward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from localspec.types import Backend


@runtime_checkable
class Waiting(Backend, Protocol):
    """A backend that may have to wait for a device.

    Where it `waits`, `decode` calls `meanwhile` once a forward is on its way. Work that the forward
    does not need costs no time there. `meanwhile` must not use this backend.
    """

    waits: bool
    meanwhile: Callable[[], None]
