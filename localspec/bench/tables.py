"""The simulated machines that are shipped with LocalSpec, by name, and those in files."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from msgspec.structs import replace

from localspec import machine
from localspec.config import Config
from localspec.errors import RequestError
from localspec.machine import Machine

_SHIPPED = Path(str(resources.files("localspec.bench"))) / "machines"


def names() -> list[str]:
    """Names of the shipped machines."""
    return sorted(path.stem for path in _SHIPPED.glob("*.toml"))


def find(name: str) -> tuple[Path, Machine]:
    """The path and content of a table, from the name of a shipped one or the path of a file.

    Raises:
        RequestError: there is no such table.
        ConfigError: the file is no table, or figures are missing.
    """
    path = file(name)
    return path, machine.read(path)


def file(name: str) -> Path:
    """The path of the table with this name or path. Raises RequestError."""
    path = _SHIPPED / f"{name}.toml" if name in names() else Path(name)
    if not path.is_file():
        raise RequestError(
            f"There is no machine {name!r}.",
            fix=f"Name a file, or one of these: {', '.join(names())}.",
            param="machine",
        )
    return path.resolve()


def config(table: Path, user: Config) -> Config:
    """The user's configuration for a daemon on a simulated machine.

    It listens at no other address and keeps loaded models: an answer may take minutes here.
    """
    return replace(
        user,
        server=replace(user.server, socket="", tcp="", keep_alive="-1"),
        engine=replace(user.engine, machine=str(table)),
    )
