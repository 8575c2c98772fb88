"""`python -m localspec_daemon`: the daemon in the foreground."""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import faulthandler
import gc
import logging
import os
import sys
import time
from pathlib import Path

import msgspec

from localspec import paths, streams
from localspec.errors import LocalSpecError, of_system
from localspec_daemon.http.openapi import document
from localspec_daemon.http.routes import TABLE
from localspec_daemon.log import WINDOW_SECONDS, CountingHandler, log_to_stderr
from localspec_daemon.server import Options, Server

_log = logging.getLogger("localspec.server")

SWITCH_SECONDS = 0.001
"""Python's switch interval: at each wake-up the event loop waits at most this long for a thread
that parses a body."""

_M_MMAP_THRESHOLD = -3
_MAPPED_BYTES = 128 << 10


def main() -> int:
    """Run until a signal; the exit code is the error's."""
    streams.ensure()
    parser = argparse.ArgumentParser(prog="localspec serve", description=__doc__)
    parser.add_argument("--config", type=Path, help="configuration file")
    parser.add_argument("--socket", type=Path, help="where to listen, before the configuration")
    parser.add_argument(
        "--openapi", action="store_true", help="print the OpenAPI document, and exit"
    )
    arguments = parser.parse_args()
    if arguments.openapi:
        return _print_document()
    log = log_to_stderr()
    os.umask(0o077)  # nothing that the daemon or its workers write is for others
    _return_large_blocks()
    faulthandler.enable()  # if the watchdog aborts a hung daemon, the log says where it hung
    options = Options(arguments.config or paths.config_file(), arguments.socket)
    try:
        asyncio.run(_serve(options, log))
    except LocalSpecError as error:
        return _print_error(error)
    except OSError as error:
        return _print_error(of_system(error))
    return 0


def _return_large_blocks() -> None:
    """Fix glibc's mmap threshold, so that freed large blocks always go back to the system.

    By default glibc raises the threshold to the largest mapped block freed so far. Blocks below it
    then come from the heap, and the process keeps 27 MiB after a body of 6 MB (mallopt(3)). Other C
    libraries have no such function.
    """
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)


def _print_document() -> int:
    try:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(document(TABLE))) + b"\n")
        sys.stdout.flush()
    except BrokenPipeError:
        streams.drop(sys.stdout.fileno())
    except OSError as error:
        streams.drop(sys.stdout.fileno())
        return _print_error(of_system(error, "standard output"))
    return 0


def _print_error(error: LocalSpecError) -> int:
    print(error, file=sys.stderr)  # noqa: T201 - a message for the person who started us
    return error.exit_code


async def _serve(options: Options, log: CountingHandler) -> None:
    server = Server(options)
    gc.freeze()  # these objects stay: a body with many values must not make the collector scan them
    sys.setswitchinterval(SWITCH_SECONDS)
    level = server.supervisor.config.server.log_level
    logging.getLogger("localspec").setLevel(level.upper())
    for path in await asyncio.to_thread(paths.close_to_others):
        _log.warning("closed path=%s reason=others could write it", path)
    await asyncio.to_thread(paths.sweep_all, server.supervisor.models_directory)
    counting = asyncio.create_task(_write_counts(log))
    try:
        await server.run()
    finally:
        counting.cancel()


async def _write_counts(log: CountingHandler) -> None:
    """Write the counts of repeated log lines when their window is over, for ever."""
    while True:
        await asyncio.sleep(WINDOW_SECONDS)
        log.write_counts(time.monotonic())


if __name__ == "__main__":
    sys.exit(main())
