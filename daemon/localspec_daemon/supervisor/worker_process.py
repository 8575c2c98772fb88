"""A started worker process: its channel, its standard error and its end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
from collections import deque
from collections.abc import Sequence

from localspec.errors import EngineError, bounded
from localspec_daemon.supervisor.channel import Channel

_log = logging.getLogger("localspec.worker")

LAST_WORDS_LINES = 12
MAX_WORDS_CHARS = 1000
"""The most characters of one of its last lines: a line may quote a whole key of a file."""

_NO_FILES = {errno.EMFILE, errno.ENFILE}


class WorkerProcess:
    """One process, which waits for a Load as its first command. Lives on the event loop's thread.

    `ended` is its exit code, once it has ended and its standard error is read to the end.
    `last_words` are the last lines of that.
    """

    def __init__(self, process: asyncio.subprocess.Process, channel: Channel) -> None:
        self.pid = process.pid
        self.channel = channel
        self.last_words: deque[str] = deque(maxlen=LAST_WORDS_LINES)
        self._process = process
        self.ended = asyncio.create_task(self._end())

    @classmethod
    async def start(cls, command: Sequence[str]) -> WorkerProcess:
        """Start a process with a channel. Raises EngineError."""
        channel: Channel | None = None
        try:
            ours, theirs = socket.socketpair()
            with theirs:
                channel = Channel(*await asyncio.open_unix_connection(sock=ours))
                process = await asyncio.create_subprocess_exec(
                    *command,
                    "--fd",
                    str(theirs.fileno()),
                    pass_fds=(theirs.fileno(),),
                    process_group=0,  # Ctrl-C in a terminal is for the supervisor alone
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=2,
                    stderr=asyncio.subprocess.PIPE,
                )
        except BaseException as error:
            if channel:
                await channel.close()
            if isinstance(error, OSError):
                fix = "ulimit -n 256, and localspec restart" if error.errno in _NO_FILES else ""
                raise EngineError(f"A worker cannot be started: {error}.", fix=fix) from error
            raise
        return cls(process, channel)

    @property
    def runs(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.returncode is None

    def kill(self) -> None:
        """SIGKILL for the whole process group."""
        if self.runs:
            with contextlib.suppress(ProcessLookupError):  # it has ended already
                os.killpg(self.pid, signal.SIGKILL)

    async def discard(self) -> None:
        """End it with all that belongs to it: no model is on it."""
        self.kill()
        await self.ended
        await self.channel.close()

    async def _end(self) -> int:
        words = asyncio.create_task(self._relay_stderr())
        returncode = await self._process.wait()
        await words
        return returncode

    async def _relay_stderr(self) -> None:
        """Copy its standard error, where native code explains aborts; keep the last lines."""
        stderr = self._process.stderr
        assert stderr is not None  # noqa: S101 - `start` asked for a pipe
        while True:
            try:
                line = await stderr.readline()
            except ValueError:
                continue  # a line over the reader's limit; the rest of it follows
            if not line:
                return
            text = line.decode(errors="replace").rstrip()
            self.last_words.append(bounded(text, MAX_WORDS_CHARS))
            quiet = text.startswith(("DEBUG ", "INFO "))  # the daemon logs the same events
            _log.log(logging.DEBUG if quiet else logging.INFO, "pid=%d %s", self.pid, text)
