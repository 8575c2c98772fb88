"""Neovim, and Vim with llama.vim, configured by the docs and by `localspec connect`, on screen."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from clients.conftest import LOCALSPEC, Served, run
from clients.screen import ENTER, ESCAPE, TAB, TMUX, Screen

PAGE = Path(__file__).resolve().parents[2] / "docs" / "editors.md"
LLAMA_VIM = Path(os.environ.get("LOCALSPEC_LLAMA_VIM", Path(sys.prefix) / "llama.vim"))
NVIM = shutil.which("nvim")
VIM = shutil.which("vim")
pytestmark = [
    pytest.mark.clients,
    pytest.mark.skipif(TMUX is None, reason="tmux is not installed"),
]

NEEDED = (0, 12)
"""The first Neovim with inline completions."""


def neovim() -> tuple[int, ...]:
    """The version of the Neovim here."""
    assert NVIM
    said = subprocess.run([NVIM, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"v(\d+)\.(\d+)", said)
    return tuple(map(int, found.groups())) if found else ()


CODE = "def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n    \n"
HERE = "+6"
WHOLE = "return a - b"
"""The result of `ret` there."""


@pytest.fixture
def desk(home: Path, environment: Mapping[str, str]) -> Mapping[str, str]:
    """Environment of an editor of that user; `localspec` is a command in it."""
    commands = home / "bin"
    commands.mkdir(exist_ok=True)
    localspec = commands / "localspec"
    localspec.write_text(f'#!/bin/sh\nexec {" ".join(LOCALSPEC)} "$@"\n')
    localspec.chmod(0o755)
    (home / "sub.py").write_text(CODE)
    return {**environment, "PATH": f"{commands}{os.pathsep}{environment['PATH']}"}


def completed(screen: Screen, beside: str = "") -> None:
    """Type until the rest of the line is shown, take it by Tab, write the file and leave.

    `beside` is what has to be seen with it. A deadline that passes without a word is followed by
    the next letter, as editors expect.
    """
    screen.press("A")
    for letter in WHOLE[: -len("a - b")]:
        screen.type(letter)
        if screen.sees(WHOLE, within_seconds=5):
            break
    assert screen.sees(WHOLE), screen.shown()
    assert screen.sees(beside), screen.shown()
    screen.press(TAB, ESCAPE)
    screen.type(":wq")
    screen.press(ENTER)


def written(home: Path) -> bool:
    """Whether what was taken is in the file."""
    return (home / "sub.py").read_text().endswith(f"    {WHOLE}\n")


@pytest.mark.skipif(NVIM is None, reason="Neovim is not installed")
def test_neovim_shows_ghost_text_and_tab_takes_it(
    served: Served, home: Path, desk: Mapping[str, str]
) -> None:
    """With what stands in docs/editors.md."""
    if neovim() < NEEDED:
        found, needed = (".".join(map(str, one)) for one in (neovim(), NEEDED))
        pytest.skip(f"Neovim {found} has no inline completions, {needed} has")
    (snippet,) = re.findall(r"```lua\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    init = home / ".config" / "nvim" / "init.lua"
    init.parent.mkdir(parents=True, exist_ok=True)
    init.write_text(snippet)
    assert NVIM
    attached = (
        "lua vim.wait(60000, function() return (vim.lsp.get_clients()[1] or {}).initialized end)"
    )
    with Screen(home, desk, NVIM, HERE, "-c", attached, "sub.py") as screen:
        assert screen.sees("def sub")
        completed(screen)
        served.until(lambda: written(home))


@pytest.mark.skipif(VIM is None, reason="Vim is not installed")
@pytest.mark.skipif(
    not LLAMA_VIM.exists(),
    reason=f"Run: git clone https://github.com/ggml-org/llama.vim {LLAMA_VIM}",
)
def test_llama_vim_shows_ghost_text_and_tab_takes_it(
    served: Served, home: Path, desk: Mapping[str, str]
) -> None:
    """With the configuration of `localspec connect`; the daemon's figures stand behind it.

    Leaving Vim cancels the requests that it made ahead.
    """
    run(desk, home, *LOCALSPEC, "connect", "llama.vim", "--write")
    assert VIM
    with Screen(home, desk, VIM, "--cmd", f"set rtp^={LLAMA_VIM}", HERE, "sub.py") as screen:
        screen.press(ENTER)  # to Vim 9.0 it says that 9.1 would be better
        assert screen.sees("def sub")
        completed(screen, beside=" t/s) | g: ")
        served.until(lambda: written(home))
        served.until(lambda: not served.busy())
    run(desk, home, *LOCALSPEC, "connect", "llama.vim", "--restore")
