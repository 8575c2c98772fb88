"""Chat templates of a user, and models without one: real daemon, real worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny
from click.testing import CliRunner

from localspec.catalog import templates
from localspec.cli.main import cli
from localspec.errors import ConfigError
from localspec_daemon.supervisor.worker import COMMAND

MESSAGES = [
    {"role": "system", "content": "Once upon"},
    {"role": "user", "content": "a time there was"},
]


async def prompt(running: Any, model: str) -> str:
    """Returns a chat's prompt from llama-server's endpoint."""
    status, found = await running.post("/apply-template", {"model": model, "messages": MESSAGES})
    assert status == 200, found
    return str(found["prompt"])


def test_a_base_model_goes_on_with_what_was_said_and_a_template_can_be_given(
    harness: Any, daemon: Callable[..., Any]
) -> None:
    """Without a template messages are plain text, which the status shows; the setting adds one."""
    base = tiny.build(harness.models / "base.gguf", template="")
    for name in ("other-base", "word", "gone"):
        (harness.models / f"{name}.gguf").write_bytes(base.read_bytes())
    table = {"other*": "mine.jinja", "word": "chatml", "gone": "nowhere.jinja"}
    harness.configure(models={"templates": table}, engine={"context": 512})
    mine = harness.config_path.parent / "mine.jinja"
    mine.write_text("{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}")

    async def scenario() -> None:
        async with daemon(harness, COMMAND) as running:
            assert await prompt(running, "base") == "Once upon\n\na time there was"
            assert await prompt(running, "other-base") == "[system]Once upon[user]a time there was"
            assert (await prompt(running, "word")).startswith(
                "<|im_start|>system\nOnce upon<|im_end|>"
            )
            body = {"model": "base", "messages": MESSAGES, "max_tokens": 4}
            status, answer = await running.post("/v1/chat/completions", body)
            assert status == 200, answer
            _, refused = await running.post("/v1/chat/completions", body | {"model": "gone"})
            assert "nowhere.jinja cannot be read" in refused["error"]["message"]
            found = await running.get("/v1/status")
            said = {model["name"]: model.get("template") or "" for model in found["models"]}
            assert said["base"].startswith(templates.NONE)
            assert "models.templates" in said["other-base"]
            assert (await running.get("/props?model=other-base"))[
                "chat_template"
            ] == mine.read_text()
            mine.write_text("now{% for m in messages %} {{ m.content }}{% endfor %}")
            await running.server.supervisor.reload(True)
            assert await prompt(running, "other-base") == "now Once upon a time there was"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (("exact",), "E"),
        (("EXACT", "owner/exact-gguf"), "E"),
        (("some-base",), "P"),
        (("m", "owner/m-base"), "P"),
        (("none",), None),
        ((), None),
    ],
)
def test_an_exact_line_goes_before_a_pattern(
    tmp_path: Path, names: tuple[str, ...], found: str | None
) -> None:
    """Any name of the model matches."""
    (tmp_path / "p.jinja").write_text("P")
    (tmp_path / "e.jinja").write_text("E")
    table = {"*exact": "p.jinja", "*-base": str(tmp_path / "p.jinja"), "exact": "e.jinja"}
    assert templates.given(names, table, tmp_path) == found


@pytest.mark.parametrize("content", [b"\xff\xfe", b"x" * (templates.MAX_BYTES + 1), None])
def test_a_file_that_is_no_template_is_a_sentence(tmp_path: Path, content: bytes | None) -> None:
    """It names the configuration's line."""
    if content is not None:
        (tmp_path / "t.jinja").write_bytes(content)
    with pytest.raises(ConfigError) as refused:
        templates.given(["m"], {"m": "t.jinja"}, tmp_path)
    assert refused.value.param == "models.templates.m"
    assert "t.jinja" in refused.value.message


def test_show_says_which_template_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None, the file's, or the user's."""
    monkeypatch.setenv("LOCALSPEC_MODELS", str(tmp_path))
    monkeypatch.setenv("LOCALSPEC_CONFIG", str(tmp_path / "config.toml"))
    tiny.build(tmp_path / "base.gguf", template="")
    runner = CliRunner()
    assert "continued as plain text" in runner.invoke(cli, ["models", "show", "base"]).stdout
    (tmp_path / "config.toml").write_text('[models.templates]\n"base" = "chatml"\n')
    assert "yours, by" in runner.invoke(cli, ["models", "show", "base"]).stdout
    shown = runner.invoke(cli, ["models", "show", "base", "--template"]).stdout
    assert "im_start" in shown
