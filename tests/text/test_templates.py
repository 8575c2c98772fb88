"""The templates of llama.cpp and our stand-ins: recognised, with the whole history kept."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import templates

from localspec.errors import TemplateError
from localspec.text.dialogue import Dialogue
from localspec.text.formats import thinking
from localspec.text.template import Conversation, rendered
from localspec.wire.messages import Message

FORMATS = {
    "Apertus-8B-Instruct": "apertus",
    "Apriel-1.6-15b-Thinker-fixed": "apriel",
    "ByteDance-Seed-OSS": "seed-oss",
    "Cohere2MoE": "command",
    "CohereForAI-c4ai-command-r-plus-tool_use": "command-r-plus",
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": "command",
    "GLM-4.6": "glm",
    "GLM-4.7-Flash": "glm",
    "GigaChat3-10B-A1.8B": "gigachat",
    "GigaChat3.1-10B-A1.8B": "gigachat-3.1",
    "HuggingFaceTB-SmolLM3-3B": "generic",
    "Kimi-K2-Instruct": "kimi-k2",
    "Kimi-K2-Thinking": "kimi-k2",
    "Kimi-K3": "kimi-k3",
    "LFM2-8B-A1B": "lfm2",
    "LFM2.5-8B-A1B": "lfm2",
    "LFM2.5-Instruct": "lfm2",
    "MiniMax-M1": "minimax-m1",
    "MiniMax-M2": "minimax-m2",
    "MiniMax-M3": "minimax-m3",
    "Mistral-Small-3.2-24B-Instruct-2506": "mistral-named",
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "qwen3-coder",
    "NVIDIA-Nemotron-Nano-v2": "nemotron-v2",
    "Qwen3-Coder": "qwen3-coder",
    "Qwen3.5-4B": "qwen3-coder",
    "Spark2.5": "glm",
    "StepFun3.5-Flash": "qwen3-coder",
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": "deepseek",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": "deepseek",
    "deepseek-ai-DeepSeek-V3.1": "deepseek-v3.1",
    "deepseek-ai-DeepSeek-V3.2": "deepseek-v3.2",
    "deepseek-ai-DeepSeek-V4": "deepseek-v4",
    "deepseek-ai-DeepSeek-V4-Flash-0731": "deepseek-v4",
    "fireworks-ai-llama-3-firefunction-v2": "phi4-mini",
    "google-gemma-2-2b-it": "generic",
    "google-gemma-4-31B-it": "gemma4",
    "google-gemma-4-31B-it-interleaved": "gemma4",
    "ibm-granite-granite-3.3-2B-Instruct": "granite-3",
    "inclusionai-ling-3.0-flash": "glm",
    "llama-cpp-deepseek-r1": "deepseek",
    "llama-cpp-rwkv-world": "generic",
    "meetkai-functionary-medium-v3.1": "functionary-3.1",
    "meetkai-functionary-medium-v3.2": "functionary-3.2",
    "meta-llama-Llama-3.1-8B-Instruct": "llama3",
    "meta-llama-Llama-3.2-3B-Instruct": "llama3",
    "meta-llama-Llama-3.3-70B-Instruct": "llama3",
    "microsoft-Phi-3.5-mini-instruct": "generic",
    "mistralai-Ministral-3-14B-Reasoning-2512": "mistral-named",
    "mistralai-Mistral-Nemo-Instruct-2407": "mistral",
    "moonshotai-Kimi-K2": "kimi-k2",
    "muse-glimmer": "muse-glimmer",
    "openai-gpt-oss-120b": "gpt-oss",
    "openbmb-MiniCPM5-1B": "minicpm5",
    "poolside-Laguna-S-2.1": "glm",
    "poolside-Laguna-XS-2.1": "glm",
    "poolside-Laguna-XS.2": "glm",
    "tencent-Hy3": "hunyuan-3",
    "unsloth-Apriel-1.5": "apriel",
    "unsloth-mistral-Devstral-Small-2507": "mistral-named",
    "upstage-Solar-Open-100B": "solar",
    "gemma3": "generic",
    "hunyuan": "hunyuan",
    "olmo3": "olmo3",
    "phi4-mini": "phi4-mini",
    "codestral": "generic",
    "devstral2": "mistral-named",
    "ernie45-thinking": "ernie",
    "functiongemma": "functiongemma",
    "glm4-0414": "glm-4",
    "glm5-flash": "glm",
    "jamba": "hunyuan",
    "llama4": "llama4",
    "mistral-v3": "mistral",
    "phi4": "generic",
    "phi4-mini-reasoning": "generic",
    "phi4-reasoning": "generic",
    "smollm2": "generic",
    "xlam2": "llama3",
}
"""Formats other than "hermes"."""
PATHS = templates.everything()
template = pytest.mark.parametrize("path", PATHS, ids=[path.stem for path in PATHS])

FIND: dict[str, Any] = {
    "name": "zoo_find",
    "description": "Finds.",
    "parameters": {"type": "object", "properties": {"kind": {"type": "string"}}},
}
NOW = {"name": "now_at"}


def call(name: str, arguments: Any, id_: str) -> dict[str, Any]:
    """A call as a message holds it."""
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


def twice(words: str, *, text: bool, thought: bool) -> list[Message]:
    """A conversation with two rounds of calls; arguments as JSON `text` or as objects."""

    def given(arguments: dict[str, Any]) -> Any:
        return json.dumps(arguments) if text else arguments

    extra: dict[str, Any] = {"reasoning_content": "A thought."} if thought else {}
    first = [call("zoo_find", given({"kind": "monkey", "many": 73}), "call_1")]
    first.append(call("now_at", given({}), "call_2"))
    return [
        Message("system", "SYSTEM"),
        Message("user", "FIRST"),
        Message("assistant", words, {**extra, "tool_calls": first}),
        Message("tool", "RESULT-ONE", {"tool_call_id": "call_1"}),
        Message("tool", "RESULT-TWO", {"tool_call_id": "call_2"}),
        Message("assistant", "SAID"),
        Message("user", "SECOND"),
        Message(
            "assistant", "", {"tool_calls": [call("zoo_find", given({"kind": "emu"}), "call_3")]}
        ),
        Message("tool", "RESULT-THREE", {"tool_call_id": "call_3"}),
    ]


@template
def test_a_template_is_recognised_by_what_it_does(path: Path) -> None:
    """Each is recognised without a warning."""
    known = templates.dialogue(path).recognised
    assert known.form.name == FORMATS.get(path.stem, "hermes"), known.why
    assert known.warning == ""


@template
@pytest.mark.parametrize("words", ["", "WORDS"])
@pytest.mark.parametrize("text", [True, False])
@pytest.mark.parametrize("tools", [True, False])
def test_nothing_of_a_conversation_with_calls_is_lost(
    path: Path, words: str, text: bool, tools: bool
) -> None:
    """Every call occurs once, and every result, every turn, and the system message."""
    for thought in (True, False):
        request = templates.chat(
            twice(words, text=text, thought=thought), [FIND, NOW] if tools else []
        )
        prompt = templates.dialogue(path).turn(request).prompt
        for part in ("SYSTEM", "FIRST", "SAID", "SECOND", "RESULT-ONE", "RESULT-TWO"):
            assert part in prompt
        for part in ("monkey", "73", "now_at", "emu", "RESULT-THREE"):
            assert part in prompt
        assert prompt.count("monkey") == 1
        assert prompt.index("monkey") < prompt.index("RESULT-ONE") < prompt.index("SECOND")


@template
def test_any_form_of_a_message_reaches_the_template(path: Path) -> None:
    """Missing contents, empty lists, and calls and results without their ids."""
    dialogue = templates.dialogue(path)
    bare = {"function": {"name": "zoo_find", "arguments": ""}}
    turns = [
        Message("user", "FIRST"),
        Message("assistant", "SAID", {"tool_calls": [], "reasoning_content": None, "name": None}),
        Message("user", "SECOND"),
        Message("assistant", "", {"tool_calls": [bare]}),
        Message("tool", "RESULT"),
        Message("user", "THIRD"),
        Message("user", "FOURTH"),
    ]
    prompt = dialogue.turn(templates.chat(turns, [FIND])).prompt
    for part in ("FIRST", "SAID", "SECOND", "RESULT", "THIRD", "FOURTH"):
        assert part in prompt
    late = [Message("user", "FIRST"), Message("assistant", "SAID"), Message("system", "LATER")]
    assert "LATER" in dialogue.turn(templates.chat([*late, Message("user", "SECOND")])).prompt


@template
@pytest.mark.parametrize("tools", [True, False])
def test_a_history_that_was_shortened_reaches_the_template(path: Path, tools: bool) -> None:
    """A result without its call, an empty answer, and a system message alone."""
    dialogue = templates.dialogue(path)
    result = Message("tool", "RESULT", {"tool_call_id": "call_7"})
    user, again = Message("user", "FIRST"), Message("user", "SECOND")
    for turns in (
        [user, result, again],
        [Message("system", "EARLY"), result, result, again],
        [user, Message("assistant", ""), again],
        [user, Message("assistant", "SAID"), result],
        [Message("system", "EARLY")],
        [Message("system", "EARLY"), Message("system", "LATE")],
    ):
        prompt = dialogue.turn(templates.chat(turns, [FIND] if tools else [])).prompt
        for turn in turns:
            assert turn.content in prompt, turn


@template
@pytest.mark.parametrize("tools", [True, False])
def test_messages_in_an_order_that_a_template_does_not_expect_reach_it(
    path: Path, tools: bool
) -> None:
    """Two system messages, an assistant that begins, and words beside a call."""
    dialogue = templates.dialogue(path)
    made = {"tool_calls": [call("zoo_find", {"kind": "ape"}, "call_1")]}
    told = [
        Message("assistant", "BESIDE", made),
        Message("tool", "RESULT", {"tool_call_id": "call_1"}),
    ]
    begins = [Message("assistant", "GREETED"), Message("user", "FIRST")]
    orders = [
        [
            Message("system", "EARLY"),
            Message("user", "FIRST"),
            Message("assistant", "SAID"),
            Message("system", "LATE"),
            Message("user", "SECOND"),
        ],
        [*begins],
        [Message("system", "EARLY"), *begins],
        [Message("user", "FIRST"), *told],
        [Message("user", "FIRST"), *told, Message("assistant", "SAID"), Message("user", "SECOND")],
    ]
    for turns in orders:
        prompt = dialogue.turn(templates.chat(turns, [FIND] if tools else [])).prompt
        forgets = dialogue.format.name == "gpt-oss" and turns == orders[-1]
        for turn in turns:  # gpt-oss' template drops words beside a call once an answer follows
            assert turn.content in prompt or (forgets and turn.content == "BESIDE"), turn


@pytest.mark.parametrize(
    ("name", "opened", "closed"),
    [
        ("Qwen-QwQ-32B", "<think>\n", "</think>"),
        ("Qwen3.5-4B", "<think>\n", "</think>\n\n"),
        ("deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "<think>\n", "</think>"),
        ("deepseek-ai-DeepSeek-V3.1", "<think>", "</think>"),
        ("GLM-4.7-Flash", "<think>", "</think>"),
        ("tencent-Hy3", "<think:opensource>", "</think:opensource>"),
        ("Kimi-K3", "<|open|>think<|sep|>", "<|open|>response<|sep|>"),
        ("inclusionai-ling-3.0-flash", "<think>", "</think>"),
        ("poolside-Laguna-XS.2", "<think>", "</think>"),
    ],
)
def test_a_model_thinks_unless_it_is_told_not_to(name: str, opened: str, closed: str) -> None:
    """`enable_thinking` false or an effort of "none" turns thinking off, nothing else does."""
    dialogue = templates.dialogue(templates.directory() / f"{name}.jinja")
    ask = [Message("user", "Hi.")]

    def end(**more: Any) -> str:
        return dialogue.turn(templates.chat(ask, **more)).prompt

    for off in ({"reasoning_effort": "none"}, {"template_kwargs": {"enable_thinking": False}}):
        assert end(**off).endswith(closed)
    silent: list[dict[str, Any]] = (
        [] if name == "tencent-Hy3" else [{}]
    )  # whose own default is not to
    for on in (*silent, {"reasoning_effort": "low"}, {"reasoning_effort": "xhigh"}):
        turn = dialogue.turn(templates.chat(ask, **on))
        assert turn.prompt.endswith(opened)
        assert turn.offer.thinking


def test_seed_oss_and_command_do_without_thoughts_in_their_own_words() -> None:
    """By a budget of zero, or by closed thoughts."""
    place = templates.directory()
    ask = templates.chat([Message("user", "Hi.")], reasoning_effort="none")
    budget = templates.dialogue(place / "ByteDance-Seed-OSS.jinja").turn(ask).prompt
    assert "<seed:cot_budget_reflect>" in budget
    command = place / "CohereForAI-c4ai-command-r7b-12-2024-tool_use.jinja"
    assert templates.dialogue(command).turn(ask).prompt.endswith("<|END_THINKING|>")


def test_nemotron_is_told_in_the_words_that_it_looks_for() -> None:
    """Nemotron's template has no variable for it."""
    path = templates.directory() / "NVIDIA-Nemotron-Nano-v2.jinja"
    ask = templates.chat([Message("user", "Hi.")], reasoning_effort="none")
    turn = templates.dialogue(path).turn(ask)
    assert not turn.offer.thinking
    assert templates.dialogue(path).turn(templates.chat([Message("user", "Hi.")])).offer.thinking


