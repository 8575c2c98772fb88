"""`python -m localspec.worker --fd N`: one process, one model, one socket to the supervisor."""

from __future__ import annotations

import argparse
import logging
import math
import socket
import sys
import time

from localspec import streams
from localspec.errors import EngineError, LocalSpecError
from localspec.wire.messages import Goodbye, Load, Progress, Refused
from localspec.worker import assemble, embedding, process
from localspec.worker.assemble import Loaded
from localspec.worker.channel import Channel
from localspec.worker.embedding import EmbeddingService, Encoder
from localspec.worker.service import Service

_log = logging.getLogger("localspec.worker")


def main() -> int:
    """Load the model that the first command names, and serve it. Returns the exit code."""
    streams.ensure()
    parser = argparse.ArgumentParser(prog="localspec.worker", description=__doc__)
    parser.add_argument("--fd", type=int, required=True, help="an open socket to the supervisor")
    connection = socket.socket(fileno=parser.parse_args().fd)
    process.configure()
    channel = Channel(connection)
    command = channel.receive(math.inf)
    if not isinstance(command, Load):
        print("The first command was not Load.", file=sys.stderr)  # noqa: T201 - no other reader exists
        return EngineError.exit_code
    logging.basicConfig(
        level=command.config.server.log_level.upper(), format="%(levelname)s %(name)s %(message)s"
    )
    return _serve(command, channel)


def _serve(load: Load, channel: Channel) -> int:
    def progressed(stage: str, done: float, why: str = "", /) -> None:
        channel.send(Progress(stage, done, why))

    loaded: Loaded | Encoder
    service: Service | EmbeddingService
    try:
        if embedding.gives(load):
            loaded = embedding.load(load, progressed)
            service = EmbeddingService(loaded, channel, time.monotonic)
        else:
            loaded = assemble.load(load, progressed)
            service = Service(loaded, channel, time.monotonic)
    except LocalSpecError as error:
        return _refuse(channel, error)
    except Exception as error:  # noqa: BLE001 - a bug too should reach the supervisor as an answer
        _log.exception("loading failed")
        return _refuse(channel, LocalSpecError(f"Loading failed: {error!r}."))
    with loaded:
        process.loaded()
        channel.send(loaded.ready)
        try:
            service.run()
        except Exception as error:  # noqa: BLE001 - whatever it is, this process is over
            _log.exception("the engine failed")
            return error.exit_code if isinstance(error, LocalSpecError) else EngineError.exit_code
    return 0


def _refuse(channel: Channel, error: LocalSpecError) -> int:
    """Tell the supervisor why this worker cannot serve. Returns the exit code."""
    channel.send(Refused(error.code, error.message, error.fix))
    channel.send(Goodbye())
    return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
