"""The worker's end of the socketpair: commands in through a thread, events out."""

from __future__ import annotations

import logging
import math
import os
import queue
import socket
import sys
import threading

from localspec.errors import EngineError, LocalSpecError
from localspec.wire import frames
from localspec.wire.messages import (
    Cancel,
    Command,
    Delta,
    Event,
    Failed,
    Finished,
    QuestionAnswer,
    Quit,
    Ready,
    Refused,
    Replayed,
    Started,
)

_log = logging.getLogger("localspec.worker")


class Channel:
    """Commands and events of one worker. `send` and `receive` belong to the engine's thread.

    A thread reads commands, so that a cancelled request is known between two steps and the
    supervisor's end is noticed during one. After the supervisor's end this process ends at once:
    there is no client left, and the operating system frees everything.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(True)
        self._connection = connection
        self._commands: queue.SimpleQueue[Command | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, name="commands", daemon=True).start()

    def send(self, event: Event) -> None:
        """Write one event; waits while the supervisor is slow to read.

        An event that does not fit a frame is not sent. If it belongs to a request, that request
        ends with an error.
        """
        try:
            packed = frames.pack(event)
        except LocalSpecError as error:
            self._give_up(event, error)
            return
        try:
            self._connection.sendall(packed)
        except OSError:
            _leave()

    def _give_up(self, event: Event, error: LocalSpecError) -> None:
        """Send an error in place of an event that does not fit a frame."""
        _log.error("unsendable event=%s reason=%s", type(event).__name__, error.message)
        match event:
            case Started(id=id_) | Delta(id=id_):
                self.send(Failed(id_, error.code, error.message, error.fix))
                self._commands.put(Cancel(id_))
            case Finished(id=id_) | Replayed(id=id_) | QuestionAnswer(id=id_) | Failed(id=id_):
                self.send(Failed(id_, error.code, error.message, error.fix))
            case Ready():
                self.send(Refused(error.code, error.message, error.fix))
                self._commands.put(Quit())

    def receive(self, wait_seconds: float) -> Command | None:
        """The next command, waiting at most `wait_seconds`; None without one, and after `wake`."""
        try:
            if wait_seconds <= 0:
                return self._commands.get_nowait()
            return self._commands.get(timeout=None if wait_seconds == math.inf else wait_seconds)
        except queue.Empty:
            return None

    def wake(self) -> None:
        """Let `receive` return. For any thread."""
        self._commands.put(None)

    def _listen(self) -> None:
        try:
            while True:
                header = self._read(frames.HEADER_BYTES)
                self._commands.put(frames.command(self._read(frames.body_bytes(header))))
        except EngineError as error:
            print(error, file=sys.stderr, flush=True)  # noqa: T201 - the supervisor logs it
            os._exit(error.exit_code)
        except OSError:
            _leave()

    def _read(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            if not (more := self._connection.recv(min(count - len(data), 1 << 20))):
                _leave()
            data += more
        return bytes(data)


def _leave() -> None:
    os._exit(0)
