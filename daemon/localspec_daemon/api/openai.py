"""Parses OpenAI's chats and completions into `Generate`. Pure, no HTTP."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from localspec.config import Config
from localspec.errors import RequestError
from localspec.wire.messages import Generate, Message
from localspec_daemon.api.bodies import decode, generate, parsed, prefilled
from localspec_daemon.api.chain import refuse_unless
from localspec_daemon.api.dialect import Caller, Dialect, Json, ParsedRequest
from localspec_daemon.api.framing import EVENTS
from localspec_daemon.api.openai_replies import ChatReply, CompletionReply, FimReply
from localspec_daemon.api.openai_types import (
    CHAT_ONLY,
    LLAMA_ONLY,
    MAX_CHOICES,
    NEUTRAL,
    ChatMessage,
    ChatRequest,
    CompletionRequest,
    Continuation,
    Part,
    PromptObject,
    Prompts,
    Request,
)
from localspec_daemon.api.parts import SHOWING, image, is_image, no_image, no_text

ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
"""For each role that clients send, the role that templates know."""


def chat(data: bytes, config: Config, caller: Caller) -> ParsedRequest:
    """Parses a body of POST /v1/chat/completions. Raises RequestError."""
    request = decode(data, ChatRequest)
    refuse_unless(LLAMA_ONLY, request)
    if not request.messages:
        raise RequestError("messages is empty.", fix="Send at least one message.", param="messages")
    messages, prefill = split_prefill(
        request, [message(index, given) for index, given in enumerate(request.messages)]
    )
    most = request.max_completion_tokens
    one = generate(
        config,
        caller,
        prefix="chatcmpl",
        endpoint="chat",
        max_tokens=limit(request) if most is None else most,
        messages=messages,
        prefill=prefill,
        template_kwargs=_template_kwargs(request, prefill),
        prediction=text("prediction.content", request.prediction.content)
        if request.prediction
        else None,
        logprobs=(request.top_logprobs or 0) if request.logprobs else request.n_probs or None,
        tools=request.tools,
        tool_choice=request.tool_choice,
        parallel_tool_calls=request.parallel_tool_calls,
        reasoning_effort=request.reasoning_effort,
        max_thoughts=request.thinking_budget_tokens
        if request.reasoning_budget_tokens is None
        else request.reasoning_budget_tokens,
        reasoning_apart=request.reasoning_format != "none",
        reasoning_control=request.reasoning_control,
        **shared(request, config),
    )
    return with_choices(request, [one])


def _template_kwargs(request: ChatRequest, prefill: str) -> Json | None:
    """Returns the template's variables; with a prefill add_generation_prompt is left alone."""
    if request.add_generation_prompt is False and not prefill:
        return {**(request.chat_template_kwargs or {}), "add_generation_prompt": False}
    return request.chat_template_kwargs


def completion(data: bytes, config: Config, caller: Caller) -> ParsedRequest:
    """Parses a body of POST /v1/completions or /v1/fim/completions. Raises RequestError."""
    request = decode(data, CompletionRequest)
    refuse_unless(LLAMA_ONLY, request)
    if request.best_of not in {None, request.n or request.n_cmpl or 1}:
        raise RequestError(
            "best_of other than n is not served: every choice is sent.",
            fix="Leave best_of out, and choose among n.",
            param="best_of",
        )
    return continued(
        request,
        config,
        caller,
        suffix=request.suffix or None,
        echo=request.echo,
        logprobs=request.n_probs if request.logprobs is None else request.logprobs,
    )


def continued(request: Continuation, config: Config, caller: Caller, **more: Any) -> ParsedRequest:
    """Returns a request for the continuation of each prompt; `more` are the endpoint's own fields.

    Raises RequestError.
    """
    fields = shared(request, config) | more
    return with_choices(
        request,
        [
            generate(
                config,
                caller,
                prefix="cmpl",
                endpoint="completion",
                max_tokens=limit(request),
                **as_prompt(prompt),
                **fields,
            )
            for prompt in _texts(request.prompt, more)
        ],
    )


def as_prompt(given: str | list[int | str]) -> Json:
    """Returns a prompt under its field's name in `Generate`."""
    if isinstance(given, str):
        return {"prompt": given}
    mixed = any(isinstance(piece, str) for piece in given)
    return {"prompt_pieces" if mixed else "prompt_tokens": given}


def _texts(given: Prompts | None, more: Json) -> list[str | list[int | str]]:
    """Returns the prompts; before a suffix one may be empty, as at the beginning of a file.

    Raises RequestError.
    """
    return [""] if more.get("suffix") and given in ("", [""], None) else prompts(given)


