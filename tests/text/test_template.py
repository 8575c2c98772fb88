"""Laws of chat templates: Hugging Face's rendering, and hard bounds for hostile ones."""

from __future__ import annotations

import resource
import sys
import time
from datetime import UTC, datetime
from typing import Any

import pytest
import tiny

from localspec.errors import TemplateError
from localspec.protocol import Message
from localspec.text.template import CHATML, MAX_SOURCE_CHARS, ChatTemplate

TALK = [Message("system", "Be brief."), Message("user", "Hi <b>"), Message("assistant", "Yes.")]


def render(source: str | None, messages: list[Message] | None = None, **extra: Any) -> str:
    """What `source` makes of `messages`."""
    template = ChatTemplate(
        source, bos="<s>", eos="</s>", now=lambda: datetime(2026, 1, 2, tzinfo=UTC)
    )
    return template.render(TALK if messages is None else messages, extra)


@pytest.mark.parametrize("source", [None, CHATML, tiny.TEMPLATE])
def test_chatml_is_written_as_the_models_know_it(source: str | None) -> None:
    """Each turn between its markers, nothing escaped, ending where the assistant begins."""
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
    ],
)  # fmt: skip
def test_templates_get_what_hugging_face_gives_them(source: str, text: str) -> None:
    """The block rules, variables, filters and functions that templates in the wild rely on."""
    assert render(source) == text


def test_fields_beside_role_and_content_reach_the_template() -> None:
    """A message's other fields are there, but they cannot replace its role or content."""
    message = Message("tool", "42", {"name": "add", "role": "system", "content": "no"})
    source = "{% for m in messages %}{{ m.role }} {{ m.name }} {{ m.content }}{% endfor %}"
    assert render(source, [message]) == "tool add 42"


def test_a_request_may_set_variables_of_its_own_but_not_ours() -> None:
    """`enable_thinking` reaches the template; `messages` and the tokens cannot be replaced."""
    assert render("{{ enable_thinking }}", enable_thinking=False) == "False"
    with pytest.raises(TemplateError, match="may not set add_generation_prompt"):
        render("", add_generation_prompt=False)


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
        ("{{ messages.append(1) }}", "sandbox forbids"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "was stopped"),
        ("{{ " + "(" * 50_000 + ")" * 50_000 + " }}", "was stopped"),
        ("x" * (MAX_SOURCE_CHARS + 1), "characters are allowed|are allowed"),
        ("{{ cycler.__init__.__globals__.os.system('true') }}", "sandbox forbids"),
        ("{{ (messages | map(attribute='__class__') | list)[0].mro() }}", "chat template"),
    ],
)
def test_a_template_that_fails_says_what_failed(source: str, said: str) -> None:
    """Whatever goes wrong in a template, a TemplateError says it in a sentence."""
    with pytest.raises(TemplateError, match=said) as caught:
        render(source)
    assert len(caught.value.message) < 700


LOOP = "{% for a in range(99999) %}"
BOMBS = {
    "silent loops": LOOP * 4 + "{% endfor %}" * 4,
    "printing loops": LOOP * 3 + "xxxxxxxxxxxxxxxx" + "{% endfor %}" * 3,
    "doubling text": "{% set ns = namespace(x='ab') %}{% for i in range(99) %}"
    "{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
    "doubling lists": "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}"
    "{% set ns.x = ns.x + ns.x %}{% endfor %}",
    "repetition": "{{ 'a' * 10 ** 12 }}",
    "centering": "{{ 'a' | center(10 ** 12) }}",
    "padding": "{{ 'a'.ljust(10 ** 12) }}",
    "formatting": "{{ '%999999999999d' % 1 }}",
    "a power": "{{ 10 ** (10 ** 8) }}",
    "a tower of powers": "{{ 9 ** (9 ** (9 ** 9)) }}",
    "squaring": "{% set ns = namespace(x=3) %}{% for i in range(99) %}"
    "{% set ns.x = ns.x * ns.x %}{% endfor %}{{ ns.x }}",
    "a huge range": "{{ range(10 ** 12) | list }}",
    "nested maps": "{{ (range(99999) | list * 900) | map('string') | map('length') | sum }}",
}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how much a process has")
@pytest.mark.parametrize("source", BOMBS.values(), ids=list(BOMBS))
def test_a_hostile_template_ends_soon(source: str) -> None:
    """Loops, doubling, padding and powers end with a TemplateError; nothing hangs or fills up."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.thread_time()
    with pytest.raises(TemplateError):
        render(source)
    assert time.thread_time() - began < 3
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 400 * 1024


def test_bounds_leave_nothing_behind() -> None:
    """After a template was stopped, tracing and the limits of the process are as before."""
    before = (sys.gettrace(), resource.getrlimit(resource.RLIMIT_AS))
    with pytest.raises(TemplateError):
        render(BOMBS["silent loops"])
    assert (sys.gettrace(), resource.getrlimit(resource.RLIMIT_AS)) == before
