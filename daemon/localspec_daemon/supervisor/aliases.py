"""Names of models that clients have built in, and the models they mean by `[models.aliases]`."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from localspec.catalog.registry import Registry
from localspec.config import Models
from localspec.errors import UnknownModel

_DEFAULT = "default"
"""A name that means the default model unless the table has an entry for it."""


@dataclass(frozen=True, slots=True)
class Aliases:
    """The table of one configuration. It is not used for models that are here or in the catalog."""

    models: Models

    def meant(self, name: str, registry: Registry) -> str:
        """The name of the model that `name` means; `name` itself where the table has no entry."""
        try:
            registry.find(name)
        except UnknownModel:
            found = self._looked_up(name)
            return name if found is None else found or self.models.default
        return name

    def _looked_up(self, name: str) -> str | None:
        """The table's entry: an exact name first, then patterns in their order; None for none."""
        table = {_DEFAULT: ""} | self.models.aliases
        if name in table:
            return table[name]
        return next((to for line, to in table.items() if fnmatchcase(name, line)), None)
