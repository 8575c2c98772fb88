"""Images, sounds and files: each dialect reads the first, and names the place of the others."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

from localspec.config import Config
from localspec.errors import RequestError
from localspec_daemon.api import anthropic, infill, llama_server, ollama, openai, responses
from localspec_daemon.api.dialect import Caller, Dialect

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
    *((openai.CHAT, said(TEXT, part), "messages[1].content[1]") for part in (SOUND, FILE)),
    (openai.CHAT, said(SOUND, role="tool"), "messages[1].content[0]"),
    (responses.RESPONSES, item(role="user", content=[ATTACHED]), "input[0].content[0]"),
    (
        responses.RESPONSES,
        item(type="function_call_output", call_id="c", output=[ATTACHED]),
        "input[0].output[0]",
    ),
    (anthropic.MESSAGES, said(TEXT, DOCUMENT), "messages[1].content[1]"),
    (anthropic.MESSAGES, result(TEXT, DOCUMENT), "messages[1].content[0].content[1]"),
    (anthropic.MESSAGES, {"system": [TEXT, PICTURE], **said(TEXT)}, "system[1]"),
    (anthropic.COUNT, result(DOCUMENT), "messages[1].content[0].content[0]"),
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


ADDRESS = "http://127.0.0.1:1/a.png"
URL: Any = {"type": "image_url", "image_url": {"url": ADDRESS}}
REMOTE: Any = {"type": "image", "source": {"type": "url", "url": ADDRESS}}
REFUSED: list[tuple[Dialect, Any, str, str]] = [
    (openai.CHAT, said(TEXT, URL), "messages[1].content[1]", "fetches none"),
    (openai.CHAT, said(URL, role="tool"), "messages[1].content[0]", "fetches none"),
    (
        openai.CHAT,
        said({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}),
        "messages[1].content[0]",
        "fetches none",
    ),
    (openai.CHAT, said({"type": "image_url"}), "messages[1].content[0]", "without data"),
    (
        openai.CHAT,
        said({"type": "image_url", "image_url": {"url": "data:image/png;base64,%%"}}),
        "messages[1].content[0]",
        "not base64",
    ),
    (
        openai.CHAT,
        said({"type": "image_url", "image_url": {"url": "data:image/svg+xml,%3Csvg/%3E"}}),
        "messages[1].content[0]",
        "not base64",
    ),
    (
        openai.CHAT,
        said(IMAGE, role="assistant"),
        "messages[1].content[0]",
        "only messages",
    ),
    (
        responses.RESPONSES,
        item(role="user", content=[{"type": "input_image", "image_url": ADDRESS}]),
        "input[0].content[0]",
        "fetches none",
    ),
    (anthropic.MESSAGES, said(REMOTE), "messages[1].content[0]", "fetches none"),
    (anthropic.MESSAGES, result(REMOTE), "messages[1].content[0].content[0]", "fetches none"),
    (
        anthropic.MESSAGES,
        {"system": [PICTURE], **said(TEXT)},
        "system[0]",
        "only messages",
    ),
    (
        ollama.CHAT,
        {"messages": [{"role": "user", "images": [ADDRESS]}]},
        "messages[0].images[0]",
        "fetches none",
    ),
    (ollama.GENERATE, {"prompt": "look", "images": [ADDRESS]}, "images[0]", "fetches none"),
    (ollama.GENERATE, {"prompt": "x", "raw": True, "images": ["AA=="]}, "images", "only messages"),
    (llama_server.COMPLETION, {"prompt": MARKED}, "prompt", "takes no images"),
]


@pytest.mark.parametrize(("dialect", "body", "place", "why"), REFUSED)
def test_an_image_that_cannot_be_taken_is_refused_by_its_place(
    dialect: Dialect, body: Any, place: str, why: str
) -> None:
    """Every kind of image part gets the reason and the fix; no address is fetched."""
    sent = msgspec.json.encode({"model": "alpha", "max_tokens": 9, **body})
    with pytest.raises(RequestError, match=why) as caught:
        dialect.read(sent, Config(), Caller("uid:1"))
    assert caught.value.param == place
    assert caught.value.message.startswith(place)
    assert caught.value.fix


PNG = b"\x89PNG\r\n\x1a\n"
SPELLED = base64.b64encode(PNG).decode()
DATA = f"data:image/png;base64,{SPELLED}"
TAKEN: list[tuple[Dialect, Any]] = [
    (openai.CHAT, said(TEXT, {"type": "image_url", "image_url": {"url": DATA}})),
    (openai.CHAT, said(TEXT, {"type": "image_url", "image_url": DATA})),
    (openai.CHAT, said(TEXT, {"type": "file", "file": {"filename": "a.png", "file_data": DATA}})),
    (openai.CHAT, said(TEXT, {"type": "image_url", "image_url": {"url": DATA}}, role="tool")),
    (
        responses.RESPONSES,
        item(role="user", content=[TEXT | INPUT, {"type": "input_image", "image_url": DATA}]),
    ),
    (
        responses.RESPONSES,
        item(role="user", content=[TEXT | INPUT, {"type": "input_file", "file_data": DATA}]),
    ),
    (
        responses.RESPONSES,
        item(
            type="function_call_output",
            call_id="c",
            output=[TEXT | INPUT, {"type": "input_image", "image_url": DATA}],
        ),
    ),
    *(
        (
            anthropic.MESSAGES,
            told(
                TEXT,
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": SPELLED},
                },
            ),
        )
        for told in (said, result)
    ),
    (ollama.CHAT, {"messages": [{"role": "user", "content": "look", "images": [SPELLED]}]}),
    (ollama.GENERATE, {"prompt": "look", "images": [SPELLED]}),
]


@pytest.mark.parametrize(("dialect", "body"), TAKEN)
def test_every_dialect_gives_the_same_image(dialect: Dialect, body: Any) -> None:
    """Its data is the file's bytes, and its mark stands in the text, where the part was."""
    sent = msgspec.json.encode({"model": "alpha", "max_tokens": 9, **body})
    (one,) = dialect.read(sent, Config(), Caller("uid:1")).generates
    assert one.messages
    message = one.messages[-1]
    [image] = message.images
    assert image.data == PNG
    assert image.param
    mark = image.mark
    assert message.content == (
        f"{mark}look" if dialect.read.__module__.endswith("ollama") else f"look{mark}"
    )


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
        with pytest.raises(RequestError, match="only text and images can be read"):
            dialect.read(sent, Config(), Caller("uid:1"))


def test_a_tool_that_was_found_is_named_in_words() -> None:
    """Claude Code's tool search returns references; the tools themselves are in `tools`."""
    found = [{"type": "tool_reference", "tool_name": name} for name in ("WebFetch", "Cron")]
    sent = msgspec.json.encode({"model": "alpha", "max_tokens": 9, **result(*found)})
    (one,) = anthropic.MESSAGES.read(sent, Config(), Caller("uid:1")).generates
    assert one.messages
    assert one.messages[-1].role == "tool"
    assert one.messages[-1].content.splitlines() == ["Found: WebFetch", "Found: Cron"]


def test_fields_for_images_that_hold_none_are_fine() -> None:
    """Some clients always send these fields, empty."""
    for dialect, body in (
        (llama_server.COMPLETION, {"prompt": "x", "image_data": []}),
        (ollama.CHAT, {"messages": [{"role": "user", "content": "x", "images": []}]}),
        (ollama.GENERATE, {"prompt": "x", "images": None}),
    ):
        sent = msgspec.json.encode({"model": "alpha", **body})
        assert dialect.read(sent, Config(), Caller("uid:1")).generates
