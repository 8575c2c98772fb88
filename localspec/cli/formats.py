"""`localspec models format`: how a chat template is understood, and how an answer would be read."""

from __future__ import annotations

import json
import resource
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, NoReturn

import click

from localspec import paths
from localspec.catalog import header, templates
from localspec.catalog.registry import Registry
from localspec.cli import chosen
from localspec.cli.columns import columns, hung
from localspec.cli.names import complete_models
from localspec.cli.render import printable
from localspec.errors import RequestError, TemplateError, UnknownModel, escaped
from localspec.types import SamplingParams, SpeculationParams
from localspec.wire.messages import Generate, Message

if TYPE_CHECKING:
    from localspec.text.dialogue import Dialogue, Turn

SECONDS, BYTES = 1.0, 512 << 20
"""Limits of processor time and of memory for one rendering, about the same as in a worker."""

_QUESTION = "Please help."
_MAX_FILE_BYTES = 32 << 20


class Source(NamedTuple):
    """A chat template and the texts of the tokens that begin and end a text."""

    template: str
    bos: str = ""
    eos: str = ""
    note: str = ""


@click.command("format")
@click.argument("model", metavar="MODEL|TEMPLATE.jinja", shell_complete=complete_models)
@click.option(
    "--read", "answer", type=click.File("rb"), help="Read this text as an answer; - is stdin."
)
@click.option("--tools", type=click.File("rb"), help="Functions offered, as in OpenAI's API.")
@click.option("--variables", metavar="JSON", help='Of the template: {"enable_thinking": false}.')
@click.option(
    "--ends",
    type=click.Choice(["stop", "length"]),
    default="stop",
    show_default=True,
    help="Whether the text came to its end, or a limit cut it off.",
)
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout, for machines.")
def show_format(  # noqa: PLR0913 - click gives each of them
    model: str,
    answer: IO[bytes] | None,
    tools: IO[bytes] | None,
    variables: str | None,
    *,
    ends: str,
    as_json: bool,
) -> None:
    """Show how the chat template of MODEL is understood, and how an answer would be read.

    Names the format of thoughts and calls and what tells it, renders a conversation with a call,
    and with --read takes a text that follows the prompt apart into words, thoughts and calls. This
    says why a call did not arrive. It needs no daemon.

    Example: localspec models format qwen2.5-coder-1.5b-instruct --read answer.txt
    """
    from localspec.text.dialogue import Dialogue  # noqa: PLC0415 - other commands do without Jinja

    source = _source(model)
    dialogue = Dialogue(source.template, _renderer(source), lambda _mark: None)
    request = _request(_list(tools), _object(variables))
    turn, refused = _turn(dialogue, request)
    found = _recognised(dialogue, source, refused)
    if answer is not None:
        found |= _read(dialogue, turn, _text(answer), cut=ends == "length")
        found["warning"] = found["warning"] or _uncalled(dialogue, found, offers=bool(tools))
    else:
        found["conversation"] = _conversation(dialogue, request)
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False))
    else:
        _print(found)


def _source(model: str) -> Source:
    """The template of a file or of a model."""
    path = paths.expanded(model)
    if path.is_file() and path.suffix.lower() != ".gguf":
        return Source(_decoded(paths.read_named(path, _MAX_FILE_BYTES)))
    from localspec.text.template import RAW  # noqa: PLC0415 - as above

    own = given(model)
    if not path.is_file():
        path = Registry(chosen.models_directory()).resolve(model).target_path
    read = header.read(path)
    template, note = own or read.chat_template, ""
    if not template:
        template, note = RAW, f"Its chat template is {templates.NONE}; {templates.REMEDY}."
    return Source(template, _special(read, "bos"), _special(read, "eos"), note)


def given(model: str) -> str | None:
    """The chat template that the configuration gives a model of that name. Raises ConfigError."""
    table = chosen.settings().models.templates
    try:
        found = Registry(chosen.models_directory()).find(model) if table else None
    except UnknownModel:  # a file by its path
        return None
    names = (found.name, *found.aliases) if found else ()
    return templates.given(names, table, paths.config_file().parent)


def _special(read: header.Header, name: str) -> str:
    """The text of the token that begins or ends a text; empty where there is none."""
    token = read.metadata.get(f"tokenizer.ggml.{name}_token_id")
    texts = read.tokens()
    known = isinstance(token, int) and 0 <= token < len(texts)
    return texts[token].decode(errors="replace") if known and isinstance(token, int) else ""


def _renderer(source: Source) -> Callable[[Sequence[Message], Mapping[str, Any]], str]:
    """A function that renders with the template, bounded; once stopped, it does not run again."""
    from localspec.text.template import Conversation, rendered  # noqa: PLC0415 - as above

    stopped: list[TemplateError] = []

    def render(messages: Sequence[Message], variables: Mapping[str, Any]) -> str:
        if stopped:
            raise stopped[0]
        turns = [{**one.extra, "role": one.role, "content": one.content} for one in messages]
        asked = Conversation(source.template, source.bos, source.eos, turns, dict(variables))
        try:
            with _bounded():
                return rendered(asked).text
        except TemplateError as error:
            if "was stopped" in error.message:
                stopped.append(error)
            raise

    return render


