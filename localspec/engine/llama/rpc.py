"""Devices of other machines: both ends of llama.cpp's own RPC backend (ggml-rpc).

Only a build with GGML_RPC has it (`make REMOTE=1 install`). It has no password and no encryption,
it speaks IPv4, a server serves one client at a time, and a client whose server is gone aborts. So
addresses come here checked (`addresses.host_and_port`) and reached (`worker/remotes.py`).

A remote device is never registered with ggml: a model loaded without naming devices, such as
the draft, gets the local ones.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from localspec.engine.llama.library import native
from localspec.errors import ConfigError, EngineError

_CPU, _ACCELERATOR = 0, 3  # ggml_backend_dev_type: what takes no layers of its own
_SOURCE = b"ggml-rpc.cpp:"  # an abort's message begins with its file and line

_kept: list[Any] = []
"""Callbacks that native code holds."""


@dataclass(frozen=True, slots=True)
class Device:
    """One device: ggml's handle, its name, and how the log calls its buffers."""

    handle: int
    name: str
    buffers: str


def _function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    """A function of ggml. Raises AttributeError where this build has none of that name."""
    return ctypes.CFUNCTYPE(result, *arguments)((name, native._lib))  # noqa: SLF001 - no binding


def _offered(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    """A function that the RPC backend offers by name. Raises ConfigError where there is none."""
    registry = _function("ggml_backend_reg_by_name", ctypes.c_void_p, ctypes.c_char_p)(b"RPC")
    if not registry:
        raise ConfigError(
            "This llama.cpp was built without RPC, so it knows no remote devices.",
            fix="Build it with `make REMOTE=1 install`, or empty engine.remote.",
            param="engine.remote",
        )
    ask = _function(
        "ggml_backend_reg_get_proc_address", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p
    )
    return ctypes.CFUNCTYPE(result, *arguments)(ask(registry, name.encode()))


def require() -> None:
    """Raises ConfigError unless this llama.cpp was built with RPC."""
    _offered("ggml_backend_rpc_add_server", ctypes.c_void_p, ctypes.c_char_p)


def connect(address: str) -> list[Device]:
    """The devices behind a server that was just reached; the connection stays until the exit.

    Raises EngineError: the server has none.
    """
    add = _offered("ggml_backend_rpc_add_server", ctypes.c_void_p, ctypes.c_char_p)
    server = add(address.encode())
    if not server:
        raise EngineError(f"The remote {address} offers no device.")
    count = _function("ggml_backend_reg_dev_count", ctypes.c_size_t, ctypes.c_void_p)(server)
    get = _function("ggml_backend_reg_dev_get", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    return [_device(get(server, index), f"RPC{index}[{address}]") for index in range(count)]


def memory(device: Device) -> tuple[int, int]:
    """Free and total bytes of a device, as it says itself."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    size = ctypes.POINTER(ctypes.c_size_t)
    ask = _function("ggml_backend_dev_memory", None, ctypes.c_void_p, size, size)
    ask(device.handle, ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value


def local() -> list[Device]:
    """The devices of this machine that can take layers, the CPU left out."""
    return [device for kind, device in _all() if kind not in (_CPU, _ACCELERATOR)]


def chosen(names: Sequence[str]) -> list[Device]:
    """Devices of this machine by name; without names all but the CPU, or the CPU if it is alone.

    Raises ConfigError, which lists the names that there are.
    """
    known = {device.name: device for _, device in _all()}
    for name in names:
        if name not in known:
            raise ConfigError(f"There is no device {name} here.", fix=f"Here: {', '.join(known)}.")
    if names:
        return [known[name] for name in dict.fromkeys(names)]
    return local() or [device for kind, device in _all() if kind == _CPU]


def serve(address: str, devices: Sequence[Device], threads: int) -> None:
    """Lend `devices` to one client after the other, for ever; `threads` are for the CPU.

    Returns when the server could not begin, with its reason on the process's output. Raises
    ConfigError.
    """
    start = _offered(
        "ggml_backend_rpc_start_server",
        None,
        ctypes.c_char_p,
        ctypes.c_char_p,
        ctypes.c_size_t,
        ctypes.c_size_t,
        ctypes.POINTER(ctypes.c_void_p),
    )
    handles = (ctypes.c_void_p * len(devices))(*(device.handle for device in devices))
    start(address.encode(), None, threads, len(devices), handles)


def on_loss(leave: Callable[[str], None]) -> None:
    """Call `leave` with llama.cpp's words when it aborts over a remote; it must end the process.

    It runs on any thread, in the middle of native code. Other aborts are left as they are.
    """

    def aborting(message: bytes) -> None:
        text = message.decode("utf-8", "replace")
        print(text, file=sys.stderr, flush=True)  # noqa: T201 - what an abort does otherwise
        if _SOURCE in message:
            leave(text)

    callback = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(aborting)
    _kept.append(callback)
    _function("ggml_set_abort_callback", ctypes.c_void_p, ctypes.c_void_p)(
        ctypes.cast(callback, ctypes.c_void_p)
    )


def _all() -> list[tuple[int, Device]]:
    """The devices of this machine, each with its ggml_backend_dev_type."""
    count = _function("ggml_backend_dev_count", ctypes.c_size_t)()
    get = _function("ggml_backend_dev_get", ctypes.c_void_p, ctypes.c_size_t)
    kind = _function("ggml_backend_dev_type", ctypes.c_int, ctypes.c_void_p)
    handles = [get(index) for index in range(count)]
    return [(kind(handle), _device(handle)) for handle in handles]


def _device(handle: int, buffers: str = "") -> Device:
    name = _function("ggml_backend_dev_name", ctypes.c_char_p, ctypes.c_void_p)(handle).decode()
    return Device(handle, name, buffers or name)
