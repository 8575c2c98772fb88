"""Copies of a user's files: which file they are of, and what goes with them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cli.test_models_command import files, models_dir, run, said

__all__ = ["files", "models_dir"]


@pytest.mark.parametrize("newer", [-1, 1])
def test_another_file_of_the_same_name_and_size_is_not_the_one_that_was_copied(
    models_dir: Path, files: tuple[Path, Path], newer: int
) -> None:
    """As a fine-tune made anew; a file that only has another date is the same."""
    file = files[0]
    assert run("pull", file, "--no-draft").exit_code == 0
    copied = models_dir / "big-model.gguf"
    when = copied.stat().st_mtime + newer
    os.utime(file, (when, when))
    assert said("pull", file, "--no-draft")["model"] == "big-model"
    data = file.read_bytes()
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    os.utime(file, (when, when))
    refused = run("pull", file, "--no-draft")
    assert refused.exit_code != 0
    assert "--name" in refused.stderr
    assert copied.read_bytes() == data


def test_what_a_killed_pull_left_goes_with_its_model(
    models_dir: Path, files: tuple[Path, Path]
) -> None:
    """Bytes beside the model or its head that no pull needs any more."""
    run("import", files[0], "--name", "big")
    (models_dir / "heads").mkdir()
    for left in ("big.gguf.partial", "big.gguf.partial.json", "heads/mtp-big.gguf.partial"):
        (models_dir / left).write_bytes(b"1234")
    freed = files[0].stat().st_size + 12
    assert said("rm", "big", "--yes") == {"model": "big", "freed_bytes": freed}
    assert [path for path in models_dir.rglob("*") if path.is_file()] == []
