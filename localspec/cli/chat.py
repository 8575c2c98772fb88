"""`localspec chat`: one question from arguments, files and a pipe, or the interactive loop."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, TextIO

import click

from localspec.cli import footer, launch, names, render
from localspec.cli.answer import Answer, play
from localspec.cli.transcript import MODES, Conversation
from localspec.client import Client
from localspec.errors import LocalSpecError, RequestError, TooLarge, UnknownModel
from localspec.ranges import SAMPLING

MAX_INPUT_BYTES = 8 * 1024 * 1024
"""As much as the daemon takes in one request by default."""

PULL = "localspec models pull"

_TEMPERATURE = click.FloatRange(SAMPLING["temperature"].low, SAMPLING["temperature"].high)


@click.command(short_help="Talk to the model; starts the daemon when needed.")
@click.argument("prompt", required=False)
@click.option(
    "-m",
    "--model",
    shell_complete=names.of_models,
    help="Which model answers; by default models.default.",
)
@click.option("-s", "--system", default="", help="System prompt.")
@click.option(
    "-f",
    "--file",
    "files",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Add a text file to the question; repeatable.",
)
@click.option(
    "--prediction",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Much of the answer will be as in FILE: it comes faster.",
)
@click.option("-t", "--temperature", type=_TEMPERATURE, help="0 is greedy.")
@click.option("--seed", type=int, help="Fixes every draw.")
@click.option("--max-tokens", type=click.IntRange(1), help="Cut the answer there.")
@click.option(
    "--draft",
    type=click.Choice(list(MODES)),
    default="auto",
    show_default=True,
    help="Speculate always, never, or when it pays.",
)
@click.option("--colour-origins", is_flag=True, help="Colour tokens by who proposed them.")
@click.option("--stats/--no-stats", default=True, help="The figures of the run, on stderr.")
@click.option("--json", "as_json", is_flag=True, help="The whole answer as one JSON object.")
@click.option("--stream", is_flag=True, help="With --json: one object per piece, as it comes.")
@click.option("--no-spawn", is_flag=True, help="Fail if no daemon runs instead of starting one.")
def chat(  # noqa: PLR0913  one argument per option is click's way
    *,
    prompt: str | None,
    model: str | None,
    system: str,
    files: tuple[Path, ...],
    prediction: Path | None,
    temperature: float | None,
    seed: int | None,
    max_tokens: int | None,
    draft: str,
    colour_origins: bool,
    stats: bool,
    as_json: bool,
    stream: bool,
    no_spawn: bool,
) -> None:
    """Talk to the model; starts the daemon when needed.

    Without PROMPT it opens a conversation; /help lists what can be typed there. What comes through
    a pipe is added to PROMPT.

    \b
    localspec chat
    localspec chat "Explain monads in one sentence."
    git diff | localspec chat "review"
    localspec chat "Add type hints." -f a.py --prediction a.py
    """  # noqa: D301  \b is click's mark for a paragraph that must not be wrapped
    question = gather(prompt, files, sys.stdin)
    given = {"temperature": temperature, "seed": seed, "max_tokens": max_tokens}
    conversation = Conversation(
        model=model,
        system=system,
        draft=draft,
        show_origins=colour_origins,
        params={name: value for name, value in given.items() if value is not None},
    )
    if prediction:
        if not question:
            raise click.UsageError("--prediction is of one answer: give a PROMPT.")
        conversation.params["prediction"] = _read(prediction)
    if question:
        sink = _sink(as_json=as_json, stream=stream, colour=colour_origins)
        conversation.say("user", question)
        _once(conversation, sink, spawn=not no_spawn, stats=stats, whole=as_json and not stream)
    elif as_json or not sys.stdout.isatty():
        raise click.UsageError("There is nothing to ask: give a PROMPT or pipe some text.")
    else:
        from localspec.cli.repl import Repl  # noqa: PLC0415  prompt-toolkit is slow to import

        Repl(conversation, spawn=not no_spawn, stats=stats).run()


def gather(prompt: str | None, files: tuple[Path, ...], stdin: TextIO) -> str:
    """The question: the prompt, then what was piped in, then the files, each in a fence.

    Raises RequestError for what is not UTF-8 text, TooLarge past MAX_INPUT_BYTES.
    """
    parts = [prompt] if prompt else []
    if not stdin.isatty():
        parts.append(_text(stdin.buffer.read(MAX_INPUT_BYTES + 1), "standard input"))
    parts += [_fenced(path.name, _read(path)) for path in files]
    return "\n\n".join(part for part in parts if part.strip())


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return _text(file.read(MAX_INPUT_BYTES + 1), str(path))
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error.strerror}.") from error


def _text(data: bytes, origin: str) -> str:
    if len(data) > MAX_INPUT_BYTES:
        raise TooLarge(f"{origin} is larger than {MAX_INPUT_BYTES >> 20} MiB.")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise RequestError(
            f"{origin} is not UTF-8 text: {error.reason} at byte {error.start}.",
            fix="Convert it, for example with iconv -f latin1 -t utf-8.",
        ) from error


def _fenced(name: str, text: str) -> str:
    """A file as Markdown, in a fence longer than any inside it."""
    fence = "```"
    while fence in text:
        fence += "`"
    end = "" if text.endswith("\n") else "\n"
    return f"{name}:\n{fence}\n{text}{end}{fence}"


def _sink(*, as_json: bool, stream: bool, colour: bool) -> render.Sink:
    if as_json:
        return render.JsonSink() if stream else render.SilentSink()
    if not render.can_redraw(sys.stdout):
        return render.PlainSink(sys.stdout)
    from rich.console import Console  # noqa: PLC0415  slow to import

    console = Console(highlight=False)
    return render.OriginSink(console) if colour else render.MarkdownSink(console)


def _once(
    conversation: Conversation, sink: render.Sink, *, spawn: bool, stats: bool, whole: bool
) -> None:
    """Ask one question and print the answer."""
    notice = render.Notice()
    answer = ask(conversation, sink, notice, spawn=spawn)
    if whole and answer.end:
        click.echo(json.dumps(_object(answer), ensure_ascii=False, separators=(",", ":")))
    if answer.error:
        raise answer.error
    if answer.interrupted:
        raise KeyboardInterrupt
    if stats and answer.end and not whole:
        click.secho(
            footer.line(answer.end, answer.waited_seconds),
            dim=render.can_redraw(sys.stderr),
            err=True,
        )


def ask(
    conversation: Conversation, sink: render.Sink, notice: render.Notice, *, spawn: bool
) -> Answer:
    """Send the conversation and play the answer; offers to pull a model that is not here yet."""
    try:
        client = launch.reach(spawn=spawn, tell=notice.show)
    finally:
        notice.clear()
    answer = _play(client, conversation, sink, notice)
    if isinstance(answer.error, UnknownModel) and _pulled(answer.error):
        answer = _play(client, conversation, sink, notice)
    return answer


def _play(
    client: Client, conversation: Conversation, sink: render.Sink, notice: render.Notice
) -> Answer:
    return play(client.chat(conversation.messages(), **conversation.request()), sink, notice)


def _pulled(error: LocalSpecError) -> bool:
    """True when the error is a model that can be pulled, the person agreed, and it is here now."""
    if PULL not in error.fix or not sys.stdin.isatty():
        return False
    click.echo(error.message, err=True)
    try:
        if not click.confirm("Pull it now?", default=True, err=True):
            return False
    except click.Abort:
        raise KeyboardInterrupt from None
    command = error.fix[error.fix.index(PULL) :].splitlines()[0].split()
    pull = [sys.executable, "-P", "-m", "localspec.cli.main", *command[1:4]]
    return subprocess.run(pull, check=False).returncode == 0  # noqa: S603  our own command


def _object(answer: Answer) -> dict[str, Any]:
    end = answer.end
    return {
        "content": answer.text,
        "waited_seconds": round(answer.waited_seconds, 3),
        "model": end.model if end else "",
        "finish_reason": end.reason if end else "",
        "usage": end.usage if end else {},
        "timings": end.timings if end else {},
        "speculation": end.speculation if end else {},
    }
