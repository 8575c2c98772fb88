"""`localspec config`: the effective settings, where they come from, and whether they are right."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import click
import msgspec

from localspec import config as configuration
from localspec import paths
from localspec.cli.columns import columns, hung


@click.group()
def config() -> None:
    """Show and check the configuration."""


@config.command()
def path() -> None:
    """Print where the configuration file is, or would be.

    Example: $EDITOR "$(localspec config path)"
    """
    click.echo(paths.config_file())


@config.command()
def check() -> None:
    """Say whether the daemon would take the file.

    Exit code 78 if it would not.

    Example: localspec config check
    """
    file = paths.config_file()
    configuration.load(file)
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
    chosen = _leaves(tomllib.loads(file.read_text(encoding="utf-8-sig"))) if file.exists() else {}
    for key, value in _leaves(effective).items():
        mark = f"  # {file}" if any(key == k or key.startswith(f"{k}.") for k in chosen) else ""
        click.echo(f"{key} = {json.dumps(value)}{mark}")


def _leaves(table: dict[Any, Any], prefix: str = "") -> dict[str, Any]:
    """{"engine.target.threads": 0, ...} of a nested table."""
    leaves: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict) and value:
            leaves |= _leaves(value, f"{prefix}{key}.")
        else:
            leaves[f"{prefix}{key}"] = value
    return leaves
