"""The settings and the daemon that a command uses, also while config.toml has a mistake.

A command that only needs the socket or the models directory goes on with the last good
configuration, as a running daemon does, and says so in a line. A command that would start a daemon
refuses.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from localspec import paths
from localspec.client import Client
from localspec.errors import ConfigError, LocalSpecError

if TYPE_CHECKING:
    from localspec.catalog.registry import Model, Registry
    from localspec.config import Config

_TOLD = "localspec.cli.chosen"


def client() -> Client:
    """A client of the daemon at LOCALSPEC_HOST, else of the configuration. Raises ConfigError."""
    found = Client.from_environment()
    tell(found.config_error)
    return found


def settings() -> Config:
    """The configuration in force."""
    from localspec import config  # noqa: PLC0415  the import costs more than most commands

    found, error = config.in_force(paths.config_file())
    tell(error)
    return found


class Chat(NamedTuple):
    """The table [chat]: whether conversations are kept, their colours, and the speed of answers."""

    keep: bool = True
    theme: str = "auto"
    verbose: bool = False


def chat() -> Chat:
    """The settings of the chat; without a config.toml the defaults, and no settings are read."""
    if not paths.is_configured():
        return Chat()
    found = settings().chat
    return Chat(found.keep, found.theme, found.verbose)


def models_directory() -> Path:
    """The directory of models; without a config.toml no settings are read."""
    chosen = settings().models.directory if paths.is_configured() else ""
    return paths.expanded(chosen) if chosen else paths.models_dir()


def files(model: str) -> tuple[Path, Path | None]:
    """The file of a model given by name or path, and its draft's file if the name has a draft.

    Raises UnknownModel.
    """
    from localspec.catalog.registry import Registry  # noqa: PLC0415  as above

    path = paths.expanded(model)
    if ("/" in model or model.lower().endswith(".gguf")) and path.exists():
        return path, None
    found = Registry(models_directory()).resolve(model)
    return found.target_path, found.draft_path


def adapters(registry: Registry, model: Model) -> list[str]:
    """A sentence for each LoRA adapter of a model, or why a configured one cannot be used."""
    table = settings().models.adapters if paths.is_configured() else {}
    try:
        found = registry.adapters(model, table, paths.config_file().parent)
    except LocalSpecError as error:
        return [error.message]
    return [f"adapter {Path(each.path).name}, scale {each.scale:g}" for each in found]


def upstream_models() -> list[str]:
    """Names of models that other servers answer for."""
    if not paths.is_configured():
        return []
    return [model for upstream in settings().upstream.values() for model in upstream.models]


def tell(error: ConfigError | None) -> None:
    """Print the error as a warning, only once in a command; nothing if `error` is None."""
    context = click.get_current_context(silent=True)
    if error is None or context is None or context.meta.get(_TOLD):
        return
    context.meta[_TOLD] = True
    from localspec.cli.columns import columns, hung  # noqa: PLC0415  only when things go wrong

    force = "The last good configuration is in force, or the defaults."
    said = f"warning: {error.message} {force} {error.fix}"
    click.echo(hung("", said, columns(sys.stderr)), err=True)
