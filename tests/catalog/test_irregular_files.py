"""Names that lead to no file: whoever looks among the models waits for no writer of a FIFO."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny

from localspec.catalog import adapters, draft_heads, joining, projectors, pull, templates
from localspec.catalog.entries import Entry
from localspec.catalog.registry import Registry
from localspec.errors import LocalSpecError


def _pull(pipe: Path) -> object:
    entry = Entry("m", "M", "MIT", "target", pipe.name, 1, "0" * 64, source=[])
    return pull.pull(entry, pipe.parent, lambda _: None)


LOOKS: dict[str, Callable[[Path], object]] = {
    "head": draft_heads.is_head,
    "adapter": adapters.is_adapter,
    "adapters": lambda pipe: adapters.given(["m"], {"m": {pipe.name: 1.0}}, pipe.parent, pipe, []),
    "template": lambda pipe: templates.given(["m"], {"m": pipe.name}, pipe.parent),
    "projector": lambda pipe: projectors.find(pipe.with_name("model.gguf"), pipe.parent),
    "parts": lambda pipe: joining.join([pipe, pipe], pipe.with_name("made.gguf"), lambda _: None),
    "list": lambda pipe: Registry(pipe.parent).models(),
    "heads": lambda pipe: Registry(pipe.parent).head(pipe.with_name("model.gguf")),
    "pull": _pull,
}


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("name", ["pipe.gguf", "mmproj-pipe.gguf", "pipe-00001-of-00002.gguf"])
def test_no_look_waits_for_a_writer(tmp_path: Path, look: str, name: str) -> None:
    """It ends, with an error at most."""
    tiny.build(tmp_path / "model.gguf", seed=0)
    pipe = tmp_path / name
    os.mkfifo(pipe)
    ended = threading.Event()

    def work() -> None:
        with contextlib.suppress(LocalSpecError, OSError):
            LOOKS[look](pipe)
        ended.set()

    threading.Thread(target=work, daemon=True).start()
    without_writer = ended.wait(20)
    os.close(os.open(pipe, os.O_RDWR))  # which lets it go on, so that this fails and does not hang
    assert without_writer
