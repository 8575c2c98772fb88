"""Describes this build of llama.cpp: its devices, in its order, and where its C++ runtime lives.

It calls functions of ggml and of the dynamic loader that no binding has.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from localspec.engine.llama.library import native
from localspec.errors import ConfigError

Kind: TypeAlias = Literal["cpu", "gpu", "igpu", "accel", "meta"]

_KINDS: tuple[Kind, ...] = ("cpu", "gpu", "igpu", "accel", "meta")  # ggml_backend_dev_type


@dataclass(frozen=True, slots=True)
class Device:
    """One device. `kind` "igpu" shares the computer's memory, "accel" works beside the CPU.

    `id` is the PCI address where there is one: two backends may list the same card.
    """

    name: str
    description: str
    kind: Kind
    id: str
    free_bytes: int
    total_bytes: int


class _Properties(ctypes.Structure):
    """`struct ggml_backend_dev_props` of the pinned llama.cpp."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("description", ctypes.c_char_p),
        ("memory_free", ctypes.c_size_t),
        ("memory_total", ctypes.c_size_t),
        ("type", ctypes.c_int),
        ("device_id", ctypes.c_char_p),
        ("capabilities", ctypes.c_bool * 5),
    ]


def listed() -> list[Device]:
    """Every device of this process. Asking a GPU for its memory wakes its driver."""
    ggml = native._lib  # noqa: SLF001 — libllama, behind which the loader finds ggml
    ggml.ggml_backend_dev_count.restype = ctypes.c_size_t
    ggml.ggml_backend_dev_get.restype = ctypes.c_void_p
    ggml.ggml_backend_dev_get.argtypes = [ctypes.c_size_t]
    ask = ggml.ggml_backend_dev_get_props
    ask.restype, ask.argtypes = None, [ctypes.c_void_p, ctypes.POINTER(_Properties)]
    found = []
    for index in range(ggml.ggml_backend_dev_count()):
        said = _Properties()
        ask(ggml.ggml_backend_dev_get(index), ctypes.byref(said))
        name, description, id_ = (
            (text or b"").decode("utf-8", "replace").strip()
            for text in (said.name, said.description, said.device_id)
        )
        kind = _KINDS[said.type]
        found.append(Device(name, description, kind, id_, said.memory_free, said.memory_total))
    return found


def usable() -> list[Device]:
    """The GPUs that llama.cpp would use by itself, in its order.

    A card that several backends see is listed once, as the first of them sees it. Integrated ones
    count only where there is no other.
    """
    found = listed()
    cards = [device for device in found if device.kind == "gpu"]
    cards = cards or [device for device in found if device.kind == "igpu"]
    once: dict[str, Device] = {}
    for card in cards:
        once.setdefault(card.id or card.name, card)
    return list(once.values())


def handles(names: Sequence[str]) -> list[int]:
    """The devices of these names, as ggml_backend_dev_t. Raises ConfigError."""
    by_name = native._lib.ggml_backend_dev_by_name  # noqa: SLF001 — see above
    by_name.restype, by_name.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
    found = []
    for name in names:
        handle = by_name(name.encode())
        if not handle:
            there = ", ".join(device.name for device in listed())
            raise ConfigError(f"llama.cpp lists no device {name}.", fix=f"There is: {there}.")
        found.append(handle)
    return found


_CLASSIC_LOCALE = "_ZNSt6locale7classicEv"  # std::locale::classic() of GCC's libstdc++


class _Origin(ctypes.Structure):
    """`Dl_info` of <dlfcn.h>."""

    _fields_ = [
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    ]


def exported_runtime() -> str:
    """The library of llama.cpp that exports a C++ runtime of its own; "" in a correct build.

    With two runtimes in one process, one may use symbols of the other, which was never set up.
    """
    try:
        function = getattr(native._lib, _CLASSIC_LOCALE)  # noqa: SLF001 — the same
    except AttributeError:  # another runtime, or one that each library keeps to itself
        return ""
    origin = _Origin()
    ctypes.CDLL(None).dladdr(ctypes.cast(function, ctypes.c_void_p), ctypes.byref(origin))
    file = Path((origin.file or b"").decode("utf-8", "replace"))
    return file.name if file.parent == Path(native._lib._name).parent else ""  # noqa: SLF001
