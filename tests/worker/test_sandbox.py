"""Laws of the process that may die: whatever a job does ends that job, soon, and nothing else."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from localspec.errors import RequestError, TemplateError
from localspec.text.formats.history import tidied
from localspec.text.grammar import Source
from localspec.text.template import CHATML, Conversation
from localspec.wire.messages import Message
from localspec.worker.sandbox import NICE, Sandbox, SandboxDied


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """One for all tests: what a job leaves behind would be seen by the next."""
    sandbox = Sandbox()
    yield sandbox
    sandbox.close()


def conversation(source: str, **variables: Any) -> Conversation:
    """One message by that template."""
    return Conversation(source, "<s>", "</s>", [{"role": "user", "content": "Hi"}], variables)


def test_jobs_are_done(sandbox: Sandbox) -> None:
    """Templates are rendered, grammars compiled, and their refusals come through as they are."""
    assert sandbox.render(conversation("{{ bos_token }}{{ messages[0].content }}")) == "<s>Hi"
    assert sandbox.compile(Source("regex", "a+")).relaxed == []
    with pytest.raises(TemplateError, match="refuses these messages: no") as refused:
        sandbox.render(conversation("{{ raise_exception('no') }}"))
    assert refused.value.param == "messages"
    with pytest.raises(RequestError, match="unclosed group"):
        sandbox.compile(Source("regex", "(a"))


@pytest.mark.parametrize("killed", [False, True])
def test_a_prepared_child_does_the_first_job(*, killed: bool) -> None:
    """Or another does, where it was killed while it waited."""
    sandbox = Sandbox()
    sandbox.prepare()
    prepared = sandbox.pid
    assert prepared is not None
    if killed:
        os.kill(prepared, signal.SIGKILL)
    assert sandbox.render(conversation("{{ bos_token }}")) == "<s>"
    assert (sandbox.pid == prepared) is not killed
    sandbox.close()


def test_arguments_of_any_json_reach_the_template(sandbox: Sandbox) -> None:
    """Integers beyond 64 bits as they are; half a surrogate pair, which is no text, as U+FFFD."""
    function = {"name": "f", "arguments": f'{{"x": {10**30}, "y": "\\ud83d", "z": 1e300}}'}
    told = tidied(Message("assistant", "", {"tool_calls": [{"function": function}]}))
    source = "{{ messages[0].tool_calls[0].function.arguments | tojson }}"
    asked = Conversation(source, "", "", [{"role": told.role, **told.extra}])
    assert sandbox.render(asked) == f'{{"x": {10**30}, "y": "\ufffd", "z": 1e+300}}'


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
    "dividing large numbers": "{{ ('f' * 6000000) | int(base=16)"
    " // ('f' * 3000000) | int(base=16) }}",
    "summing lists": "{{ ([[1] * 9] * 60000) | sum(start=[]) | length }}",
}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how much a process has")
@pytest.mark.parametrize("source", BOMBS.values(), ids=list(BOMBS))
def test_a_hostile_template_ends_soon(sandbox: Sandbox, source: str) -> None:
    """Loops, doubling, padding, powers and single calls that last end, and fill nothing up."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with pytest.raises((TemplateError, SandboxDied)):
        sandbox.render(conversation(source))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 5
    assert after.ru_maxrss <= max(before.ru_maxrss, 600 * 1024)  # of all children so far
    assert sandbox.render(conversation("{{ messages[0].content }}")) == "Hi"


@pytest.mark.parametrize(
    "text",
    [
        '{"enum": [-9223372036854775808]}',
        '{"const": -9223372036854775807}',
        '{"type": "integer", "minimum": -9223372036854775808, "maximum": -9223372036854775808}',
    ],
)
def test_a_grammar_that_crashes_the_compiler_crashes_nothing_else(
    sandbox: Sandbox, text: str
) -> None:
    """Schemas at the end of 64 bits, which `grammar.source` would have refused before."""
    with pytest.raises(SandboxDied, match="crashes"):
        sandbox.compile(Source("json_schema", text, strict=True))
    assert sandbox.compile(Source("json_schema", '{"type": "object"}')).grammar


def test_a_child_that_was_killed_is_replaced(sandbox: Sandbox) -> None:
    """A kill between two jobs does not show."""
    sandbox.render(conversation(CHATML))
    first = sandbox.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    assert sandbox.render(conversation(CHATML))
    assert sandbox.pid != first


def test_the_child_gives_way(sandbox: Sandbox) -> None:
    """It runs when the engine does not need the processor."""
    sandbox.render(conversation("hello"))
    assert sandbox.pid is not None
    mine = os.getpriority(os.PRIO_PROCESS, 0)
    assert os.getpriority(os.PRIO_PROCESS, sandbox.pid) == min(19, mine + NICE)


def test_the_child_ends_with_its_parent() -> None:
    """Closing ends it."""
    sandbox = Sandbox()
    assert sandbox.pid is None
    sandbox.render(conversation(CHATML))
    pid = sandbox.pid
    assert pid is not None
    sandbox.close()
    assert sandbox.pid is None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_the_child_exits_without_its_parent() -> None:
    """It reads the end of its socket."""
    code = (
        "import os, sys; from localspec.worker.sandbox import Sandbox; "
        "from localspec.text.grammar import Source; sandbox = Sandbox(); "
        "sandbox.compile(Source('regex', 'a')); print(sandbox.pid, flush=True); os._exit(0)"
    )
    parent = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    pid = int(parent.stdout)
    with contextlib.suppress(ProcessLookupError):
        while True:
            os.kill(pid, 0)


def test_no_job_waits_for_another() -> None:
    """A template is rendered while a grammar compiles, and one that lasts delays no other."""
    sandbox = Sandbox()
    words = " | ".join(f'"word{at:05d}"' for at in range(2800))
    slow = Source("gbnf", f"root ::= ({words})+")
    order: list[str] = []

    def compile_slowly() -> None:
        with contextlib.suppress(SandboxDied, RequestError):
            sandbox.compile(slow)
        order.append("grammar")

    thread = threading.Thread(target=compile_slowly)
    sandbox.render(conversation("warm"))
    thread.start()
    for _ in range(3):
        assert sandbox.render(conversation("{{ messages[0].content }}")) == "Hi"
        order.append("template")
    thread.join()
    assert order == ["template"] * 3 + ["grammar"]
    sandbox.close()


def test_all_grammars_of_a_request_are_one_job(sandbox: Sandbox) -> None:
    """In their order; one that is refused or crashes is the end of all."""
    schemas = [f'{{"type": "object", "properties": {{"a{at}": {{}}}}}}' for at in range(3)]
    sources = [Source("json_schema", text) for text in schemas]
    assert sandbox.compile_all(sources) == [sandbox.compile(each) for each in sources]
    with pytest.raises(RequestError, match="unclosed group"):
        sandbox.compile_all([*sources, Source("regex", "(a")])
    assert sandbox.compile_all([]) == []
