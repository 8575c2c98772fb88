"""`localspec connect`: the configuration that another tool needs, printed, written and undone."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localspec import paths
from localspec.cli import chosen, tcp_port, waiting
from localspec.cli.columns import columns, hung
from localspec.cli.confirm import YES
from localspec.cli.connections import agents, edit, editors
from localspec.cli.connections.recipe import Daemon, Recipe
from localspec.cli.names import complete_models
from localspec.cli.render import Notice
from localspec.client import Client, Waiting
from localspec.errors import RequestError

if TYPE_CHECKING:
    from localspec.client import Json

RECIPES = editors.RECIPES | agents.RECIPES


@click.command()
@click.argument("tool", type=click.Choice(list(RECIPES)), metavar="TOOL")
@click.option("--write", is_flag=True, help="Write it into the tool's own file.")
@click.option("--restore", is_flag=True, help="Undo what --write did.")
@click.option(
    "--model", default="", metavar="NAME", shell_complete=complete_models,
    help="The model; by default the default one.",
)  # fmt: skip
@click.option("--check/--no-check", default=True, help="Send a request the way the tool will.")
@YES
def connect(  # noqa: PLR0913  one argument per option is click's way
    tool: str, *, write: bool, restore: bool, model: str, check: bool, yes: bool
) -> None:
    """Print or write what an editor or an agent needs to use the daemon.

    TOOL is llama.vim, llama.vscode, zed, continue, gptel, minuet, codecompanion, aider, opencode,
    codex, claude-code, open-webui or llm.

    A tool that needs a TCP port gets one, when asked and agreed. What a file already holds stays,
    and --restore brings back what --write changed, the port included.

    Example: localspec connect codex --write
    """
    recipe = RECIPES[tool]
    if restore:
        for line in filter(None, (_restored(tool, recipe), _door_closed())):
            click.echo(line)
        return
    daemon = _daemon(recipe, model, yes=yes)
    if check:
        daemon = replace(daemon, context=_checked(daemon))
    text = recipe.text(daemon)
    if write:
        _write(tool, recipe, text)
    else:
        click.echo(text, nl=False)
    for line in _notes(tool, recipe, daemon, written=write, checked=check):
        click.echo(hung("", line, columns(sys.stderr)), err=True)


def _notes(
    tool: str, recipe: Recipe, daemon: Daemon, *, written: bool, checked: bool
) -> Iterator[str]:
    """Notes for the user beside the text."""
    path = recipe.path(paths.home(), os.environ)
    if checked:
        yield f"checked: {daemon.model} answers"
    if recipe.redirects:
        yield f"note: {recipe.redirects}"
    if written:
        yield f"undo: localspec connect {tool} --restore"
    elif path:
        yield f"file: {path}; localspec connect {tool} --write puts it there"
    else:
        yield "These lines are for a shell, or for the file that it reads at its start."
    if recipe.then:
        yield f"then: {recipe.then.format(token=daemon.token, model=daemon.model)}"


def _daemon(recipe: Recipe, model: str, *, yes: bool) -> Daemon:
    """Where the tool will find the daemon. Raises ConfigError if it needs TCP and there is none.

    Without `model` the default model is named: some tools send whatever name they are given.
    """
    client = chosen.client()
    name = model or chosen.settings().models.default
    socket = str(client.socket_path or paths.socket_path())
    if not recipe.tcp:
        return Daemon(name, socket)
    address = tcp_port.opened(recipe.title, yes=yes)
    token = paths.state_dir() / "token"
    if not token.exists():
        waiting.running_daemon()
    return Daemon(name, socket, f"http://{address}", token.read_text(encoding="utf-8").strip())


def _checked(daemon: Daemon) -> int:
    """Get one token by the address that the tool will use. Returns the context's length, or 0."""
    waiting.running_daemon()
    client = Client(Path(daemon.socket))
    if daemon.token != "none":  # noqa: S105 - the placeholder where no token is needed
        host, _, port = daemon.url.removeprefix("http://").rpartition(":")
        client = Client(tcp=(host, int(port)), token=daemon.token)
    messages = [{"role": "user", "content": "Say yes."}]
    notice = Notice()
    try:
        for event in client.chat(messages, model=daemon.model, max_tokens=1):
            if isinstance(event, Waiting):
                notice.show(waiting.stage_text(event.text))
    finally:
        notice.clear()
    cards = {card["id"]: card.get("meta", {}) for card in client.models()}
    return int(cards.get(daemon.model, {}).get("n_ctx", 0))


def _write(tool: str, recipe: Recipe, text: str) -> None:
    """Put the text into the tool's file, and record what it replaced. Raises RequestError."""
    path = recipe.path(paths.home(), os.environ)
    if path is None:
        raise RequestError(
            f"{recipe.title} is configured by its environment.", fix=f"localspec connect {tool}"
        )
    before = _read(path)
    there = there_now = (before or b"").decode()
    record: dict[str, Any] = {"path": str(path), "ours": text, "before": {}}
    known = _record(tool)
    if recipe.form == "json":
        if known and before is not None:  # written before: take our part out first
            there = edit.unmerged(there, json.loads(known["ours"]), known["before"])
        after, record["before"] = edit.merged(there, json.loads(text))
    else:
        after = edit.blocked(there, text, recipe.comment)
    record["file"] = known["file"] if known else _coded(before)
    record["whole"] = not known or (known["whole"] and there_now == known["after"])
    record["after"] = after
    made = [str(each) for each in path.parents if not each.exists()]
    record["made"] = made or (known or {}).get("made", [])
    paths.make_private(_records())
    paths.write_atomically(_records() / f"{tool}.json", json.dumps(record).encode())
    mode = path.stat().st_mode & 0o777 if before is not None else 0o600
    paths.write_atomically(path, after.encode(), mode)
    click.echo(f"written: {path}", err=True)


def _door_closed() -> str:
    """Close the TCP port if no connected tool needs it any more. Returns a sentence or ""."""
    needed = [tool for tool, recipe in RECIPES.items() if recipe.tcp and _record(tool)]
    return "" if needed else tcp_port.closed()


def _restored(tool: str, recipe: Recipe) -> str:
    """Undo a write: the whole file where it has not changed since, else our part of it."""
    record = _record(tool)
    if record is None:
        return f"nothing to restore: {tool} was not written"
    path = Path(record["path"])
    now = _read(path)
    if now is not None:
        left = _left(record, recipe, now.decode())
        if left or record["file"] is not None:
            paths.write_atomically(path, left, path.stat().st_mode & 0o777)
        else:
            path.unlink()
            for made in record.get("made", []):
                with contextlib.suppress(OSError):  # something else was put there
                    Path(made).rmdir()
    (_records() / f"{tool}.json").unlink()
    return f"restored: {path}"


def _left(record: Json, recipe: Recipe, now: str) -> bytes:
    """The file's bytes without our part; empty if the file has nothing else."""
    if record["whole"] and now == record["after"]:
        return base64.b64decode(record["file"] or "")
    if recipe.form == "json":
        return edit.unmerged(now, json.loads(record["ours"]), record["before"]).encode()
    return edit.unblocked(now, recipe.comment).encode()


def _records() -> Path:
    return paths.state_dir() / "connections"


def _record(tool: str) -> Json | None:
    """The record of what was written for a tool and what was there before; None without one."""
    data = _read(_records() / f"{tool}.json")
    return None if data is None else json.loads(data)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _coded(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()
