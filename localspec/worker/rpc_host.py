"""Lends this machine's devices over the network: `python -m localspec.worker.rpc_host`.

`localspec worker-host` becomes this process. llama.cpp's RPC has had holes through which a client
could run code, so the process has nothing that it does not need: a crash or an intruder meets no
model, no prompt, no daemon, and no right beyond those of an ordinary user.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import ipaddress
import os
import resource
import signal
import socket
import struct
import sys
from collections.abc import Sequence

from localspec.addresses import host_and_port
from localspec.errors import ConfigError, EngineError, Forbidden, LocalSpecError

DEFAULT = "127.0.0.1:50052"
_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38
_SIOCGIFADDR = 0x8915  # Linux
_MAX_THREADS = 1024


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the arguments, drop rights, serve until a signal comes. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="localspec worker-host", description=__doc__)
    parser.add_argument("--listen", default=DEFAULT)
    parser.add_argument("--device", action="append", default=[])
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--allow-root", action="store_true")
    asked = parser.parse_args(arguments)
    try:
        _serve(asked)
    except LocalSpecError as error:
        _say(f"error: {error.message}")
        if error.fix:
            _say(f"  {error.fix}")
        return error.exit_code
    return EngineError.exit_code


def _serve(asked: argparse.Namespace) -> None:
    if os.geteuid() == 0 and not asked.allow_root:
        raise Forbidden(
            "A worker-host does not run as root: a client that reaches it may become root here.",
            fix="Start it as an ordinary user, or add --allow-root where root means nothing.",
        )
    if not 0 <= asked.threads <= _MAX_THREADS:
        raise ConfigError(
            f"--threads {asked.threads} is out of range.", fix=f"Choose 0 to {_MAX_THREADS}."
        )
    host, port = listening(asked.listen)
    _free(host, port)
    if warning := exposure(host, port):
        _say(warning)
    drop()
    # Imported late: what was refused above needs no native library.
    from localspec.engine.llama import cores, rpc  # noqa: PLC0415 - see above

    devices = rpc.chosen(asked.device)
    names = ", ".join(device.name for device in devices)
    _say(f"lending {names} at {host}:{port}, to one client at a time")
    rpc.serve(f"{host}:{port}", devices, asked.threads or cores.performance_cores())
    raise EngineError("llama.cpp's RPC server ended.", fix="Its reason is above.")


def listening(text: str) -> tuple[str, int]:
    """IPv4 address and port of "127.0.0.1:50052" or of an interface, "wg0:50052".

    Raises ConfigError, also for an address that means all interfaces.
    """
    where = host_and_port(text)
    if where is None:
        raise ConfigError(
            f'--listen "{text}" is no address with a port.', fix=f"Write {DEFAULT} or wg0:50052."
        )
    host, port = where
    try:
        address = ipaddress.IPv4Address(host)
    except ValueError:
        address = ipaddress.IPv4Address(_of_interface(host))
    if address.is_unspecified:
        raise ConfigError(
            f"--listen {text} would lend this machine to every network it is in.",
            fix="Name one address or interface.",
        )
    return str(address), port


def exposure(host: str, port: int) -> str:
    """A warning before listening there; "" for loopback."""
    if ipaddress.IPv4Address(host).is_loopback:
        return ""
    return (
        f"warning: clients that reach {host}:{port} can use this machine's devices, read what is\n"
        "computed here and perhaps run code as this user: llama.cpp's RPC has no password and no\n"
        "encryption. Without an open port, on the machine that runs the daemon:\n"
        f"    ssh -N -L {port}:127.0.0.1:{port} {socket.gethostname()}\n"
        f'with `localspec worker-host` here and remote = ["127.0.0.1:{port}"] there. Or listen\n'
        f"on a WireGuard interface (--listen wg0:{port}), with the port closed on all others."
    )


def drop() -> None:
    """Rule out new privileges, core dumps, being traced, and files that others can read."""
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no Python handler runs during native code
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        prctl = ctypes.CDLL(None).prctl
        prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def _of_interface(name: str) -> str:
    """The IPv4 address of a network interface. Raises ConfigError."""
    try:
        import fcntl  # noqa: PLC0415 - not on every platform

        request = struct.pack("256s", name.encode()[:15])
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            answer = fcntl.ioctl(any_socket.fileno(), _SIOCGIFADDR, request)
    except (OSError, ImportError) as error:
        here = ", ".join(name for _, name in socket.if_nameindex())
        raise ConfigError(
            f"There is no interface or IPv4 address {name} here.",
            fix=f"Name an address, or one of: {here}.",
        ) from error
    return socket.inet_ntoa(answer[20:24])


def _free(host: str, port: int) -> None:
    """Raise ConfigError, with the reason, where the address cannot be listened on."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as attempt:
            attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            attempt.bind((host, port))
    except OSError as error:
        raise ConfigError(
            f"{host}:{port} cannot be listened on: {error.strerror}.",
            fix="Choose another address or port with --listen.",
        ) from error


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - this process has no other output


if __name__ == "__main__":
    sys.exit(main())
