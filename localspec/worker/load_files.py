"""The files of a load."""

from __future__ import annotations

from pathlib import Path

from localspec import drafters
from localspec.errors import ModelError
from localspec.wire.messages import Load


def adapter_files(command: Load) -> list[Path]:
    """The files of LoRA adapters, by their ids."""
    return [Path(adapter.path) for adapter in command.adapters]


def model_files(command: Load) -> list[Path]:
    """The files of target and draft.

    Raises:
        ModelError: one of them is not there.
        ConfigError: config names a drafter that does not exist.
    """
    files = [Path(name) for name in (command.target_path, command.draft_path) if name]
    for file in files:
        if not file.is_file():
            raise ModelError(f"There is no file {file}.", fix="Run `localspec models list`.")
    for kind in command.config.speculation.drafters:
        drafters.takes(kind)  # a wrong name is told before anything large is loaded
    return files
