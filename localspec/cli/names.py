"""What Tab offers in the place of a model's name."""

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
