"""The entry of the installed command. Ctrl-C ends it at any moment, without a traceback."""

from __future__ import annotations

import signal


def main() -> None:
    """Import the command, and run it; Ctrl-C during imports ends the process at once, and quietly.

    Nothing else has been done by then. A SIGINT that was ignored from the start stays ignored.
    """
    hears = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if hears:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from localspec.cli.main import main as command  # noqa: PLC0415  this is the import meant above

    if hears:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    command()
