"""`localspec config`: the effective settings, where they come from, whether they are right."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import click
import msgspec

from localspec import config as configuration
from localspec import config_file, paths
from localspec.cli import config_edit, missing_names
from localspec.cli.columns import columns, hung
from localspec.cli.groups import Group
from localspec.cli.names import complete_keys
from localspec.client import Client
from localspec.errors import LocalSpecError

_KEY = click.argument("key", shell_complete=complete_keys)


@click.group(cls=Group)
def config() -> None:
    """Show, check and change the configuration."""


@config.command()
def path() -> None:
    """Print where the configuration file is, or would be.

    Example: $EDITOR "$(localspec config path)"
    """
    click.echo(paths.config_file())


@config.command()
def check() -> None:
    """Say whether the daemon would take the file, and whether what it names is there.

    Exit code 78 if not.

    Example: localspec config check
    """
    file = paths.config_file()
    for error in missing_names.found(configuration.load(file)):
        raise error
    found = str(file) if file.exists() else f"defaults, there is no {file}"
    click.echo(hung("ok: ", found, columns()))


@config.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object of all values.")
def show(*, as_json: bool) -> None:
    """Print every key with its value.

    Keys that the file sets are marked.

    Example: localspec config show | grep engine
    """
    file = paths.config_file()
    effective = msgspec.to_builtins(configuration.load(file))
    if as_json:
        click.echo(json.dumps(effective, separators=(",", ":")))
        return
    chosen = _leaves(tomllib.loads(config_file.read(file) or ""))
    for key, value in _leaves(effective).items():
        mark = f"  # {file}" if any(key == k or key.startswith(f"{k}.") for k in chosen) else ""
        click.echo(f"{key} = {json.dumps(value)}{mark}")


@config.command()
@_KEY
def get(key: str) -> None:
    """Print the value of KEY, as text is written and lists are in TOML.

    Example: localspec config get server.tcp
    """
    leaves = _leaves(msgspec.to_builtins(configuration.load(paths.config_file())))
    below = {name: value for name, value in leaves.items() if name.startswith(f"{key}.")}
    if key not in leaves and not below:
        raise config_edit.unknown(key)
    for name, value in below.items():
        click.echo(f"{name} = {json.dumps(value)}")
    if key in leaves:
        value = leaves[key]
        click.echo(value if isinstance(value, str) else json.dumps(value))


@config.command("set", context_settings={"ignore_unknown_options": True})
@_KEY
@click.argument("value", type=click.UNPROCESSED)
def set_(key: str, value: str) -> None:
    """Write KEY = VALUE into the file; comments and everything else in it stay.

    Nothing is written that the daemon would not take. A list is written as TOML has it, or with
    commas: lookup,model.

    Example: localspec config set server.tcp 127.0.0.1:8080
    """
    _change(key, config_edit.set_to(key, value), config_edit.shown(key, value))


@config.command()
@_KEY
def unset(key: str) -> None:
    """Take KEY out of the file, so that its default holds.

    Example: localspec config unset server.tcp
    """
    _change(key, config_edit.without(key), f"{key} is as by default")


def _change(key: str, change: config_edit.Change, done: str) -> None:
    file = paths.config_file()
    config_edit.apply(
        file, change, check=missing_names.found if key.startswith("models.") else None
    )
    click.echo(hung("", f"{done}, in {file}", columns()))
    try:
        client = Client.from_environment()
        waiting = client.status().get("restart_needed", [])
    except LocalSpecError:
        return
    if key in config_edit.AFTER_RESTART or key in waiting:
        click.echo("The daemon takes it after: localspec restart", err=True)


def _leaves(table: dict[Any, Any], prefix: str = "") -> dict[str, Any]:
    """{"engine.target.threads": 0, ...} of a nested table."""
    leaves: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict) and value:
            leaves |= _leaves(value, f"{prefix}{key}.")
        else:
            leaves[f"{prefix}{key}"] = value
    return leaves
