"""Copies text to the clipboard: by the platform's program, and by the terminal, also over ssh.

OSC 52 is xterm's "manipulate selection data": the terminal puts the text into its clipboard.
"""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import sys
from typing import TextIO

MAX_TERMINAL_BYTES = 74_994
"""The longest base64 text in xterm's OSC 52; some terminals silently drop longer ones."""
_SECONDS = 5.0
_PROGRAMS = (
    ("darwin", "", ("pbcopy",)),
    ("linux", "WAYLAND_DISPLAY", ("wl-copy",)),
    ("linux", "DISPLAY", ("xclip", "-selection", "clipboard")),
    ("linux", "DISPLAY", ("xsel", "--clipboard", "--input")),
    ("linux", "WSL_DISTRO_NAME", ("clip.exe",)),
)
"""Platform, the variable that must be set for it, the program that reads the text."""


def copy(text: str, terminal: TextIO) -> list[str]:
    """Copy text by every available way. Returns the names of these ways, [] if there is none."""
    ways = [name for name, worked in (("clipboard", _program(text)),) if worked]
    encoded = base64.b64encode(text.encode())
    if terminal.isatty() and len(encoded) <= MAX_TERMINAL_BYTES:
        terminal.write(f"\x1b]52;c;{encoded.decode()}\x07")
        terminal.flush()
        ways.append("terminal")
    return ways


def _program(text: str) -> bool:
    for platform, variable, command in _PROGRAMS:
        found = shutil.which(command[0])
        if sys.platform != platform or not found or (variable and not os.environ.get(variable)):
            continue
        try:
            done = subprocess.run(  # noqa: S603  a program of the table above
                [found, *command[1:]],
                input=text.encode(),
                timeout=_SECONDS,
                check=False,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return True
    return False
