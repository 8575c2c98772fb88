"""`localspec models format`: what of a template is understood, and an answer taken apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import templates
import tiny
from click.testing import CliRunner, Result

from localspec.cli.main import cli

RECORDS = templates.records()[::7]
LOOP = """{% for a in range(9999) %}{% for b in range(99999) %}{% set c = b %}{% endfor %}
{% endfor %}"""


def run(*arguments: str | Path, said: str = "") -> Result:
    """`localspec models format ...` through the real edge."""
    return CliRunner().invoke(cli, ["models", "format", *map(str, arguments)], input=said)


@pytest.mark.parametrize("one", RECORDS, ids=[one["id"] for one in RECORDS])
def test_a_record_is_read_as_it_says(one: dict[str, Any], tmp_path: Path) -> None:
    """From files, with functions and variables, whole or cut."""
    answer, tools = tmp_path / "answer.txt", tmp_path / "tools.json"
    answer.write_text(one["emitted"], encoding="utf-8", newline="")
    tools.write_text(json.dumps([{"type": "function", "function": each} for each in one["tools"]]))
    given = json.dumps(one.get("variables") or {})
    done = run(
        templates.template_of(one), "--read", answer, "--tools", tools,
        "--variables", given, "--ends", one["ends"], "--json",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["content"].strip() == one["content"].strip()
    assert found["reasoning"].strip() == one["reasoning"].strip()
    assert json.dumps(found["calls"], sort_keys=True) == json.dumps(one["calls"], sort_keys=True)


def test_a_person_sees_the_format_a_conversation_and_the_parts(tmp_path: Path) -> None:
    """Without --json; an answer may come from a pipe, functions without a wrapper."""
    template = templates.STAND_INS / "olmo3.jinja"
    shown = run(template)
    assert shown.exit_code == 0
    assert "olmo3" in shown.stdout
    assert '<function_calls>zoo_find(kind="ape", many=7)</function_calls>' in shown.stdout
    tools = tmp_path / "tools.json"
    tools.write_text('[{"name": "now"}]')
    said = "Well.\n<function_calls>\nnow()\n</function_calls>"
    read = run(template, "--read", "-", "--tools", tools, said=said)
    assert "--- content\nWell." in read.stdout
    assert "--- call now\n{}" in read.stdout


def test_a_format_is_not_taken_for_the_family() -> None:
    """Jamba writes as Hunyuan does: what is shown is the way of writing, and after whom it is."""
    shown = run(templates.STAND_INS / "jamba.jinja").stdout
    assert "format    like hunyuan's: calls begin with <tool_calls>\n" in shown
    assert "format    generic" in run(templates.STAND_INS / "gemma3.jinja").stdout


@pytest.mark.parametrize(
    ("functions", "why"), [(None, "no functions are offered"), ("other", "of --tools")]
)
def test_a_call_that_is_none_has_a_reason(tmp_path: Path, functions: str | None, why: str) -> None:
    """A mark in the words is told of: a client that offers no such function gets it as text."""
    hermes = next(one for one in templates.records() if one["family"] == "hermes" and one["calls"])
    given: list[str | Path] = []
    if functions:
        (tools := tmp_path / "tools.json").write_text(json.dumps([{"name": functions}]))
        given = ["--tools", tools]
    template = templates.template_of(hermes)
    said = 'So: <tool_call>\n{"name": "now", "arguments": {}}\n</tool_call> bye'
    found = json.loads(run(template, "--read", "-", "--json", *given, said=said).stdout)
    assert (found["content"], found["calls"]) == (said, [])
    assert "<tool_call>" in found["warning"]
    assert why in found["warning"]
    quiet = run(template, "--read", "-", "--json", said="Well.")
    assert json.loads(quiet.stdout)["warning"] is None


def test_null_is_nothing(tmp_path: Path) -> None:
    """As a program writes what it does not have."""
    tools = tmp_path / "tools.json"
    tools.write_text("null")
    done = run(templates.STAND_INS / "ling.jinja", "--variables", "null", "--tools", tools)
    assert done.exit_code == 0


def test_a_model_is_asked_by_its_file(tmp_path: Path) -> None:
    """Whose metadata hold the template."""
    model = tiny.build(tmp_path / "m.gguf")
    found = json.loads(run(model, "--json").stdout)
    assert found["format"] == "generic"
    assert "Please help." in found["conversation"]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{% if %}", "not valid Jinja"),
        (LOOP, "was stopped"),
        ("{{ 'a' * 10000000000 }}", "was stopped"),
        ("{{ messages.x.y }}", "needs a value"),
    ],
)  # fmt: skip
def test_a_template_that_fails_or_loops_is_told_in_words(
    source: str, said: str, tmp_path: Path
) -> None:
    """Within its bounds; an answer is read all the same."""
    file = tmp_path / "t.jinja"
    file.write_text(source)
    done = run(file, "--read", "-", "--json", said="Hello.")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert said in found["warning"]
    assert found["content"] == "Hello."


@pytest.mark.parametrize(
    ("option", "value"), [("--variables", "[1]"), ("--variables", "{"), ("--tools", "no")]
)
def test_what_is_no_json_is_refused(option: str, value: str, tmp_path: Path) -> None:
    """With the name of the option."""
    file = tmp_path / "f"
    file.write_text(value)
    given = str(file) if option == "--tools" else value
    done = run(templates.STAND_INS / "ling.jinja", option, given)
    assert done.exit_code == 2
    assert option in done.output
