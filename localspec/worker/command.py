"""The set-up that programs of the worker share: arguments, errors as one sentence, exit codes."""

from __future__ import annotations

import argparse
import fcntl
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from localspec import paths
from localspec.errors import AlreadyRunning, ConfigError, LocalSpecError, PullError
from localspec.worker.process import die_with_parent


def run(
    parser: argparse.ArgumentParser,
    act: Callable[[argparse.Namespace], None],
    interrupted: str = "",
) -> int:
    """Do `act` with the parsed arguments; the exit code is 0, the error's, or 130.

    Args:
        parser: Knows the arguments.
        act: May raise LocalSpecError, OSError of a file that it writes, and KeyboardInterrupt.
        interrupted: Written to stderr after an interrupt.
    """
    die_with_parent()
    try:
        act(parser.parse_args())
    except LocalSpecError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except OSError as error:
        sys.stderr.write(f"{error.filename or 'A file'} cannot be written: {error.strerror}.\n")
        return PullError.exit_code
    except KeyboardInterrupt:
        sys.stderr.write(interrupted)
        return 130
    return 0


def require_torch(what: str) -> None:
    """Raise ConfigError where torch is missing; its message says that `what` needs it."""
    try:
        import torch  # noqa: F401, PLC0415 - an extra
    except ImportError:
        raise ConfigError(
            f"{what} needs torch, which is not installed.", fix="pip install 'localspec[train]'"
        ) from None


def claim(made: Path) -> None:
    """Make the directory of the file `made` and check that a file can be created there.

    Raises OSError now instead of after hours of work.
    """
    paths.make_directory(made.parent, paths.MODELS_MODE)
    probe = made.with_name(f".{made.name}.{os.getpid()}.tmp")
    os.close(paths.create(probe, paths.MODEL_MODE))
    probe.unlink()


@contextmanager
def alone(work: Path, what: str) -> Iterator[None]:
    """Hold the lock of a directory. Raises AlreadyRunning, with `what`, if it is held already."""
    with os.fdopen(paths.create(work / "lock"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunning(f"{what} in {work}.") from None
        yield
