"""Calls of the families through opencode: a real agent runs what a scripted model calls.

Each model knows one answer by heart: a call of opencode's `read` in its family's own syntax, behind
the family's own template. The agent runs it and sends the result back, to which the model says a
sentence. `make clients` installs opencode.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import scripted_model
import templates
from clients.conftest import Served, daemon, run
from clients.test_npm import INSTALLED, QUIET

from localspec.text.dialogue import Dialogue
from localspec.text.formats import writing
from localspec.wire.messages import Message

OPENCODE = INSTALLED / "node_modules" / ".bin" / "opencode"
pytestmark = [
    pytest.mark.clients,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not OPENCODE.exists(), reason="not installed. Run: make clients"),
]
ARGUMENTS = {"filePath": "berth.txt"}
CONTENT = "harbour-seven"
SAID = "It lies at the quay."
FAMILIES = {
    "gpt-oss": "openai-gpt-oss-120b",
    "gemma4": "google-gemma-4-31B-it",
    "qwen3": "Qwen-Qwen3-0.6B",
    "qwen35": "Qwen3.5-4B",
    "coder": "Qwen3-Coder",
    "devstral": "unsloth-mistral-Devstral-Small-2507",
    "nemo": "mistralai-Mistral-Nemo-Instruct-2407",
    "llama3": "meta-llama-Llama-3.1-8B-Instruct",
    "glm": "GLM-4.7-Flash",
    "deepseek": "deepseek-ai-DeepSeek-V3.2",
    "kimi": "Kimi-K2-Instruct",
    "minimax": "MiniMax-M2",
    "command": "CohereForAI-c4ai-command-r7b-12-2024-tool_use",
    "granite": "ibm-granite-granite-4.1",
    "lfm2": "LFM2.5-Instruct",
    "seed": "ByteDance-Seed-OSS",
    "nemotron": "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
    "hunyuan": "tencent-Hy3",
    "smollm3": "HuggingFaceTB-SmolLM3-3B",
}


def written(dialogue: Dialogue) -> str:
    """The call as the family writes it."""
    form = dialogue.format
    if form.heads:
        return form.heads.calls.format(name="read") + json.dumps(ARGUMENTS)
    return writing.calls(form, [("read", ARGUMENTS)])


def model(folder: Path, name: str) -> Path:
    """The file of a family's model."""
    template = templates.directory() / f"{FAMILIES[name]}.jinja"
    dialogue = templates.dialogue(template)
    asked = templates.chat([Message("user", "Please help.")], [{"name": "read"}])
    turn = dialogue.turn(asked)
    ends = dialogue.format.thoughts[0].closing if turn.offer.thinking else ""
    return scripted_model.turning(
        folder / f"{name}.gguf",
        template.read_text(encoding="utf-8") + scripted_model.turns(CONTENT, ends + "\t"),
        {turn.prompt: ends + written(dialogue), "\t": SAID},
    )


@pytest.fixture(scope="module")
def families(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Served]:
    """A daemon with a model for each family that is asked."""
    folder = tmp_path_factory.mktemp("agents")
    items: Any = request.session.items
    asked = [one.callspec.params["family"] for one in items
             if getattr(one, "callspec", None) and "family" in one.callspec.params]  # fmt: skip
    with daemon(tmp_path_factory.mktemp("o"), *(str(model(folder, one)) for one in asked)) as it:
        yield it


@pytest.fixture
def agent(families: Served, tmp_path: Path) -> Mapping[str, str]:
    """Environment of an opencode with one tool, and a short prompt."""
    models = {name: {"tool_call": True, "limit": {"context": 16384, "output": 512}}
              for name in FAMILIES}  # fmt: skip
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{families.url}/v1", "apiKey": families.token},
        "models": models,
    }
    build = {"prompt": "Help.", "tools": {"*": False, "read": True}}
    settings = {"provider": {"localspec": provider}, "agent": {"build": build}}
    (tmp_path / "opencode.json").write_text(json.dumps(settings))
    homes = {f"XDG_{name}_HOME": str(tmp_path / name) for name in ("CACHE", "DATA", "STATE")}
    places = {"HOME": str(tmp_path), "OPENCODE_CONFIG": str(tmp_path / "opencode.json")}
    return {**QUIET, **homes, **places, "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}


@pytest.mark.parametrize("family", FAMILIES)
def test_an_agent_runs_what_a_family_calls(
    family: str, agent: Mapping[str, str], tmp_path: Path
) -> None:
    """It reads the file, and the model says its sentence behind the result."""
    work = tmp_path / "work"
    work.mkdir()
    (work / ARGUMENTS["filePath"]).write_text(CONTENT)
    command = ("run", "-m", f"localspec/{family}", "--title", "t", "--format", "json", "Go.")
    lines = run(agent, work, str(OPENCODE), *command).splitlines()
    parts = [json.loads(line)["part"] for line in lines]
    [used] = [part for part in parts if part["type"] == "tool"]
    assert (used["tool"], used["state"]["input"]) == ("read", ARGUMENTS)
    assert CONTENT in used["state"]["output"]
    assert [part["text"].strip() for part in parts if part["type"] == "text"] == [SAID]
