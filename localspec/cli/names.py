"""What Tab offers in the place of a name: models, conversations, presets."""

from __future__ import annotations

import contextlib

import click
from click.shell_completion import CompletionItem

from localspec.errors import LocalSpecError


def of_models(
    _context: click.Context, _parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    """Models that are here and begin like that; nothing where that cannot be found out."""
    from localspec.catalog.registry import Registry  # noqa: PLC0415  only Tab needs it here
    from localspec.cli import chosen  # noqa: PLC0415  as above

    with contextlib.suppress(LocalSpecError, OSError):
        known = Registry(chosen.models_directory()).models()
        return [
            CompletionItem(model.name)
            for model in known
            if model.installed and model.name.startswith(begun.lower())
        ]
    return []


def of_chats(
    _context: click.Context, _parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    """Conversations that are kept, the latest first."""
    from localspec.cli import archive  # noqa: PLC0415  as above

    return [CompletionItem(name) for name in archive.names() if name.startswith(begun)]


def of_presets(
    _context: click.Context, _parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    """System prompts that have a name."""
    from localspec.cli import presets  # noqa: PLC0415  as above

    return [CompletionItem(name) for name in presets.names() if name.startswith(begun)]
