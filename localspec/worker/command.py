"""The set-up that programs of the worker share: arguments, errors as one sentence, exit codes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from localspec.errors import LocalSpecError, PullError


def run(
    parser: argparse.ArgumentParser,
    act: Callable[[argparse.Namespace], None],
    interrupted: str = "",
) -> int:
    """Do `act` with the parsed arguments; the exit code is 0, the error's, or 130.

    Args:
        parser: Knows the arguments.
        act: May raise LocalSpecError, OSError of a file that it writes, and KeyboardInterrupt.
        interrupted: Said after an interrupt.
    """
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
