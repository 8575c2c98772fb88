"""Images end to end: clients' libraries, the socket, the worker, a projector, llama.cpp."""

from __future__ import annotations

import asyncio
import base64
import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import ollama
import openai
import projectors
import pytest
import tiny
from PIL import Image

from localspec.chats.transcript import Conversation
from localspec.cli import pictures
from localspec.client import Client, End
from localspec.errors import RequestError
from localspec_daemon.supervisor.worker import COMMAND

ROWS = 81
"""Of an image by the tiny projector."""


def file_of(seed: int, kind: str = "PNG") -> bytes:
    """A picture's file."""
    made = io.BytesIO()
    Image.frombytes("RGB", (40, 40), projectors.pixels(seed)).save(made, kind)
    return made.getvalue()


def data_url(data: bytes) -> str:
    """The file as clients send it."""
    return "data:image/png;base64," + base64.b64encode(data).decode()


def shown(data: bytes, text: str = "what is this?") -> list[Any]:
    """Messages of OpenAI's chats with an image."""
    image = {"type": "image_url", "image_url": {"url": data_url(data)}}
    return [{"role": "user", "content": [image, {"type": "text", "text": text}]}]


@pytest.fixture
def seeing(harness: Any, daemon: Any) -> Callable[[Callable[[], None]], None]:
    """Runs a scene beside a daemon whose "alpha" reads images and whose "blind" does not."""
    (harness.models / "alpha.gguf").unlink()
    tiny.build(harness.models / "alpha.gguf")
    tiny.build(harness.models / "blind.gguf", seed=3)
    projectors.build(harness.models / "mmproj-alpha.gguf")
    harness.configure(engine={"context": 512, "slots": 2, "exactness": "strict"})

    def run(scene: Callable[[], None]) -> None:
        async def served() -> None:
            async with daemon(harness, COMMAND):
                await asyncio.to_thread(scene)

        asyncio.run(served())

    return run


def http(harness: Any) -> httpx2.Client:
    """A bare client on the socket."""
    transport = httpx2.HTTPTransport(uds=str(harness.socket))
    return httpx2.Client(transport=transport, base_url="http://localspec", timeout=120)


def chat(client: Any, data: bytes, **fields: Any) -> Any:
    """The body of an answer to a question about an image."""
    body = {"model": "alpha", "messages": shown(data), "max_tokens": 12, "temperature": 0}
    return client.post("/v1/chat/completions", json=body | fields)


def by_openai(harness: Any) -> str:
    """The answer by OpenAI's own library, by Responses."""
    transport = httpx2.HTTPTransport(uds=str(harness.socket))
    parts: Any = [
        {"type": "input_image", "image_url": data_url(file_of(1)), "detail": "auto"},
        {"type": "input_text", "text": "what is this?"},
    ]
    with openai.OpenAI(
        base_url="http://localspec/v1",
        api_key="none",
        max_retries=0,
        http_client=openai.DefaultHttpxClient(transport=transport),
    ) as client:
        return client.responses.create(
            model="alpha",
            max_output_tokens=12,
            temperature=0,
            input=[{"role": "user", "content": parts}],
        ).output_text


def by_anthropic(harness: Any) -> str:
    """The answer by Anthropic's own library."""
    transport = httpx2.HTTPTransport(uds=str(harness.socket))
    data = base64.b64encode(file_of(1)).decode()
    asked: Any = [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}},
        {"type": "text", "text": "what is this?"},
    ]
    with anthropic.Anthropic(
        base_url="http://localspec",
        api_key="none",
        max_retries=0,
        http_client=anthropic.DefaultHttpxClient(transport=transport),
    ) as client:
        message = client.messages.create(
            model="alpha",
            max_tokens=12,
            messages=[{"role": "user", "content": asked}],
            extra_body={"temperature": 0},
        )
    return "".join(getattr(part, "text", "") for part in message.content)