@pytest.mark.parametrize(
    ("template_", "effort", "wanted"),
    [
        ("{{ reasoning_effort }}", "high", {"reasoning_effort": "high"}),
        ("{{ reasoning_effort }}", "none", {"reasoning_effort": "low", "enable_thinking": False}),
        ("{{ reasoning_effort }} 'no_think'", "none", {"reasoning_effort": "no_think"}),
        ("{{ reasoning_effort }} 'high' 'no_think'", "medium", {"reasoning_effort": "high"}),
        ("{{ thinking }}", "none", {"thinking": False, "enable_thinking": False}),
        ("{{ thinking }}", "medium", {"thinking": True, "enable_thinking": True}),
        ("{{ thinking_mode }}", "none", {"thinking_mode": "disabled"}),
        ("{{ thinking_budget }}", "none", {"thinking_budget": 0}),
    ],
)
def test_an_effort_reaches_the_template_in_its_own_words(
    template_: str, effort: str, wanted: Mapping[str, Any]
) -> None:
    """Each variable is set by its own name and words; those in the request stay."""
    found = thinking.variables(template_, {}, effort)
    assert wanted.items() <= found.items()
    assert thinking.variables(template_, {"thinking": "mine"}, effort)["thinking"] == "mine"


def test_llama_knows_the_day() -> None:
    """The date is today's, not July 2024."""
    path = templates.directory() / "meta-llama-Llama-3.1-8B-Instruct.jinja"
    prompt = templates.dialogue(path).turn(templates.chat([Message("user", "Hi.")])).prompt
    assert "26 Jul 2024" not in prompt