@contextmanager
def _bounded() -> Iterator[None]:
    """Bound the block: excess processor time is a TemplateError, excess memory a MemoryError."""

    def stop(*_: object) -> NoReturn:
        raise TemplateError(
            f"The model's chat template was stopped: it took more than {SECONDS:.0f} s.",
            param="messages",
        )

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    statm = Path("/proc/self/statm")
    if statm.exists():  # only Linux tells how much memory is used already
        held = int(statm.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (held + BYTES, hard))
    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _request(tools: list[Any], variables: dict[str, Any]) -> Generate:
    """A chat with these functions and variables."""
    return Generate(
        "format",
        "chat",
        "",
        SamplingParams(),
        SpeculationParams(),
        messages=[Message("user", _QUESTION)],
        tools=tools,
        template_kwargs=variables,
    )


def _turn(dialogue: Dialogue, request: Generate) -> tuple[Turn, str]:
    """The prompt of the request; where the template refuses it, an empty one and the reason."""
    from localspec.text.dialogue import Turn  # noqa: PLC0415 - as above
    from localspec.text.formats.choice import offered  # noqa: PLC0415 - as above

    try:
        return dialogue.turn(request), ""
    except TemplateError as error:
        return Turn("", offered(request.tools, None, parallel=True)), error.message


def _recognised(dialogue: Dialogue, source: Source, refused: str) -> dict[str, Any]:
    from localspec.text.formats.marks import likeness  # noqa: PLC0415 - as above

    known = dialogue.recognised
    warning = " ".join(dict.fromkeys(one for one in (source.note, known.warning, refused) if one))
    told = {"format": known.form.name, "likeness": likeness(known.form), "why": known.why}
    return {**told, "warning": warning or None}


def _conversation(dialogue: Dialogue, request: Generate) -> str | None:
    """A conversation with a call and its result, rendered; None where that fails."""
    import msgspec  # noqa: PLC0415 - as above

    from localspec.text.formats import recognise  # noqa: PLC0415 - as above

    tools: list[dict[str, Any]] = request.tools or recognise.TOOLS[:1]
    shape: Any = tools[0].get("function", tools[0])
    given = {"kind": "ape", "many": 7} if not request.tools else {}
    call = recognise.called(str(shape.get("name", "")), given)
    messages = [
        Message("system", "Be brief."),
        Message("user", _QUESTION),
        Message("assistant", "", {"reasoning_content": "I look.", "tool_calls": [call]}),
        Message("tool", "What the function gave.", {"tool_call_id": call["id"]}),
    ]
    with suppress(TemplateError):
        asked = msgspec.structs.replace(request, messages=messages, tools=tools)
        return dialogue.turn(asked).prompt
    return None


def _read(dialogue: Dialogue, turn: Turn, text: str, *, cut: bool) -> dict[str, Any]:
    """Words, thoughts and calls of an answer."""
    reader = dialogue.reader(turn.offer)
    if reader is None:
        return {"content": text, "reasoning": "", "calls": []}
    pieces = [*reader.push(text), *reader.finish(cut=cut)]
    calls: list[dict[str, Any]] = []
    for piece in pieces:
        if piece.kind == "call":
            calls.append({"name": piece.text, "arguments": {}})
        elif piece.kind == "arguments":
            calls[-1]["arguments"] = json.loads(piece.text)
    content, reasoning = (
        "".join(one.text for one in pieces if one.kind == kind) for kind in ("content", "reasoning")
    )
    return {"content": content, "reasoning": reasoning, "calls": calls}


def _uncalled(dialogue: Dialogue, found: Mapping[str, Any], *, offers: bool) -> str | None:
    """The reason why the words hold the mark of a call and no call was read; None otherwise."""
    from localspec.text.formats.marks import opening  # noqa: PLC0415 - as above

    openings = (opening(way) for way in dialogue.recognised.form.ways)
    mark = next((one for one in openings if len(one) > 1 and one in found["content"]), None)
    if mark is None or found["calls"]:
        return None
    why = "nothing there is a call of one of --tools" if offers else "no functions are offered"
    fix = "" if offers else "; name them by --tools"
    return f"The words hold {mark}, which begins a call: {why}{fix}."


def _print(found: Mapping[str, Any]) -> None:
    told = {"format": "likeness", "why": "why", "warning": "warning"}
    for label, name in told.items():
        if found.get(name):
            click.echo(hung(f"{label:<10}", escaped(str(found[name])), columns()))
    for name in ("conversation", "reasoning", "content"):
        if found.get(name):
            click.echo(f"\n--- {name}\n{printable(str(found[name]))}")
    for call in found.get("calls", ()):
        arguments = json.dumps(call["arguments"], ensure_ascii=False, indent=2)
        click.echo(f"\n--- call {escaped(call['name'])}\n{printable(arguments)}")


def _list(file: IO[bytes] | None) -> list[Any]:
    """The tools of a file: a list, or a request that has one. Raises RequestError."""
    if file is None:
        return []
    found = _json(_text(file), "--tools") or []
    if isinstance(found, dict):
        found = found.get("tools", [found])
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise RequestError("--tools is not a list of functions.", fix=_TOOLS, param="tools")
    return found


_TOOLS = 'Write it as in OpenAI\'s API: [{"type": "function", "function": {"name": ...}}].'


def _object(text: str | None) -> dict[str, Any]:
    found = (_json(text, "--variables") if text else None) or {}
    if not isinstance(found, dict):
        raise RequestError(
            "--variables is not a JSON object.",
            fix='Write it as {"enable_thinking": false}.',
            param="variables",
        )
    return found


def _json(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{what} is not JSON: {error}.", param=what.strip("-")) from error


def _text(file: IO[bytes]) -> str:
    return _decoded(file.read(_MAX_FILE_BYTES))


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")