def test_three_dialects_show_the_same_image(harness: Any, seeing: Any) -> None:
    """The same answer by each client's own library, and another one about another image."""
    spelled = base64.b64encode(file_of(1)).decode()

    def scene() -> None:
        with http(harness) as plain:
            first = chat(plain, file_of(1)).json()
            assert first["usage"]["prompt_tokens"] > ROWS
            text = first["choices"][0]["message"]["content"]
            other = chat(plain, file_of(2)).json()["choices"][0]["message"]["content"]
            assert other != text
            models = plain.get("/v1/models").json()["data"]
            assert [model["id"] for model in models] == ["alpha", "blind"]
        assert by_openai(harness) == by_anthropic(harness) == text
        with http(harness) as plain:
            turn = {"role": "user", "content": "what is this?", "images": [spelled]}
            body = {"model": "alpha", "stream": False, "messages": [turn]}
            body["options"] = {"temperature": 0, "num_predict": 12}
            assert plain.post("/api/chat", json=body).json()["message"]["content"] == text
            more = {"model": "alpha", "stream": False, "prompt": "what is this?"}
            more |= {"images": [spelled], "options": body["options"]}
            assert plain.post("/api/generate", json=more).json()["response"] == text

    seeing(scene)


def test_drafts_and_reuse_behind_an_image_change_nothing(harness: Any, seeing: Any) -> None:
    """The next turn of a conversation reads its last message alone, and drafts are the same."""

    def scene() -> None:
        with http(harness) as client:
            off = chat(client, file_of(1), speculation={"mode": "off"}).json()
            text = off["choices"][0]["message"]["content"]
            told = {"type": "content", "content": text}
            on = chat(client, file_of(1), speculation={"mode": "always"}, prediction=told).json()
            assert on["choices"][0]["message"]["content"] == text
            assert on["speculation"]["drafted"] > 0
            details = on["usage"]["prompt_tokens_details"]
            assert details["cached_tokens"] == on["usage"]["prompt_tokens"] - 1
            edited = shown(file_of(1), "what else?")
            again = chat(client, file_of(1), messages=edited).json()
            assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > ROWS
            fresh = chat(client, file_of(1), messages=edited, cache_prompt=False).json()
            assert again["choices"] == fresh["choices"]
            other = chat(client, file_of(2)).json()
            assert other["usage"]["prompt_tokens_details"]["cached_tokens"] < ROWS

    seeing(scene)


def test_a_saved_slot_has_its_images(harness: Any, seeing: Any) -> None:
    """Also those that take fewer positions than rows: what follows is what would have followed."""
    projectors.reader(harness.models / "alpha.gguf")
    projectors.build(harness.models / "mmproj-alpha.gguf", kind=projectors.QWEN)
    wide = io.BytesIO()
    Image.frombytes("RGB", (160, 112), projectors.pixels(1, 160, 112)).save(wide, "PNG")
    edited = shown(wide.getvalue(), "what else?")

    def scene() -> None:
        with http(harness) as client:
            chat(client, wide.getvalue(), id_slot=1)
            saved = client.post("/slots/1?action=save", json={"filename": "one"}).json()
            assert saved["n_saved"] > 70
            assert client.post("/slots/1?action=erase", json={}).json()["n_erased"] > 70
            restored = client.post("/slots/1?action=restore", json={"filename": "one"}).json()
            assert restored["n_restored"] == saved["n_saved"]
            again = chat(client, b"", id_slot=1, messages=edited).json()
            assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > 70
            fresh = chat(client, b"", messages=edited, cache_prompt=False).json()
            assert again["choices"] == fresh["choices"]

    seeing(scene)


def png(width: int, height: int, *, body: bytes = b"") -> bytes:
    """A PNG with these dimensions in its header."""

    def chunk(name: bytes, data: bytes) -> bytes:
        check = zlib.crc32(name + data)
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", check)

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
    )


HOSTILE = {
    "empty": b"",
    "text": b"no image at all" * 100,
    "a truncated PNG": file_of(1)[:-40],
    "a truncated JPEG": file_of(1, "JPEG")[:-40],
    "a truncated WebP": file_of(1, "WEBP")[:-40],
    "a huge PNG": png(2**31 - 1, 2**31 - 1),
    "a large PNG": png(20_000, 20_000, body=zlib.compress(bytes(1000))),
    "nothing in it": png(8, 8, body=zlib.compress(b"")),
    "no side": png(0, 8),
    "a sound": b"RIFF\x24\0\0\0WAVEfmt " + bytes(40),
    "a drawing": b'<svg xmlns="http://www.w3.org/2000/svg"/>',
}


def test_hostile_images_cost_one_request(harness: Any, seeing: Any) -> None:
    """Each is 400 with its place and a sentence; the worker answers on."""

    def scene() -> None:
        with http(harness) as client:
            before = client.get("/localspec/status").json()
            for what, data in HOSTILE.items():
                answer = chat(client, data)
                assert answer.status_code == 400, what
                error = answer.json()["error"]
                assert error["param"] == "messages[0].content[0]", what
                assert len(error["message"]) < 300
            assert chat(client, file_of(1)).status_code == 200
            many = shown(file_of(1))
            many[0]["content"] *= 40
            assert chat(client, b"", messages=many).status_code == 400
            assert before is not None

    seeing(scene)


