"""`localspec run`, `ps` and `help`: a model by its name, what is loaded, what a command does."""

from __future__ import annotations

import json
from typing import Any

import click

from localspec import paths
from localspec.cli import chosen, names
from localspec.cli.chat import chat
from localspec.cli.columns import columns, cut
from localspec.cli.status import size, span
from localspec.client import Json
from localspec.errors import LocalSpecError, escaped


def _run(model: str, **options: Any) -> None:
    """Talk to MODEL, which is pulled first if it is not here.

    MODEL is whatever `localspec models pull` takes: a name, OWNER/REPO of the Hugging Face Hub, a
    URL, or a GGUF file of yours. WORDS are the question; without any it opens a conversation.

    \b
    localspec run qwen2.5-coder-1.5b-instruct
    localspec run qwen3-8b Explain monads in one sentence.
    git diff | localspec run ./my-model.gguf review
    """  # noqa: D301  \b is click's mark for a paragraph that must not be wrapped
    from localspec.cli import obtain  # noqa: PLC0415  what asks the Hub is slow to import

    assert chat.callback is not None  # noqa: S101  click's type allows commands without one
    chat.callback(model=model if _known(model) else obtain.fetched_name(model), **options)


def _known(model: str) -> bool:
    """Whether the daemon, or an upstream of it, already serves a model of that name."""
    if paths.expanded(model).exists():
        return False
    try:
        return model in {entry["id"] for entry in chosen.client().models()}
    except LocalSpecError:
        return False


_MODEL = click.Argument(["model"], shell_complete=names.complete_models)
_HIDDEN = {"model", "words"}
run = click.Command(
    "run",
    callback=_run,
    params=[
        _MODEL,
        click.Argument(["words"], nargs=-1, metavar="[WORDS]..."),
        *(option for option in chat.params if option.name not in _HIDDEN),
    ],
    help=_run.__doc__,
    short_help="Talk to a model, which is pulled at first use.",
)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout, for machines.")
def ps(*, as_json: bool) -> None:
    """Show which models are loaded, in which memory, and how busy they are.

    Exit code 69 if no daemon runs.

    Example: localspec ps
    """
    found = [model for model in chosen.client().status()["models"] if _is_loaded(model)]
    if as_json:
        click.echo(json.dumps(found, separators=(",", ":")))
        return
    if not found:
        click.echo("No model is loaded; the first question loads one.", err=True)
        return
    width = max(len("NAME"), *(len(model["name"]) for model in found))
    click.echo(f"{'NAME':{width}}  {'MEMORY':20}  DOING")
    for model in found:
        row = f"{model['name']:{width}}  {_memory(model):20}  {_doing(model)}"
        click.echo(cut(escaped(row), columns()))


def _is_loaded(model: Json) -> bool:
    return model["state"] not in {"unloaded", "failed"}


def _memory(model: Json) -> str:
    held = model.get("memory") or {}
    return ", ".join(f"{size(count)} {device}" for device, count in held.items()) or "-"


def _doing(model: Json) -> str:
    from localspec.cli.waiting import stage  # noqa: PLC0415  only where something is loaded

    if loading := model.get("loading"):
        return stage(loading)
    busy = [f"{model[key]} {what}" for key, what in _COUNTED if model.get(key)]
    if not busy and model.get("idle_seconds") is not None:
        return f"idle for {span(model['idle_seconds'])}"
    return ", ".join(busy) or str(model["state"])


_COUNTED = (("active", "answering"), ("queued", "waiting"))


@click.command("help")
@click.argument("command", nargs=-1)
@click.pass_context
def help_(context: click.Context, command: tuple[str, ...]) -> None:
    """Show the help of a command, or of all.

    Example: localspec help models pull
    """
    found = context.find_root()
    for name in command:
        if not isinstance(found.command, click.Group):
            break
        _, child, _ = found.command.resolve_command(found, [name])
        found = click.Context(child or found.command, info_name=name, parent=found)
    click.echo(found.get_help(), color=context.color)
