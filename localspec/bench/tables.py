"""The simulated machines that are part of LocalSpec, by name, and those of files."""

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
    """Read a table, by the name of a shipped one or the path of a file. Returns it and its path.

    Raises:
        RequestError: there is no such table.
        ConfigError: it is none, or has holes.
    """
    path = file(name)
    return path, machine.read(path)


def file(name: str) -> Path:
    """The path of the table of that name or path. Raises RequestError."""
    path = _SHIPPED / f"{name}.toml" if name in names() else Path(name)
    if not path.is_file():
        raise RequestError(
            f"There is no machine {name!r}.",
            fix=f"Name a file, or one of these: {', '.join(names())}.",
            param="machine",
        )
    return path.resolve()


def config(table: Path, user: Config) -> Config:
    """The user's configuration for a daemon on that machine.

    It listens nowhere else, and keeps what it has loaded: an answer may take minutes here.
    """
    return replace(
        user,
        server=replace(user.server, socket="", tcp="", keep_alive="-1"),
        engine=replace(user.engine, machine=str(table)),
    )
