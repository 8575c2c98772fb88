"""Checks of configured lists: folders, hosts, shares. Pure."""

from __future__ import annotations

import math

from localspec.addresses import host_and_port
from localspec.errors import ConfigError

_MAX_DEVICES = 16
_MAX_FOLDERS = 64


def corpus(folders: tuple[str, ...]) -> None:
    """Refuse folders that are no absolute paths or named twice, or too many. Raises ConfigError."""
    for place, folder in enumerate(folders):
        if not folder.startswith(("/", "~/")) and folder != "~":
            raise ConfigError(
                f'draft.corpus names "{folder}", which is no absolute path.',
                fix='Write "/path" or "~/path", or run `localspec corpus add`.',
                param="draft.corpus",
            )
        if folder in folders[:place] or place >= _MAX_FOLDERS:
            raise ConfigError(
                f'draft.corpus names "{folder}" twice, or over {_MAX_FOLDERS} folders.',
                fix="Name each folder once.",
                param="draft.corpus",
            )


def remote(addresses: tuple[str, ...]) -> None:
    """Refuse addresses that are no host:port or named twice, or too many. Raises ConfigError."""
    for place, address in enumerate(addresses):
        if host_and_port(address) is None:
            raise ConfigError(
                f'engine.remote names "{address}", which is no host:port.',
                fix='Write ["10.0.0.2:50052"]: a name or an IPv4 address, and a port.',
                param="engine.remote",
            )
        if address in addresses[:place] or place >= _MAX_DEVICES:
            raise ConfigError(
                f'engine.remote names "{address}" twice, or over {_MAX_DEVICES} hosts.',
                fix="Name each worker-host once.",
                param="engine.remote",
            )


def split(shares: tuple[float, ...], key: str) -> None:
    """Refuse shares that are negative, infinite, all zero, or too many. Raises ConfigError."""
    name = f"{key}.tensor_split"
    fix = "Write one share for each GPU, such as [3, 1], or [] for what fits"
    if len(shares) > _MAX_DEVICES or not all(0 <= share < math.inf for share in shares):
        raise out_of_range(name, list(shares), f"{fix}; at most {_MAX_DEVICES}.")
    if shares and not sum(shares) > 0:
        raise ConfigError(
            f"{name} = {list(shares)} gives no device anything.",
            fix=f"{fix}.",
            param=name,
        )


def place(key: str, path: str) -> None:
    """Refuse a path that depends on the directory in which a command is run. Raises ConfigError."""
    if path and not path.startswith(("/", "~/")):
        raise ConfigError(
            f'{key} = "{path}" begins neither with / nor with ~/.',
            fix="Write the whole path: each command would look where it is typed.",
            param=key,
        )


def out_of_range(name: str, value: object, fix: str) -> ConfigError:
    """The error of a value out of range."""
    return ConfigError(f"{name} = {value} is out of range.", fix=fix, param=name)