OWN = """{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}
<<{{ c.function.name }}::{{ c.function.arguments }}>>{% endfor %}{% endfor %}{{ tools }}"""


@pytest.mark.parametrize(
    ("source", "warning"),
    [
        ("{% if %}", "not valid Jinja"),
        ("{{ raise_exception('never') }}", "refuses these messages: never"),
        (OWN, "in a way of its own that LocalSpec does not know"),
        ("{% for m in messages %}{{ m.content }}{% endfor %}{{ tools }}",
         "shows functions, but not how to call them"),
    ],
)  # fmt: skip
def test_what_is_not_recognised_is_read_as_generic_and_that_is_said(
    source: str, warning: str
) -> None:
    """A template that fails, and one with a syntax of its own."""

    def render(messages: Sequence[Message], variables: Mapping[str, Any]) -> str:
        turns = [{**one.extra, "role": one.role, "content": one.content} for one in messages]
        asked = Conversation(source, "", "", turns, dict(variables))
        return rendered(asked).text

    dialogue = Dialogue(source, render, lambda _mark: None)
    assert dialogue.format.name == "generic"
    assert warning in dialogue.recognised.warning


def test_a_template_that_is_stopped_is_not_asked_again() -> None:
    """Each further rendering would take its time limit."""
    asked = []

    def render(messages: Sequence[Message], _variables: Mapping[str, Any]) -> str:
        asked.append(messages)
        raise TemplateError("The model's chat template was stopped: it took too long.")

    dialogue = Dialogue("{% for %}", render, lambda _mark: None)
    assert len(asked) == 1
    assert "was stopped" in dialogue.recognised.warning
