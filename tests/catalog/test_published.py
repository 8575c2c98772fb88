"""Families of the catalog, each by a tiny file as it is published.

Its architecture, the template that the family ships, and its kind of tokenizer: the file is loaded,
a conversation with a function is prepared as a worker does, and its twin may draft for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import architectures
import pytest
import recurrent
import templates
import tiny

from localspec.catalog import entries, header, pairing
from localspec.config import Placement
from localspec.engine.llama.model import Model
from localspec.text.constraint import Vocabulary
from localspec.text.dialogue import marks_of
from localspec.text.healing import SortedVocabulary
from localspec.text.markers import Markers
from localspec.wire.messages import Message
from localspec.worker.grammars import Grammars
from localspec.worker.images import Images
from localspec.worker.preparation import RequestPreparer
from localspec.worker.prompts import Prompts
from localspec.worker.sandbox import Sandbox

MOOR = {
    "name": "moor",
    "description": "Moors a boat.",
    "parameters": {"type": "object", "properties": {"berth": {"type": "string"}}},
}


class Published(NamedTuple):
    """A published family: its template, the format of it, and how its tokenizer cuts texts."""

    template: str
    format: str
    pre: str = "qwen2"
    """Empty for one that cuts texts into pieces of SentencePiece."""


LLAMA3 = "meta-llama-Llama-3.1-8B-Instruct"
DISTILLED = "deepseek-ai-DeepSeek-R1-Distill-"
FAMILIES = {
    "Qwen2.5-Coder": Published("Qwen-Qwen2.5-7B-Instruct", "hermes"),
    "DeepSeek-R1-Distill-Qwen": Published(DISTILLED + "Qwen-32B", "deepseek", "deepseek-r1-qwen"),
    "DeepSeek-R1-Distill-Llama": Published(DISTILLED + "Llama-8B", "deepseek", "llama-bpe"),
    "Qwen3.8": Published("Qwen3.5-4B", "qwen3-coder", "qwen35"),
    "Qwen3.6": Published("Qwen3.5-4B", "qwen3-coder", "qwen35"),
    "Qwen3.5": Published("Qwen3.5-4B", "qwen3-coder", "qwen35"),
    "Qwen2.5": Published("Qwen-Qwen2.5-7B-Instruct", "hermes"),
    "Qwen3-Coder-Next": Published("Qwen3-Coder", "qwen3-coder"),
    "Qwen3-Coder": Published("Qwen3-Coder", "qwen3-coder"),
    "Qwen3": Published("Qwen-Qwen3-0.6B", "hermes"),
    "QwQ": Published("Qwen-QwQ-32B", "hermes"),
    "GLM-5.3-Flash": Published("glm5-flash", "glm", "glm4"),
    "GLM-4.7-Flash": Published("GLM-4.7-Flash", "glm", "glm4"),
    "Gemma 4": Published("google-gemma-4-31B-it", "gemma4"),
    "Gemma 3": Published("gemma3", "generic"),
    "Gemma 2": Published("google-gemma-2-2b-it", "generic"),
    "gpt-oss": Published("openai-gpt-oss-120b", "gpt-oss", "gpt-4o"),
    "Ministral 3": Published("mistralai-Ministral-3-14B-Reasoning-2512", "mistral-named", "tekken"),
    "Devstral 2": Published("devstral2", "mistral-named", "tekken"),
    "Devstral": Published("unsloth-mistral-Devstral-Small-2507", "mistral-named", "tekken"),
    "Mistral Small": Published("Mistral-Small-3.2-24B-Instruct-2506", "mistral-named", "tekken"),
    "Mistral Nemo": Published("mistralai-Mistral-Nemo-Instruct-2407", "mistral", "tekken"),
    "Mistral": Published("mistral-v3", "mistral", ""),
    "Codestral": Published("codestral", "generic", ""),
    "Llama 3": Published(LLAMA3, "llama3", "llama-bpe"),
    "Granite 4.1": Published("ibm-granite-granite-4.1", "hermes", "dbrx"),
    "Granite 4.0": Published("ibm-granite-granite-4.0", "hermes", "dbrx"),
    "Granite 3.3": Published("ibm-granite-granite-3.3-2B-Instruct", "granite-3", "refact"),
    "LFM2": Published("LFM2-8B-A1B", "lfm2", "lfm2"),
    "Nemotron 3 Nano": Published("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "qwen3-coder", "tekken"),
    "Phi-4-mini": Published("phi4-mini", "phi4-mini", "gpt-4o"),
    "Phi-4": Published("phi4", "generic", "dbrx"),
    "OLMo 3": Published("olmo3", "olmo3", "dbrx"),
    "Seed-OSS": Published("ByteDance-Seed-OSS", "seed-oss", "seed-coder"),
    "SmolLM2": Published("smollm2", "generic", "smollm"),
    "SmolLM3": Published("HuggingFaceTB-SmolLM3-3B", "generic", "smaug-bpe"),
}
PAIRS = [
    (family.name, architecture)
    for family in entries.families()
    for architecture in family.architectures
    if architecture in {*architectures.KINDS, "lfm2"}
]


def built(path: Path, name: str, architecture: str) -> Path:
    """A tiny file of a family."""
    known = FAMILIES[name]
    source = _template(known)
    marks = marks_of(templates.dialogue(source).format)
    more: dict[str, Any] = {
        "template": source.read_text(encoding="utf-8"),
        "specials": tuple(mark for mark in marks if mark not in tiny.SPECIALS),
        **({"pre": known.pre} if known.pre else {"sentencepiece": True}),
    }
    if architecture == "lfm2":
        return recurrent.lfm2(path, **more)
    return architectures.build(path, architecture, **more)


def _template(known: Published) -> Path:
    places = (templates.directory(), templates.STAND_INS)
    return next(path for place in places if (path := place / f"{known.template}.jinja").exists())


def test_each_family_of_the_catalog_is_here() -> None:
    """So that a new one is not forgotten."""
    families = {family.name for family in entries.families()}
    assert families == {*FAMILIES} == {name for name, _ in PAIRS}


@pytest.mark.parametrize(("name", "architecture"), PAIRS)
def test_a_published_file_is_understood(name: str, architecture: str, tmp_path: Path) -> None:
    """Its format is the family's, a conversation with a call is rendered, and its twin drafts."""
    path = built(tmp_path / "m.gguf", name, architecture)
    model = Model.load(path, Placement(gpu_layers=0, threads=1))
    sandbox = Sandbox()
    words = SortedVocabulary(model.pieces())
    vocabulary = Vocabulary(model.pieces(), model.eog, model.plain_tokens)
    prompts = Prompts(model, Markers(*model.specials()), 13, sandbox, words)
    grammars = Grammars(vocabulary, sandbox)
    prepared = RequestPreparer(model, lambda: 1 << 20, {}, prompts, grammars, Images(None, "", 1))
    assert prepared.facts["format"] == FAMILIES[name].format
    assert prepared.facts["format_warning"] == ""
    made = {"id": "c", "function": {"name": "moor", "arguments": '{"berth": "seven"}'}}
    turns = [
        Message("user", "Where?"),
        Message("assistant", "", {"tool_calls": [made]}),
        Message("tool", "At the quay.", {"tool_call_id": "c"}),
    ]
    request = prepared.prepare(templates.chat(turns, [MOOR]))
    prompt = b"".join(model.piece(token) for token in request.prompt).decode()
    for text in ("Where?", "moor", "berth", "seven", "At the quay."):
        assert text in prompt
    twin = header.read(built(tmp_path / "twin.gguf", name, architecture))
    assert pairing.check(header.read(path), twin).can_speculate
    sandbox.close()
    model.close()
