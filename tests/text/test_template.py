"""Laws of chat templates: Hugging Face's rendering, and a sentence for each failure."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from typing import Any

import pytest
import tiny

from localspec.errors import TemplateError
from localspec.text.template import CHATML, MAX_SOURCE_CHARS, Conversation, rendered

TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi <b>"},
    {"role": "assistant", "content": "Yes."},
]


def render(source: str, **variables: Any) -> str:
    """The prompt of `source` for an example conversation."""
    asked = Conversation(source, "<s>", "</s>", TALK, variables)
    return rendered(asked, now=lambda: datetime(2026, 1, 2, tzinfo=UTC)).text


@pytest.mark.parametrize("source", [CHATML, tiny.TEMPLATE])
def test_chatml_is_written_as_the_models_know_it(source: str) -> None:
    """Each turn is between its markers, unescaped, and the assistant's turn is begun."""
    assert render(source) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi <b><|im_end|>\n"
        "<|im_start|>assistant\nYes.<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ bos_token }}{{ messages[1]['content'] }}{{ eos_token }}", "<s>Hi <b></s>"),
        ("{% if tools %}no{% endif %}{% if tools is none %}none{% endif %}", "none"),
        ("  {% if true %}\n x\n  {% endif %}\ny", " x\ny"),
        ("{{ {'b': '<é>', 'a': 1} | tojson }}", '{"b": "<é>", "a": 1}'),
        ("{{ [1] | tojson(indent=2) }}", "[\n  1\n]"),
        ("{{ strftime_now('%d %b %Y') }}", "02 Jan 2026"),
        (("{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ loop.index }}"
         "{% break %}{% endfor %}"), "2"),
        ("{% generation %}{{ messages[0].role }}{% endgeneration %}", "system"),
        (("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}"
         "{% endfor %}{{ ns.n }}"), "3"),
        ("{{ messages[-1].content.split('.')[0].strip() * 2 }}{{ 6 * 7 }}{{ 2 ** 10 }}",
         "YesYes421024"),
        ("{{ messages[0].missing }}{{ messages[0].missing is defined }}", "False"),
        ("{{ messages[0].missing + 'a' + messages[0].missing }}", "a"),
        ("{% set a = [] %}{% set _ = a.append(1) %}{{ a }}", "[1]"),
        ("{{ '{\"a\": 1}' | from_json }}{{ from_json('2') }}", "{'a': 1}2"),
        ("{{ messages | map(attribute='role') | tojson }}", '["system", "user", "assistant"]'),
        ("{{ [messages[0].missing] | tojson }}", "[null]"),
        ("{{ date_string }}, {{ datetime }}", "02 Jan 2026, Jan 02 2026"),
        ("{{ enable_thinking }}{{ functions }}", "True[]"),
        ("{% for tool in tools %}{% endfor %}none", "none"),
    ],
)  # fmt: skip
def test_templates_get_what_hugging_face_gives_them(source: str, text: str) -> None:
    """The block rules, variables, filters and functions that templates in the wild rely on."""
    assert render(source) == text


def test_a_request_may_set_variables_of_its_own_but_not_ours() -> None:
    """`enable_thinking` reaches the template; `messages` and the tokens cannot be replaced."""
    assert render("{{ enable_thinking }}", enable_thinking=False) == "False"
    for name in ("add_generation_prompt", "strftime_now"):
        with pytest.raises(TemplateError, match=f"may not set {name}"):
            render("", **{name: False})


@pytest.mark.parametrize("tools", [5, "x", {"a": 1}, [5], True])
def test_variables_of_any_type_end_in_a_text_or_in_the_templates_error(tools: Any) -> None:
    """`tools` of a request are what the template makes of them, as all its variables are."""
    with contextlib.suppress(TemplateError):
        assert render("{{ tools[0].name }}", tools=tools) == ""


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{{ raise_exception('roles must alternate') }}", "refuses these messages: roles must"),
        ("{% if %}", "is not valid Jinja: line 1"),
        ("\n{% for x in messages %}", "is not valid Jinja: line 2"),
        ("{{ messages[0].a.b }}", "needs a value that the messages do not have"),
        ("{{ messages[0].content / 2 }}", "failed: TypeError"),
        ("{{ ''.__class__.__mro__ }}", "sandbox forbids"),
        ("{{ '\\ud800' }}", "not Unicode"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "was stopped"),
        ("{{ " + "(" * 50_000 + ")" * 50_000 + " }}", "was stopped"),
        ("x" * (MAX_SOURCE_CHARS + 1), "characters are allowed|are allowed"),
        ("{{ cycler.__init__.__globals__.os.system('true') }}", "sandbox forbids"),
        ("{{ (messages | map(attribute='__class__') | list)[0].mro() }}", "chat template"),
    ],
)
def test_a_template_that_fails_says_what_failed(source: str, said: str) -> None:
    """Every failure of a template is a TemplateError with a sentence."""
    with pytest.raises(TemplateError, match=said) as caught:
        render(source)
    assert len(caught.value.message) < 700