CHAT = Dialect(chat, ChatReply, EVENTS, endpoint="chat/completions")
COMPLETION = Dialect(completion, CompletionReply, EVENTS, endpoint="completions")
FIM = Dialect(completion, FimReply, EVENTS, endpoint="fim/completions")


def message(index: int, given: ChatMessage) -> Message:
    """Returns one message as templates read it. Raises RequestError, which names the part."""
    extra = {
        name: value
        for name in ("name", "tool_calls", "tool_call_id", "reasoning_content")
        if (value := getattr(given, name)) is not None
    }
    if given.reasoning is not None:
        extra.setdefault("reasoning_content", given.reasoning)
    role = ROLES[given.role]
    param = f"messages[{index}].content"
    if given.content is not None:
        return said(role, param, given.content, extra)
    if role not in ("assistant", "tool"):
        raise RequestError(f"{param} is missing.", param=param)
    return Message(role, "", extra)  # only calls of the assistant, or an empty tool result


def split_prefill(request: ChatRequest, messages: list[Message]) -> tuple[list[Message], str]:
    """Splits the beginning of the answer off the messages, unless the request forbids it.

    Raises RequestError if the request demands a beginning and there is none.
    """
    wanted = request.continue_final_message
    if wanted and request.add_generation_prompt:
        raise RequestError(
            "continue_final_message and add_generation_prompt exclude each other.",
            fix="Leave add_generation_prompt out.",
            param="continue_final_message",
        )
    if wanted is None:
        wanted = not request.add_generation_prompt
    before, prefill = prefilled(messages) if wanted else (messages, "")
    if len(before) < len(messages):
        return before, prefill
    if request.continue_final_message:
        raise RequestError(
            "continue_final_message needs a last message of the assistant after others.",
            fix="End messages with what the answer is to begin with.",
            param="continue_final_message",
        )
    return messages, ""


def said(role: str, param: str, content: str | list[Part], extra: Json) -> Message:
    """Returns the message with this content. Raises RequestError, which names the part."""
    if isinstance(content, str):
        return Message(role, content, extra)
    texts, images, extra = [], [], dict(extra)
    for index, part in enumerate(content):
        place = f"{param}[{index}]"
        if role == "assistant" and part.type == "refusal" and part.refusal is not None:
            texts.append(part.refusal)
        elif role == "assistant" and part.type == "thinking" and part.thinking is not None:
            extra.setdefault("reasoning_content", text(f"{place}.thinking", part.thinking))
        elif is_image(part.type, part.data):
            if role not in SHOWING:
                raise no_image(place)
            images.append(image(place, part.data or part.image_url))
            texts.append(images[-1].mark)
        elif part.type not in {"text", "input_text", "output_text"} or part.text is None:
            raise no_text(place, part.type)
        else:
            texts.append(part.text)
    return Message(role, "".join(texts), extra, images)


def text(param: str, content: str | list[Part]) -> str:
    """Joins the parts of a content without images. Raises RequestError, which names the part."""
    return said("", param, content, {}).content


def prompts(
    given: Prompts | None, param: str = "prompt", most: int = MAX_CHOICES, *, empty: bool = False
) -> list[str | list[int | str]]:
    """Returns the prompts of a field; a list with a token in it is one prompt, of tokens and texts.

    Raises RequestError, also for an empty prompt, unless it may be `empty`.
    """
    alone = not isinstance(given, list) or any(isinstance(one, int) for one in given)
    several: Any = [given] if alone else given
    if given is None or not several:
        raise RequestError(f"{param} is empty.", fix="Send some text or tokens.", param=param)
    if len(several) > most:
        raise RequestError(f"{param} has {len(several)} texts; {most} may be.", param=param)
    places = [param if alone else f"{param}[{index}]" for index in range(len(several))]
    pairs = zip(several, places, strict=True)
    return [_prompt(one, place, empty=empty) for one, place in pairs]


