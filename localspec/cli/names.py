"""Completions of names: models, conversations, presets, slices, machines.

Each reads the disk and asks no daemon, so that Tab works where none runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from localspec.errors import LocalSpecError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def complete_models(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    """Names of models here or on an upstream; none where the settings cannot be read."""
    from localspec.catalog.registry import Registry  # noqa: PLC0415  only Tab needs it here
    from localspec.cli import chosen  # noqa: PLC0415  as above

    with contextlib.suppress(LocalSpecError, OSError):
        known = Registry(chosen.models_directory()).models()
        here = [model.name for model in known if model.installed]
        return _beginning([*here, *chosen.upstream_models()], begun.lower())
    return []


def complete_chats(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    """Names of kept conversations, the latest first."""
    from localspec.chats import archive  # noqa: PLC0415  as above

    return _beginning(archive.names(), begun)


def complete_presets(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    """Names of presets."""
    from localspec.cli import presets  # noqa: PLC0415  as above

    return _beginning(presets.names(), begun)


def complete_systems(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    """Names of presets as `chat --system` takes them, with @; any other text is a prompt itself."""
    if not begun.startswith("@"):
        return []
    return [f"@{name}" for name in complete_presets(context, parameter, begun.removeprefix("@"))]


def complete_slices(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    """Slices of the built-in suite, for the last of a list with commas."""
    from localspec.bench import suite  # noqa: PLC0415  as above

    before, comma, last = begun.rpartition(",")
    slices = dict.fromkeys(prompt.slice for prompt in suite.builtin())
    return [f"{before}{comma}{name}" for name in _beginning(slices, last)]


def complete_keys(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    """Keys of the configuration."""
    from localspec.cli import config_edit  # noqa: PLC0415  as above

    return _beginning(config_edit.keys(), begun)


def complete_machines(
    _context: click.Context, _parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    """Tables of machines that are shipped, else files."""
    from click.shell_completion import CompletionItem  # noqa: PLC0415  as above

    from localspec.bench import tables  # noqa: PLC0415  as above

    shipped = [CompletionItem(name) for name in _beginning(tables.names(), begun)]
    return shipped or [CompletionItem(begun, type="file")]


def _beginning(names: Iterable[str], begun: str) -> list[str]:
    return [name for name in names if name.startswith(begun)]