@pytest.mark.parametrize("kind", ["JPEG", "WEBP", "GIF", "BMP"])
def test_pictures_of_every_kind_are_read(harness: Any, seeing: Any, kind: str) -> None:
    """Also grey ones and those that one sees through."""

    def scene() -> None:
        with http(harness) as client:
            assert chat(client, file_of(1, kind)).status_code == 200
            made = io.BytesIO()
            Image.new("LA" if kind != "JPEG" else "L", (3, 200)).save(made, "PNG")
            assert chat(client, made.getvalue()).status_code == 200

    seeing(scene)


def test_a_model_without_a_projector_says_so(harness: Any, seeing: Any) -> None:
    """An image that a user attached is refused; one that a tool gave becomes a note."""

    def scene() -> None:
        with http(harness) as client:
            answer = chat(client, file_of(1), model="blind")
            assert answer.status_code == 400
            assert "projector" in answer.json()["error"]["message"]
            call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            given = [
                {"role": "user", "content": "look"},
                {"role": "assistant", "content": "", "tool_calls": [call]},
                {**shown(file_of(1))[0], "role": "tool", "tool_call_id": "c"},
            ]
            assert chat(client, b"", model="blind", messages=given).status_code == 200
            assert chat(client, b"", model="alpha", messages=given).status_code == 200

    seeing(scene)


def test_a_picture_of_the_chat_is_seen_or_the_reason_said(
    harness: Any, seeing: Any, tmp_path: Path
) -> None:
    """`/image` and `chat -f` send it as any client does."""
    (tmp_path / "cat.png").write_bytes(file_of(1))
    conversation = Conversation(params={"max_tokens": 4})
    conversation.say("user", f"What is {pictures.attach(conversation, tmp_path / 'cat.png')}?")

    def scene() -> None:
        client = Client(harness.socket)
        events = [*client.chat(conversation.messages(), model="alpha", **conversation.params)]
        [ended] = [one for one in events if isinstance(one, End)]
        assert ended.usage["prompt_tokens"] > ROWS
        with pytest.raises(RequestError, match="there is no projector for it") as refused:
            [*client.chat(conversation.messages(), model="blind")]
        assert refused.value.param == "messages[0].content[1]"

    seeing(scene)


def test_a_projector_that_does_not_fit_costs_images_alone(harness: Any, seeing: Any) -> None:
    """Of another width, or torn: the model answers, and an image is refused with the reason."""
    projectors.build(harness.models / "mmproj-blind.gguf", width=128)
    torn = projectors.build(harness.models / "mmproj-alpha.gguf")
    torn.write_bytes(torn.read_bytes()[:-5000])

    def scene() -> None:
        with http(harness) as client:
            for model, why in (("blind", "128"), ("alpha", "mmproj-alpha.gguf")):
                text = [{"role": "user", "content": "hello"}]
                assert chat(client, b"", model=model, messages=text).status_code == 200
                answer = chat(client, file_of(1), model=model)
                assert answer.status_code == 400
                assert why in answer.json()["error"]["message"]

    seeing(scene)


def test_a_projector_that_ends_the_worker_is_left_out(harness: Any, seeing: Any) -> None:
    """llama.cpp looks at a tensor that this file does not have: the next worker loads without."""
    projectors.build(harness.models / "mmproj-alpha.gguf", torn=True)

    def scene() -> None:
        with http(harness) as client:
            text = [{"role": "user", "content": "hello"}]
            assert chat(client, b"", messages=text).status_code == 200
            answer = chat(client, file_of(1))
            assert answer.status_code == 400
            assert "ended the worker" in answer.json()["error"]["message"]

    seeing(scene)


def test_ollamas_library_sends_images(harness: Any, seeing: Any) -> None:
    """Its client reads files itself; show tells that the model sees."""

    def scene() -> None:
        message = ollama.Message(role="user", content="hm", images=[ollama.Image(value=file_of(1))])
        body = {"model": "alpha", "stream": False, "messages": [message.model_dump()]}
        body["options"] = {"num_predict": 4}
        with http(harness) as client:
            assert client.post("/api/chat", json=body).status_code == 200

    seeing(scene)
