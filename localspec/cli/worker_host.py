"""`localspec worker-host`: lend this machine's devices to a daemon elsewhere."""

from __future__ import annotations

import os
import sys

import click

MODULE = "localspec.worker.rpc_host"


@click.command("worker-host")
@click.option(
    "--listen",
    default="127.0.0.1:50052",
    show_default=True,
    metavar="ADDRESS:PORT",
    help="IPv4 address or name of an interface.",
)
@click.option(
    "--device",
    "devices",
    multiple=True,
    metavar="NAME",
    help="Lend this device, such as CUDA0; may be repeated. Default: every GPU, else the CPU.",
)
@click.option("--threads", default=0, help="Threads of the CPU; 0 is one per physical core.")
@click.option("--allow-root", is_flag=True, help="Run although this is root.")
def worker_host(*, listen: str, devices: tuple[str, ...], threads: int, allow_root: bool) -> None:
    """Lend this machine's devices to a daemon elsewhere.

    llama.cpp's RPC server in a process of its own, for one client at a time. It has no password and
    no encryption: leave it on loopback and reach it through SSH or WireGuard. docs/scale.md says
    how, and when it pays.

    Example: localspec worker-host --listen wg0:50052
    """
    command = [sys.executable, "-P", "-m", MODULE, "--listen", listen, "--threads", str(threads)]
    for name in devices:
        command += ["--device", name]
    if allow_root:
        command.append("--allow-root")
    os.execv(command[0], command)  # noqa: S606  our own interpreter, no shell
