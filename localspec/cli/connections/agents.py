"""Recipes for agents, command lines and web interfaces."""

from __future__ import annotations

import shlex

from localspec.cli.connections.recipe import Daemon, Json, Recipe, as_json

PATIENCE_MS = 3_600_000
"""Agents begin with ten thousand tokens, and give up after five minutes unless told otherwise."""


def _aider(daemon: Daemon) -> str:
    return f"""model: openai/{daemon.model}
openai-api-base: {daemon.url}/v1
openai-api-key: {daemon.token}
"""


def _opencode(daemon: Daemon) -> Json:
    model: Json = {"name": daemon.model}
    if daemon.context:
        model["limit"] = {"context": daemon.context, "output": daemon.output}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "LocalSpec",
        "options": {"baseURL": f"{daemon.url}/v1", "apiKey": daemon.token, "timeout": False},
        "models": {daemon.model: model},
    }
    return {"provider": {"localspec": provider}}


def _codex(daemon: Daemon) -> str:
    return f"""model = "{daemon.model}"
model_provider = "localspec"

[model_providers.localspec]
name = "LocalSpec"
base_url = "{daemon.url}/v1"
wire_api = "responses"
experimental_bearer_token = "{daemon.token}"
stream_idle_timeout_ms = {PATIENCE_MS}
"""


def _claude_code(daemon: Daemon) -> Json:
    environment = {
        "ANTHROPIC_BASE_URL": daemon.url,
        "ANTHROPIC_AUTH_TOKEN": daemon.token,
        "ANTHROPIC_MODEL": daemon.model,
        "ANTHROPIC_SMALL_FAST_MODEL": daemon.model,
        "API_TIMEOUT_MS": str(PATIENCE_MS),
        # Otherwise the prompt has a line that changes with every request, and no prefix is reused.
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
    }
    if daemon.context:  # Claude Code assumes a million tokens for an unknown model
        environment["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] = str(daemon.context)
        environment["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] = str(daemon.output)
    return {"env": environment}


def _open_webui(daemon: Daemon) -> str:
    return _exports({"OPENAI_API_BASE_URL": f"{daemon.url}/v1", "OPENAI_API_KEY": daemon.token})


def _llm(daemon: Daemon) -> str:
    return f"""- model_id: localspec
  model_name: {daemon.model}
  api_base: {daemon.url}/v1
  headers: {{Authorization: "Bearer {daemon.token}"}}
  supports_tools: true
  supports_schema: true
"""


def _exports(variables: dict[str, str]) -> str:
    return "".join(f"export {name}={shlex.quote(text)}\n" for name, text in variables.items())


RECIPES = {
    "aider": Recipe(
        "aider", "block", _aider, ".aider.conf.yml", then="aider",
        redirects="Every later aider asks this computer, unless a project says otherwise.",
    ),
    "opencode": Recipe(
        "opencode", "json", as_json(_opencode), ".config/opencode/opencode.json",
        then="opencode -m localspec/{model}",
    ),
    "codex": Recipe(
        "Codex", "block", _codex, ".codex/localspec.config.toml", then="codex --profile localspec"
    ),
    "claude-code": Recipe(
        "Claude Code", "json", as_json(_claude_code), ".claude/settings.json", then="claude",
        redirects="Every later claude, in every project, asks this computer and not Anthropic.",
    ),
    "open-webui": Recipe(
        "Open WebUI", "shell", _open_webui, then="open-webui serve",
        redirects="Every program of that shell that reads these variables asks this computer.",
    ),
    "llm": Recipe(
        "llm", "block", _llm, ".config/io.datasette.llm/extra-openai-models.yaml",
        then="llm -m localspec hello",
    ),
}  # fmt: skip
