"""`localspec chat`: one question from arguments, files and a pipe, or the interactive loop."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

import click

from localspec.chats import archive
from localspec.chats.transcript import MODES, Conversation
from localspec.cli import chosen, footer, material, names, pictures, presets, render
from localspec.cli.answer import Answer
from localspec.cli.asking import ask
from localspec.cli.columns import columns, hung
from localspec.cli.groups import Number
from localspec.client import End
from localspec.errors import LocalSpecError
from localspec.ranges import SAMPLING

_TEMPERATURE = Number(SAMPLING["temperature"].low, SAMPLING["temperature"].high)


@click.command(short_help="Talk to the model; starts the daemon when needed.")
@click.argument("words", nargs=-1, metavar="[PROMPT]...")
@click.option(
    "-m",
    "--model",
    shell_complete=names.complete_models,
    help="Which model answers; by default models.default.",
)
@click.option(
    "-s",
    "--system",
    default="",
    shell_complete=names.complete_systems,
    help="System prompt, or @PRESET variable=value ...",
)
@click.option("-c", "--continue", "latest", is_flag=True, help="Go on with the last conversation.")
@click.option(
    "--chat",
    "kept_name",
    metavar="NAME",
    shell_complete=names.complete_chats,
    help="Go on with that one; `localspec chats` lists them.",
)
@click.option(
    "-f",
    "--file",
    "files",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Add a text file or a picture to the question; repeatable.",
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
    help="Speculate always, never, or, by default, when it pays.",
)
@click.option("--colour-origins", is_flag=True, help="Colour tokens by who proposed them.")
@click.option(
    "-v/-q",
    "--verbose/--no-verbose",
    default=None,
    help="Say how fast the answer came, in a terminal; by default chat.verbose.",
)
@click.option("--stats/--no-stats", default=None, hidden=True)
@click.option("--json", "as_json", is_flag=True, help="The whole answer as one JSON object.")
@click.option("--stream", is_flag=True, help="With --json: one object per piece, as it comes.")
@click.option("--no-spawn", is_flag=True, help="Fail if no daemon runs instead of starting one.")
def chat(  # noqa: PLR0913  one argument per option is click's way
    *,
    words: tuple[str, ...],
    model: str | None,
    system: str,
    latest: bool,
    kept_name: str | None,
    files: tuple[Path, ...],
    prediction: Path | None,
    temperature: float | None,
    seed: int | None,
    max_tokens: int | None,
    draft: str | None,
    colour_origins: bool,
    verbose: bool | None,
    stats: bool | None,
    as_json: bool,
    stream: bool,
    no_spawn: bool,
) -> None:
    """Talk to the model; starts the daemon when needed.

    Without PROMPT it opens a conversation; /help lists what can be typed there. What comes through
    a pipe is added to PROMPT.

    \b
    localspec chat
    localspec chat Explain monads in one sentence.
    git diff | localspec chat "review"
    localspec chat "Add type hints." -f a.py --prediction a.py
    """  # noqa: D301  \b is click's mark for a paragraph that must not be wrapped
    shown = [path for path in files if pictures.is_picture(path)]
    texts = tuple(path for path in files if path not in shown)
    question = material.gather(" ".join(words), texts, sys.stdin)
    verbose = stats if verbose is None else verbose  # --stats is the option's older name
    if model is not None and "/" in model:
        from localspec.cli import fetching  # noqa: PLC0415  what asks the Hub is slow to import

        fetching.offer(model)
    given = {"temperature": temperature, "seed": seed, "max_tokens": max_tokens}
    resumes = latest or kept_name is not None
    conversation = archive.load(kept_name or archive.latest()) if resumes else Conversation()
    conversation.model = model or conversation.model
    conversation.system = presets.expanded(system) or conversation.system
    conversation.draft = draft or conversation.draft
    conversation.show_origins = colour_origins
    conversation.params |= {name: value for name, value in given.items() if value is not None}
    if prediction:
        if not question:
            raise click.UsageError("--prediction is of one answer: give a PROMPT.")
        conversation.prediction = material.read(prediction)
    if shown:
        labels = [pictures.attach(conversation, path) for path in shown]
        question = "\n\n".join([*([question] if question else []), *labels])
    if question:
        sink = _sink(as_json=as_json, stream=stream, colour=colour_origins)
        if left := conversation.take_back("user"):  # a crash left it without an answer
            said = f"The last question had no answer and is left out; it was:\n{left}"
            click.echo(render.printable(said), err=True)
        conversation.say("user", question)
        answer = ask(conversation, sink, render.Notice(), spawn=not no_spawn)
        try:
            _conclude(answer, verbose=verbose, as_json=as_json, stream=stream)
        finally:  # a full disk costs no answer that is here
            if resumes and answer.text:
                conversation.say("assistant", answer.text)
                archive.keep(conversation)
    elif as_json or not sys.stdout.isatty():
        raise click.UsageError("There is nothing to ask: give a PROMPT or pipe some text.")
    else:
        _converse(conversation, resumes=resumes, spawn=not no_spawn, verbose=verbose)


def _converse(
    conversation: Conversation, *, resumes: bool, spawn: bool, verbose: bool | None
) -> None:
    """The conversation at this terminal; the model is loaded while the first line is typed."""
    from localspec.cli.opening import opened  # noqa: PLC0415  one question does not need these
    from localspec.cli.talk import Talk  # noqa: PLC0415  as above
    from localspec.cli.theme import theme  # noqa: PLC0415  as above

    settings = chosen.chat()
    talk = Talk(
        conversation,
        spawn=spawn,
        verbose=settings.verbose if verbose is None else verbose,
        look=theme(settings.theme),
        keep=settings.keep,
    )
    if resumes:
        talk.resume(conversation)
    with opened(talk.look):
        from localspec.cli import repl  # noqa: PLC0415  prompt-toolkit is slow to import

        repl.run(talk, talk.open)


def _sink(*, as_json: bool, stream: bool, colour: bool) -> render.Sink:
    if as_json:
        return render.JsonSink() if stream else render.SilentSink()
    if not render.can_redraw(sys.stdout):
        return render.PlainSink(sys.stdout)
    from rich.console import Console  # noqa: PLC0415  slow to import

    from localspec.cli.live import MarkdownSink  # noqa: PLC0415  as above
    from localspec.cli.origins import OriginSink  # noqa: PLC0415  as above
    from localspec.cli.screen import Screen  # noqa: PLC0415  as above
    from localspec.cli.theme import theme  # noqa: PLC0415  as above

    screen = Screen(Console(highlight=False))
    if colour:
        return OriginSink(screen)
    return MarkdownSink(screen, theme(chosen.chat().theme))


def _conclude(answer: Answer, *, verbose: bool | None, as_json: bool, stream: bool) -> None:
    """Print the end of an answer: the JSON object, the speed, or why it is not whole."""
    if as_json and not stream and answer.end:
        render.emit(_object(answer))
    if answer.error:
        raise answer.error
    if answer.interrupted:
        raise KeyboardInterrupt
    if answer.end and not as_json and _is_watched():
        wanted = chosen.chat().verbose if verbose is None else verbose
        if wanted:
            _tell_speed(answer.end)


def _is_watched() -> bool:
    return sys.stdout.isatty() and sys.stderr.isatty()


def _tell_speed(end: End) -> None:
    """Print the line of figures, on a terminal only: for programs there is --json."""
    from localspec.cli.talk import plain_ms  # noqa: PLC0415  slow to import, only for the figures

    known_ms = 0.0
    with contextlib.suppress(LocalSpecError, OSError):
        known_ms = plain_ms(chosen.client(), end)
    figures = hung("", footer.line(end, known_ms), columns(sys.stderr))
    click.secho(figures, dim=render.can_redraw(sys.stderr), err=True)


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
