"""Bodies of the other dialects as clients send them, and wrong ones: each has its answer."""

from __future__ import annotations

import asyncio
from typing import Any, TypeAlias

import pytest
import tiny
from daemon.test_bodies import STRICT, TEMPLATE, TOOL, USER

from localspec_daemon.supervisor.worker import COMMAND

Case: TypeAlias = tuple[int, dict[str, Any]]

FUNCTION = {"type": "function", "name": "get", "strict": False, "parameters": STRICT}
CALLED = {"type": "function_call", "call_id": "c", "name": "get", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "ok"}
ASSISTANT = {"role": "assistant", "content": "x"}
USED = {"type": "tool_use", "id": "t1", "name": "get", "input": {"a": "x"}}
USE = {"role": "assistant", "content": [USED]}
ANTHROPIC_TOOL = {"name": "get", "input_schema": STRICT}


def response(input_: Any = "hi", **fields: Any) -> dict[str, Any]:
    """A body of Responses."""
    return {"input": input_, "max_output_tokens": 4, **fields}


def message(*behind: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A body of Anthropic's messages."""
    return {"max_tokens": 4, "messages": [USER, *behind], **fields}


def used(*content: dict[str, Any]) -> dict[str, Any]:
    """The same with a call of a tool, and this behind it."""
    return message(USE, {"role": "user", "content": [*content]}, tools=[ANTHROPIC_TOOL])


def ollama(*behind: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A body of Ollama's chat."""
    options = {"num_predict": 4}
    return {"model": "alpha", "stream": False, "options": options, "messages": [USER, *behind],
            **fields}  # fmt: skip


def text(**fields: Any) -> dict[str, Any]:
    """A body of completions, OpenAI's or llama-server's."""
    return {"prompt": "hi", "max_tokens": 4, **fields}


CASES: dict[str, list[Case]] = {
    "/v1/responses": [
        (200, response([USER])),
        (200, response([{"type": "message", "role": "user",
                         "content": [{"type": "input_text", "text": "x"}]}])),
        (200, response(tools=[FUNCTION], tool_choice="required", parallel_tool_calls=False)),
        (200, response(tools=[FUNCTION], tool_choice={"type": "function", "name": "get"})),
        (200, response([USER, CALLED, OUTPUT], tools=[FUNCTION])),
        (200, response([USER, CALLED, OUTPUT | {"output": [{"type": "input_text", "text": "x"}]}])),
        (200, response([USER, {"type": "reasoning", "id": "r", "summary": [], "content": None},
                        {"role": "assistant", "content": [
                            {"type": "output_text", "text": "x", "annotations": []}]}, USER])),
        (200, response([USER, {"type": "reasoning", "id": "r", "summary": [
            {"type": "summary_text", "text": "hm"}]}, ASSISTANT, USER])),
        (200, response([{"role": "assistant", "content": [
            {"type": "refusal", "refusal": "no"}]}, USER])),
        (200, response(text={"format": {"type": "json_schema", "name": "x", "schema": STRICT}})),
        (200, response(text={"format": {"type": "json_object"}})),
        (200, response(text={"verbosity": "low"})),
        (200, response(reasoning={"effort": "high", "summary": "auto"}, store=False, metadata={},
                       include=["reasoning.encrypted_content"], truncation="auto",
                       instructions=None, temperature=None)),
        (200, response(tools=[{"type": "web_search"}, FUNCTION])),
        (200, response(tools=[{"type": "custom", "name": "x", "format": {"type": "text"}}])),
        (400, response(previous_response_id="resp_1")),
        (400, response([])),
        (400, response([{"role": "robot", "content": "x"}])),
    ],
    "/v1/messages": [
        (200, message(system="x")),
        (200, message(system=[{"type": "text", "text": "x", "cache_control": {"type": "e"}}])),
        (200, used({"type": "tool_result", "tool_use_id": "t1", "content": "ok"})),
        (200, used({"type": "tool_result", "tool_use_id": "t1"})),
        (200, used({"type": "tool_result", "tool_use_id": "t1", "is_error": True,
                    "content": [{"type": "text", "text": "x"}]}, {"type": "text", "text": "y"})),
        (200, message({"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "x"}]}, USER)),
        (200, message({"role": "assistant", "content": [
            {"type": "redacted_thinking", "data": "s"}, {"type": "text", "text": "x"}]}, USER)),
        *((200, message(thinking=thinking)) for thinking in (
            {"type": "enabled", "budget_tokens": 1024}, {"type": "disabled"}, {"type": "adaptive"},
        )),
        *((200, message(tools=[ANTHROPIC_TOOL], tool_choice=choice)) for choice in (
            {"type": "any"}, {"type": "tool", "name": "get"}, {"type": "none"},
            {"type": "auto", "disable_parallel_tool_use": True},
        )),
        (200, message(metadata={"user_id": "x"}, stop_sequences=["zz"], top_k=5, top_p=0.5,
                      service_tier="auto", context_management={"edits": []})),
        (200, message(USER)),
        (200, message(ASSISTANT)),
        (400, {"messages": [USER]}),
        (400, {"max_tokens": 4, "messages": []}),
    ],
    "/api/chat": [
        (200, ollama(format="json")),
        (200, ollama(format=STRICT)),
        (200, ollama(format="")),
        (200, ollama(tools=[TOOL], think=False, keep_alive=-1)),
        (200, ollama({"role": "assistant", "content": "", "tool_calls": [
            {"function": {"name": "get", "arguments": {"q": "x"}}}]},
            {"role": "tool", "content": "ok", "tool_name": "get"}, tools=[TOOL])),
        (200, ollama(options={"num_ctx": 100, "num_predict": 2, "stop": ["x"], "mirostat": 0,
                              "num_gpu": 1, "use_mmap": True, "repeat_last_n": -1})),
        (404, ollama(model="gone")),
    ],
    "/v1/completions": [
        *((200, text(prompt=prompt)) for prompt in (["a", "b"], [65, 66], [[65], [66]])),
        (200, text(suffix=None, best_of=1, echo=True, logprobs=0, stop=None, user="x")),
        *((400, text(prompt=prompt)) for prompt in ("", [-1], [2**31 - 1], [2**63])),
        (400, text(best_of=3)),
        (400, text(logprobs=100)),
    ],
    "/completion": [
        (400, text(n_discard=-1)),
        (400, text(logit_bias=[[-1, 1]])),
        (400, text(logit_bias=[[10**6, 1]])),
        (400, text(logit_bias=[[1, 1e308]])),
        (400, text(grammar="root ::= " + "(" * 60_000 + ")" * 60_000)),
        (400, text(grammar="root ::= x")),
        (400, text(json_schema={"type": "object", "properties": {"a": {"$ref": "#/no"}}})),
        (200, text(json_schema={"type": "string", "pattern": "^(a+)+$"})),
        (400, text(n_probs=10**9)),
        (400, text(temperature="hot")),
        (400, text(repeat_last_n=-3)),
        (400, text(id_slot="x")),
        (200, text(id_slot=99)),
        (400, text(prompt="a" * 300_000)),
        (400, text(prompt="ab " * 5000)),
    ],
    "/tokenize": [
        (200, {"content": "x" * 26_000}),
        (200, {"content": ""}),
        (400, {"content": 5}),
    ],
    "/detokenize": [
        (200, {"tokens": []}),
        (400, {"tokens": [-1]}),
    ],
}  # fmt: skip


@pytest.mark.parametrize("path", CASES)
def test_each_has_its_answer_and_no_worker_dies(harness: Any, daemon: Any, path: str) -> None:
    """Taken or refused; all of them by one worker."""
    (harness.models / "alpha.gguf").unlink()
    tiny.build(harness.models / "alpha.gguf", template=TEMPLATE)
    harness.configure(engine={"context": 2048, "slots": 2, "exactness": "standard"})

    async def scene() -> None:
        async with daemon(harness, COMMAND) as it:
            wrong = []
            for status, body in CASES[path]:
                found, told = await it.post(path, body)
                if found != status:
                    wrong.append((status, str(body)[:300], told))
            assert wrong == []
            assert not it.model().crashes.times

    asyncio.run(scene())
