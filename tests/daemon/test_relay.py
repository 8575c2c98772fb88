"""The relay's pure functions: streams cut anywhere, errors of any shape."""

from __future__ import annotations

import contextlib
import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.config import Config, Upstream
from localspec.errors import LocalSpecError, UpstreamFailed
from localspec_daemon.api.relay import (
    MAX_ANSWER_BYTES,
    MAX_LINE_BYTES,
    Chunks,
    Route,
    body,
    refusal,
    route,
    whole,
)

RACK = Upstream("http://10.0.0.3:8000/v1", ("big", "bigger"))
TO = Route("big", "rack", RACK)

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text().filter(lambda key: key != "error"), values, max_size=4)


def in_pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    """Returns `data` cut at these places."""
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[begin:end] for begin, end in itertools.pairwise(edges)]


def test_only_what_is_named_has_a_route() -> None:
    """Names match exactly: no prefix, no other case."""
    config = Config(upstream={"rack": RACK, "other": Upstream("http://h/v1", ("third",))})
    assert route(config, "big") == TO
    assert (found := route(config, "third"))
    assert found.name == "other"
    for name in ("", "bi", "BIG", "big ", "fourth"):
        assert route(config, name) is None


@given(st.lists(objects), st.lists(st.integers(0, 10**6)), st.sampled_from(["\n", "\r\n"]))
def test_a_stream_is_the_same_in_whatever_pieces_it_comes(
    sent: list[Any], cuts: list[int], newline: str
) -> None:
    """Comments, event names and blank lines between chunks are skipped."""
    lines = [": ping", "event: chunk", *(f"data: {json.dumps(each)}" for each in sent)]
    data = "".join(line + newline * 2 for line in [*lines, "data: [DONE]"]).encode()
    chunks = Chunks(TO)
    got = [chunk for piece in in_pieces(data, cuts) for chunk in chunks.feed(piece)]
    assert [json.loads(chunk) for chunk in got] == sent
    assert all(b"\n" not in chunk for chunk in got)
    chunks.end()


def test_a_stream_that_does_not_say_that_it_is_done_has_broken_off() -> None:
    """The connection's end alone does not complete an answer."""
    chunks = Chunks(TO)
    assert list(chunks.feed(b'data: {"a":1}\n\ndata: {"b"')) == [b'{"a":1}']
    with pytest.raises(UpstreamFailed, match="broke off"):
        chunks.end()


def test_an_error_in_a_stream_is_an_error() -> None:
    """llama-server and vLLM send errors after the first chunk; their message is passed on."""
    for line in (b'data: {"error":{"message":"out of memory"}}\n', b'data: {"error":"out"}\n'):
        with pytest.raises(UpstreamFailed, match="failed: out"):
            list(Chunks(TO).feed(line))
    assert list(Chunks(TO).feed(b'data: {"error":null,"a":1}\n')) == [b'{"error":null,"a":1}']


def test_a_stream_has_an_end_and_so_has_each_of_its_lines() -> None:
    """An endless line, or an answer of endless small ones, is refused."""
    with pytest.raises(UpstreamFailed, match="without end"):
        list(Chunks(TO).feed(b"data: " + b"x" * MAX_LINE_BYTES))
    chunks, piece = Chunks(TO), (b":" + b"x" * 65534 + b"\n")
    for _ in range(MAX_ANSWER_BYTES // len(piece)):
        list(chunks.feed(piece))
    with pytest.raises(UpstreamFailed, match="without end"):
        list(chunks.feed(piece * 2))


@given(st.binary())
def test_no_bytes_raise_anything_but_an_error_of_ours(data: bytes) -> None:
    """Any bytes, in a stream or alone, give a result or an error of this project."""
    for take in (lambda: whole(TO, data), lambda: list(Chunks(TO).feed(b"data: " + data + b"\n"))):
        with contextlib.suppress(UpstreamFailed):
            take()
    assert refusal(TO, 500, data).status == 502


@pytest.mark.parametrize("data", [b"[]", b"3", b"", b"{", b"<html>", b"[" * 100_000])
def test_an_answer_that_is_no_object_is_refused(data: bytes) -> None:
    """Such as a proxy's HTML page."""
    with pytest.raises(UpstreamFailed, match="not a JSON object"):
        whole(TO, data)


@given(objects, st.sampled_from(["big", "another", None]))
def test_a_body_keeps_everything_but_what_only_we_know(fields: dict[str, Any], name: Any) -> None:
    """Tools and unknown fields pass through; the model's name is the route's."""
    ours = {"speculation": {"mode": "auto"}, "return_origins": True, "aliases": None, "model": name}
    sent = json.loads(body(json.dumps(fields | ours).encode(), "big"))
    kept = {k: v for k, v in fields.items() if k not in ours}
    assert sent == kept | {"model": "big"}


@pytest.mark.parametrize(
    ("status", "ours", "code"),
    [(400, 400, "invalid_request"), (401, 502, "upstream_failed"), (403, 502, "upstream_failed"),
     (404, 502, "upstream_failed"), (413, 413, "too_large"), (422, 400, "invalid_request"),
     (429, 429, "busy"), (500, 502, "upstream_failed"), (503, 503, "upstream_unavailable"),
     (302, 502, "upstream_failed"), (204, 502, "upstream_failed")],
)  # fmt: skip
def test_a_status_becomes_an_error_of_this_project(status: int, ours: int, code: str) -> None:
    """It has the upstream's name, address and message."""
    said: LocalSpecError = refusal(TO, status, b'{"error":{"message":"no\\nway \\u0007"}}')
    assert (said.status, said.code) == (ours, code)
    assert said.message.startswith("The upstream rack (http://10.0.0.3:8000/v1) ")
    assert said.message.endswith(": no way")
    assert refusal(TO, status, b"<html>").message.endswith(".")


@given(st.integers(100, 599), st.binary(max_size=80))
def test_every_status_has_a_sentence(status: int, answer: bytes) -> None:
    """The sentence is one line, whatever the upstream sends."""
    message = refusal(TO, status, answer).message
    assert message.isprintable()
