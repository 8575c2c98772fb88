"""`python -m localspec_daemon`: the daemon in the foreground."""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import gc
import logging
import os
import sys
from pathlib import Path
from typing import Any

import msgspec

from localspec import paths
from localspec.errors import LocalSpecError, bounded, escaped, of_system
from localspec_daemon.openapi import document
from localspec_daemon.routes import TABLE
from localspec_daemon.server import Options, Server

_JOURNAL_PRIORITIES = {"ERROR": 3, "WARNING": 4, "INFO": 6, "DEBUG": 7}


MAX_LINE_CHARS = 4000
"""Of one line, before escaping: as much as an error and its fix."""
MAX_TRACEBACK_LINES = 400


class OneLineFormatter(logging.Formatter):
    """One record is one line, whatever text of a file or a request is in it; nothing can forge one.

    Lines of a traceback begin with a bar.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  logging's name
        """The line, with what could end it or command a terminal escaped."""
        record.message = escaped(bounded(record.message, MAX_LINE_CHARS))
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802  as above
        """The traceback, marked as such."""
        lines = super().formatException(ei).split("\n")[-MAX_TRACEBACK_LINES:]
        return "\n".join(f"  | {escaped(bounded(line, MAX_LINE_CHARS))}" for line in lines)


class _JournalFormatter(OneLineFormatter):
    """Lines for systemd's journal: its own priorities, and no time, which it knows itself."""

    def format(self, record: logging.LogRecord) -> str:
        return f"<{_JOURNAL_PRIORITIES.get(record.levelname, 3)}>{super().format(record)}"


SWITCH_SECONDS = 0.001
"""So long the event loop waits for a thread that reads a large body, each time that it wakes up."""


def main() -> int:
    """Run until a signal; the exit code is the error's."""
    parser = argparse.ArgumentParser(prog="localspec serve", description=__doc__)
    parser.add_argument("--config", type=Path, help="configuration file")
    parser.add_argument("--socket", type=Path, help="where to listen, before the configuration")
    parser.add_argument("--openapi", action="store_true", help="print what is served, and leave")
    arguments = parser.parse_args()
    if arguments.openapi:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(document(TABLE))) + b"\n")
        return 0
    _log_to_stderr()
    faulthandler.enable()  # a watchdog aborts a daemon that stands still: the log says where
    options = Options(arguments.config or paths.config_file(), arguments.socket)
    try:
        asyncio.run(_serve(options))
    except LocalSpecError as error:
        return _complain(error)
    except OSError as error:
        return _complain(of_system(error))
    return 0


def _complain(error: LocalSpecError) -> int:
    print(error, file=sys.stderr)  # noqa: T201 - a message for the person who started us
    return error.exit_code


async def _serve(options: Options) -> None:
    server = Server(options)
    gc.freeze()  # what is there stays: not to be walked through whenever a body holds many values
    sys.setswitchinterval(SWITCH_SECONDS)
    level = server.supervisor.config.server.log_level
    logging.getLogger("localspec").setLevel(level.upper())
    await server.run()


def _log_to_stderr() -> None:
    handler = logging.StreamHandler()
    if "JOURNAL_STREAM" in os.environ:
        handler.setFormatter(_JournalFormatter("%(name)s %(message)s"))
    else:
        handler.setFormatter(OneLineFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.getLogger().addHandler(handler)
    logging.getLogger().setLevel(logging.WARNING)


if __name__ == "__main__":
    sys.exit(main())
