"""The settings and the daemon that a command means, also while config.toml has a mistake.

A command that only needs the socket or the models directory goes on with the last good
configuration, as the daemon does, and says so in a line.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from localspec import paths
from localspec.client import Client
from localspec.errors import ConfigError

if TYPE_CHECKING:
    from localspec.config import Config

_TOLD = "localspec.cli.chosen"


def client() -> Client:
    """The daemon meant by LOCALSPEC_HOST, else by the configuration. Raises ConfigError."""
    found = Client.from_environment()
    _tell(found.config_error)
    return found


def settings() -> Config:
    """The configuration in force."""
    from localspec import config  # noqa: PLC0415  the import costs more than most commands

    found, error = config.in_force(paths.config_file())
    _tell(error)
    return found


class Chat(NamedTuple):
    """The table [chat]: whether conversations are kept, their colours, and the speed of answers."""

    keep: bool = True
    theme: str = "auto"
    verbose: bool = False


def chat() -> Chat:
    """How the chat is wanted; where there is no file this is known without reading settings."""
    if not paths.config_file().exists():
        return Chat()
    found = settings().chat
    return Chat(found.keep, found.theme, found.verbose)


def models_directory() -> Path:
    """Where models are; as for `chat`, settings are not read where there are none."""
    chosen = settings().models.directory if paths.config_file().exists() else ""
    return Path(chosen).expanduser() if chosen else paths.models_dir()


def upstream_models() -> list[str]:
    """The names of models that are asked of other servers."""
    if not paths.config_file().exists():
        return []
    return [model for upstream in settings().upstream.values() for model in upstream.models]


def _tell(error: ConfigError | None) -> None:
    """One line for one command, however often it asks."""
    context = click.get_current_context(silent=True)
    if error is None or context is None or context.meta.get(_TOLD):
        return
    context.meta[_TOLD] = True
    from localspec.cli.columns import columns, hung  # noqa: PLC0415  only when things go wrong

    said = f"warning: {error.message} {error.fix} The last good configuration is in force."
    click.echo(hung("", said, columns(sys.stderr)), err=True)
