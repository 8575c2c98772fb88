"""Finds names in the configuration of what does not exist: models, tables of machines, files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from localspec import machine, paths
from localspec.catalog.registry import Registry
from localspec.config import Config
from localspec.errors import ConfigError, LocalSpecError, UnknownModel


def found(config: Config) -> Iterator[ConfigError]:
    """Yield an error for each missing thing; an unpulled model of the catalog is not missing."""
    yield from _models(config)
    for name, upstream in config.upstream.items():
        if upstream.token_file and not paths.expanded(upstream.token_file).is_file():
            yield _missing(
                f"upstream.{name}.token_file", upstream.token_file, "There is no such file."
            )
    if config.engine.machine:
        try:
            machine.read(Path(config.engine.machine))
        except LocalSpecError as error:
            yield _missing("engine.machine", config.engine.machine, error.message, error.fix)


def _models(config: Config) -> Iterator[ConfigError]:
    from localspec.cli import chosen  # noqa: PLC0415  above it would be circular

    directory = config.models.directory
    if directory and not paths.expanded(directory).is_dir():
        yield _missing("models.directory", directory, "There is no such directory.")
        return
    registry = Registry(paths.expanded(directory) if directory else chosen.models_directory())
    elsewhere = {model for upstream in config.upstream.values() for model in upstream.models}
    named = {"models.default": config.models.default}
    named |= {f"models.aliases.{name}": model for name, model in config.models.aliases.items()}
    for key, model in named.items():
        if model and model not in elsewhere:
            try:
                registry.find(model)
            except UnknownModel as error:
                yield _missing(key, model, error.message, error.fix)


def _missing(key: str, value: str, why: str, fix: str = "") -> ConfigError:
    return ConfigError(f'{key} = "{value}": {why}', fix=fix, param=key)