def _prompt(given: Any, param: str, *, empty: bool) -> str | list[int | str]:
    if isinstance(given, PromptObject):
        if given.multimodal_data:
            raise RequestError(
                f"{param} has multimodal_data, and a raw prompt takes no images.",
                fix="Send them as messages to /v1/chat/completions.",
                param=param,
            )
        prompt = given.prompt_string
        if prompt is None and isinstance(given.content, list):
            prompt = text(f"{param}.content", given.content)
        if prompt is None:
            raise RequestError(
                f"{param} is an object without prompt_string or a content in parts.", param=param
            )
        given = prompt
    if isinstance(given, list) and not all(isinstance(piece, int | str) for piece in given):
        raise RequestError(f"{param} has an object or a list inside of a prompt.", param=param)
    if not given and not (empty and given == ""):
        raise RequestError(f"{param} is empty.", fix="Send some text or tokens.", param=param)
    return given if isinstance(given, str) else [*given]


def response_format(request: Request) -> Json | None:
    """Returns the answer's format, whichever field sets it; None for plain text.

    Raises RequestError if several fields do.
    """
    first, *others = [*_formats(request)] or [""]
    if others:
        raise RequestError(
            f"{first} and {others[0]} both say which form the answer has.",
            fix="Leave one of them out.",
            param=others[0],
        )
    return _formats(request).get(first)


def _formats(request: Request) -> dict[str, Json]:
    """Returns the formats that the body asks for, by the fields that name them."""
    given, found = request.response_format, {}
    if given and given.type != "text":
        fields = msgspec.structs.asdict(given).items()
        found["response_format"] = {key: value for key, value in fields if value is not None}
    for name in ("json_schema", "guided_json"):
        schema = getattr(request, name)
        if schema is not None:
            found[name] = {"type": "json_schema", "json_schema": {"schema": schema}}
    for name in ("grammar", "guided_grammar"):
        if grammar := getattr(request, name):
            found[name] = {"type": "gbnf", "grammar": grammar}
    if request.guided_regex:
        found["guided_regex"] = {"type": "regex", "pattern": request.guided_regex}
    if request.guided_choice:
        found["guided_choice"] = {"type": "choice", "choices": request.guided_choice}
    return found


def limit(request: Request) -> float | None:
    """Returns the limit of tokens, whichever field sets it; None for no limit."""
    return request.max_tokens if request.max_tokens is not None else request.n_predict


def shared(request: Request, config: Config) -> Json:
    """Returns the arguments of `generate` that chats and completions share. Raises RequestError."""
    refuse_unless(NEUTRAL, request)
    if not isinstance(request, ChatRequest):
        refuse_unless(CHAT_ONLY, request)
    return {
        "chain": request,
        "stop": request.stop,
        "speculation": request.speculation,
        "ignore_eos": request.ignore_eos,
        "response_format": response_format(request),
        "session": request.prompt_cache_key or slot_name(request.id_slot, config),
        "prompt_seconds": seconds(request.t_max_prompt_ms),
        "predict_seconds": seconds(request.t_max_predict_ms),
        "indent": request.n_indent,
        "reuse": request.cache_prompt,
        "after_sampling": request.post_sampling_probs,
        "tells_prompt": request.verbose,
        "tells_reading": request.return_progress,
        "shifts": request.context_shift,
        "keep": request.n_keep,
        "discard": request.n_discard,
        "lora": {each.id: each.scale for each in request.lora} if request.lora else None,
    }


def seconds(milliseconds: float | None) -> float | None:
    """Returns a time limit in seconds; None for 0 and below."""
    return milliseconds / 1000 if milliseconds and milliseconds > 0 else None


def slot_name(number: int | None, config: Config) -> str:
    """Returns a conversation's name made of a slot's number, modulo the slots; "" without one."""
    if number is None or number < 0:
        return ""
    return f"slot {number % config.engine.slots}"


def with_choices(request: Request, generates: list[Generate]) -> ParsedRequest:
    """Returns the request, with each of its prompts `n` times."""
    times = request.n or request.n_cmpl or 1
    if len(generates) * times > MAX_CHOICES:
        raise RequestError(f"n makes more than {MAX_CHOICES} choices.", param="n")
    choices = [again(one, turn) for one in generates for turn in range(times)]
    return replace(parsed(request, choices), names=_names(request))


def _names(request: Request) -> dict[str, str]:
    """Returns the body's names for the fields that have another name in `Generate`."""
    form = next(iter(_formats(request)), "response_format")
    return {"template_kwargs": "chat_template_kwargs", "response_format": form}


def again(one: Generate, turn: int) -> Generate:
    """Returns the request for choice `turn` of `n`: each has a seed of its own."""
    if not turn:
        return one
    seed = (one.sampling.seed + turn) % 2**64
    return msgspec.structs.replace(
        one,
        id=f"{one.id}-{turn}",
        sampling=msgspec.structs.replace(one.sampling, seed=seed),
    )
