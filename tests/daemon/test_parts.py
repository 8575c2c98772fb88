"""Images, sounds and files: each dialect refuses them and names their place."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from localspec.config import Config
from localspec.errors import RequestError
from localspec_daemon.api import anthropic, infill, llama_server, ollama, openai, responses
from localspec_daemon.api.dialect import Caller, Dialect
from localspec_daemon.api.parts import NO_IMAGES

TEXT: Any = {"type": "text", "text": "look"}
IMAGE: Any = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
SOUND: Any = {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}}
FILE: Any = {"type": "file", "file": {"file_id": "f"}}
PICTURE: Any = {"type": "image", "source": {"type": "base64", "data": "AA=="}}
DOCUMENT: Any = {"type": "document", "source": {"type": "text", "data": "x"}}
ATTACHED: Any = {"type": "input_file", "file_id": "f"}
SCREEN: Any = {"type": "input_image", "image_url": "data:image/png;base64,AA=="}
INPUT: Any = {"type": "input_text"}


def said(*parts: Any, role: str = "user") -> Any:
    """Returns a conversation whose second turn has these parts."""
    return {"messages": [{"role": "user", "content": "hi"}, {"role": role, "content": [*parts]}]}


def result(*parts: Any) -> Any:
    """Returns a conversation with a tool's result, as Anthropic's clients send it."""
    return said({"type": "tool_result", "tool_use_id": "t", "content": [*parts]})


def item(**fields: Any) -> Any:
    """Returns an input of Responses with one item."""
    return {"input": [fields]}


MARKED: Any = {"prompt_string": "look: <__media__>", "multimodal_data": ["AA=="]}

CASES: list[tuple[Dialect, Any, str]] = [
    *((openai.CHAT, said(TEXT, part), "messages[1].content[1]") for part in (IMAGE, SOUND, FILE)),
    (openai.CHAT, said(SOUND, role="tool"), "messages[1].content[0]"),
    *(
        (responses.RESPONSES, item(role="user", content=[part]), "input[0].content[0]")
        for part in (SCREEN, ATTACHED)
    ),
    (
        responses.RESPONSES,
        item(type="function_call_output", call_id="c", output=[ATTACHED]),
        "input[0].output[0]",
    ),
    *((anthropic.MESSAGES, said(TEXT, p), "messages[1].content[1]") for p in (PICTURE, DOCUMENT)),
    (anthropic.MESSAGES, result(TEXT, DOCUMENT), "messages[1].content[0].content[1]"),
    (anthropic.MESSAGES, {"system": [TEXT, PICTURE], **said(TEXT)}, "system[1]"),
    (anthropic.COUNT, result(DOCUMENT), "messages[1].content[0].content[0]"),
    (ollama.CHAT, {"messages": [{"role": "user", "images": ["AA=="]}]}, "messages[0].images"),
    (ollama.GENERATE, {"prompt": "look", "images": ["AA=="]}, "images"),
    (llama_server.COMPLETION, {"prompt": MARKED}, "prompt"),
    (llama_server.COMPLETION, {"prompt": ["look", MARKED]}, "prompt[1]"),
    (llama_server.COMPLETION, {"prompt": "look: [img-1]", "image_data": [{"id": 1}]}, "image_data"),
    (infill.INFILL, {"input_prefix": "x", "image_data": [{"id": 1}]}, "image_data"),
]  # fmt: skip


@pytest.mark.parametrize(("dialect", "body", "place"), CASES)
def test_what_is_no_text_is_refused_by_its_place(dialect: Dialect, body: Any, place: str) -> None:
    """The place is in the error's field and sentence; Ollama's clients show only the sentence."""
    sent = msgspec.json.encode({"model": "alpha", "max_tokens": 9, **body})
    with pytest.raises(RequestError) as caught:
        dialect.read(sent, Config(), Caller("uid:1"))
    assert caught.value.status == 400
    assert caught.value.param == place
    assert place in str(caught.value)


PNG = "data:image/png;base64,iVBORw0KGgo="
PICTURES: list[tuple[Dialect, Any, str]] = [
    (openai.CHAT, said(TEXT, IMAGE), "messages[1].content[1]"),
    (
        openai.CHAT,
        said({"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/a.png"}}),
        "messages[1].content[0]",
    ),
    (
        openai.CHAT,
        said({"type": "file", "file": {"filename": "a.png", "file_data": PNG}}),
        "messages[1].content[0]",
    ),
    (
        responses.RESPONSES,
        item(role="user", content=[{"type": "input_file", "filename": "a", "file_data": PNG}]),
        "input[0].content[0]",
    ),
    (responses.RESPONSES, item(role="user", content=[SCREEN]), "input[0].content[0]"),
    (anthropic.MESSAGES, said(PICTURE), "messages[1].content[0]"),
    (
        anthropic.MESSAGES,
        said({"type": "image", "source": {"type": "url", "url": "http://127.0.0.1:1/a.png"}}),
        "messages[1].content[0]",
    ),
    (
        anthropic.MESSAGES,
        said({"type": "document", "source": {"type": "base64", "media_type": "image/png"}}),
        "messages[1].content[0]",
    ),
    (anthropic.MESSAGES, {"system": [PICTURE], **said(TEXT)}, "system[0]"),
    (ollama.CHAT, {"messages": [{"role": "user", "images": ["AA=="]}]}, "messages[0].images"),
    (ollama.GENERATE, {"prompt": "look", "images": ["AA=="]}, "images"),
    (llama_server.COMPLETION, {"prompt": MARKED}, "prompt"),
]


@pytest.mark.parametrize(("dialect", "body", "place"), PICTURES)
def test_an_image_is_refused_by_what_is_missing(dialect: Dialect, body: Any, place: str) -> None:
    """Every kind of image part gets the reason and the fix; no address is fetched."""
    sent = msgspec.json.encode({"model": "alpha", "max_tokens": 9, **body})
    with pytest.raises(RequestError) as caught:
        dialect.read(sent, Config(), Caller("uid:1"))
    assert caught.value.param == place
    assert NO_IMAGES in caught.value.message
    assert caught.value.message.startswith(place)
    assert caught.value.fix


def test_other_files_are_not_called_images() -> None:
    """The error names their own kind."""
    for dialect, body in (
        (
            openai.CHAT,
            said({"type": "file", "file": {"file_data": "data:application/pdf;base64,A"}}),
        ),
        (anthropic.MESSAGES, said(DOCUMENT)),
        (openai.CHAT, said(SOUND)),
    ):
        sent = msgspec.json.encode({"model": "alpha", "max_tokens": 9, **body})
        with pytest.raises(RequestError, match="only text can be read"):
            dialect.read(sent, Config(), Caller("uid:1"))


def test_a_tool_that_was_found_is_named_in_words() -> None:
    """Claude Code's tool search returns references; the tools themselves are in `tools`."""
    found = [{"type": "tool_reference", "tool_name": name} for name in ("WebFetch", "Cron")]
    sent = msgspec.json.encode({"model": "alpha", "max_tokens": 9, **result(*found)})
    (one,) = anthropic.MESSAGES.read(sent, Config(), Caller("uid:1")).generates
    assert one.messages
    assert one.messages[-1].role == "tool"
    assert one.messages[-1].content.splitlines() == ["Found: WebFetch", "Found: Cron"]


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        (openai.CHAT, said(TEXT, IMAGE, role="tool")),
        (
            responses.RESPONSES,
            item(type="function_call_output", call_id="c", output=[TEXT | INPUT, SCREEN]),
        ),
        (anthropic.MESSAGES, result(TEXT, PICTURE)),
    ],
)
def test_an_image_that_a_tool_gave_is_told_and_ends_no_conversation(
    dialect: Dialect, body: Any
) -> None:
    """A note replaces it, because an agent sends it again with every turn."""
    sent = msgspec.json.encode({"model": "alpha", "max_tokens": 9, **body})
    (one,) = dialect.read(sent, Config(), Caller("uid:1")).generates
    assert one.messages
    assert one.messages[-1].role == "tool"
    assert one.messages[-1].content == "look[An image, which this model cannot see.]"


def test_fields_for_images_that_hold_none_are_fine() -> None:
    """Some clients always send these fields, empty."""
    for dialect, body in (
        (llama_server.COMPLETION, {"prompt": "x", "image_data": []}),
        (ollama.CHAT, {"messages": [{"role": "user", "content": "x", "images": []}]}),
        (ollama.GENERATE, {"prompt": "x", "images": None}),
    ):
        sent = msgspec.json.encode({"model": "alpha", **body})
        assert dialect.read(sent, Config(), Caller("uid:1")).generates
