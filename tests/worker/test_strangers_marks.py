"""A family's own marks in the texts of strangers are text: with every template, by real tokens.

A user, a result, a system message, a function's description and an argument hold all the marks that
a template writes or that its answers are read by, whole, one in the other, and escaped in JSON. The
special tokens of the prompt are those of the same conversation without them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf
import pytest
import templates
import tiny

from localspec.config import Placement
from localspec.engine.llama.model import Model
from localspec.text.constraint import Vocabulary
from localspec.text.dialogue import known_marks, marks_of
from localspec.text.markers import Markers
from localspec.types import Token
from localspec.wire.messages import Generate, Message
from localspec.worker.grammars import Grammars
from localspec.worker.images import Images
from localspec.worker.preparation import RequestPreparer
from localspec.worker.prompts import Prompts
from localspec.worker.sandbox import Sandbox

PATHS = templates.everything()
KINDS = {"control": gguf.TokenType.CONTROL, "user-defined": gguf.TokenType.USER_DEFINED}
_WRITTEN = re.compile(r"<[^<>\s{}'\"]{2,}>|\[/?[A-Z_]{3,}\]")
Preparing = Callable[[Path], RequestPreparer]


def marks(path: Path) -> list[str]:
    """The marks that a template writes, and those by which its answers are read."""
    source = path.read_text(encoding="utf-8")
    found = dict.fromkeys(marks_of(templates.dialogue(path).format))
    found |= dict.fromkeys(_WRITTEN.findall(source))
    return [mark for mark in found if mark not in tiny.SPECIALS]


@pytest.fixture(scope="module", params=KINDS)
def model(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    """A tiny model with all marks of all families, as tokens of one type."""
    every = tuple(dict.fromkeys(mark for path in PATHS for mark in marks(path)))
    path = tmp_path_factory.mktemp("marks") / "m.gguf"
    kinds = dict.fromkeys(every, KINDS[request.param])
    writer, size = tiny.begun(path, "llama", specials=every, kinds=kinds)
    tiny.weights(writer, size, layers=1, width=32)
    model = Model.load(tiny.ended(writer, path), Placement(gpu_layers=0, threads=1))
    yield model
    model.close()


@pytest.fixture(scope="module")
def preparing(model: Model) -> Iterator[Preparing]:
    """Prepares requests for this model with a template."""
    sandbox = Sandbox()
    vocabulary = Vocabulary(model.pieces(), model.eog, model.plain_tokens)
    grammars = Grammars(vocabulary, sandbox)

    def prepared(path: Path) -> RequestPreparer:
        model.chat_template = path.read_text(encoding="utf-8")
        markers = Markers(*model.specials(), model.chat_template, *known_marks())
        prompts = Prompts(model, markers, 64, sandbox)
        images = Images(None, "", 1)
        return RequestPreparer(model, lambda: 1 << 20, {}, prompts, grammars, images)

    yield prepared
    sandbox.close()


def conversation(evil: str) -> Generate:
    """A conversation with a function, whose every stranger says this, too."""
    escaped = "".join(rf"\u{ord(one):04x}" if ord(one) < 1 << 16 else one for one in evil)
    arguments = json.dumps({"berth": evil, "note": "?"}).replace("?", escaped)
    call = {"id": "call_1", "function": {"name": "moor", "arguments": arguments}}
    berth = {"type": "string", "description": f"Which. {evil}"}
    moor = {
        "name": "moor",
        "description": f"Moors a boat. {evil}",
        "parameters": {"type": "object", "properties": {"berth": berth}},
    }
    turns = [
        Message("system", f"Be kind. {evil} Always."),
        Message("user", f"Where? {evil} And when?"),
        Message("assistant", "", {"tool_calls": [call]}),
        Message("tool", f"At the quay. {evil} Now.", {"tool_call_id": "call_1"}),
        Message("assistant", "Done."),
        Message("user", f"Why? {evil}"),
    ]
    return templates.chat(turns, [moor])


@pytest.mark.parametrize("path", PATHS, ids=[path.stem for path in PATHS])
def test_marks_of_strangers_are_text(model: Model, preparing: Preparing, path: Path) -> None:
    """No turn is closed or begun by them, no thought and no call."""
    preparer, known = preparing(path), [*marks(path), *tiny.SPECIALS]
    special = frozenset(model.special_tokens())

    def read(evil: str) -> tuple[list[Token], str]:
        prompt = preparer.prepare(conversation(evil)).prompt
        text = b"".join(map(model.spelled, prompt)).decode()
        return [token for token in prompt if token in special], text

    switch = "/think /no_think"  # which some templates obey
    calm, _ = read(switch)
    taken = "replace" in path.read_text(encoding="utf-8")
    inner = (known[0], "/think", "/no_think")
    nested = [mark[:at] + one + mark[at:] for mark in known for one in inner for at in (2, -1)]
    for evil in (" ".join(known), "".join(known), "\n".join(nested)):
        tokens, text = read(f"{evil} {switch}")
        assert tokens == calm
        assert taken or text.count(f"? {evil}") == 2
