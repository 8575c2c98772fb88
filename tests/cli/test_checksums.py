"""`localspec models verify`: damage that nothing else shows is found, and told apart from news."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest
import tiny
from click.testing import CliRunner, Result

from localspec.catalog import verified
from localspec.cli.main import cli


def run(*arguments: str) -> Result:
    """`localspec models ...`."""
    return CliRunner().invoke(cli, ["models", *arguments])


def test_a_file_that_changed_since_it_came_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flipped bits change neither size nor time; of what was imported no digest is known."""
    models_dir = tmp_path / "models"
    models_dir.mkdir()
    monkeypatch.setenv("LOCALSPEC_MODELS", str(models_dir))
    for name, seed in (("whole", 1), ("rotten", 2), ("own", 3)):
        path = tiny.build(models_dir / f"{name}.gguf", seed=seed)
        if name != "own":
            verified.mark(path, hashlib.sha256(path.read_bytes()).hexdigest())
    assert run("verify", "whole").exit_code == 0
    rotten = models_dir / "rotten.gguf"
    data, was = bytearray(rotten.read_bytes()), rotten.stat()
    data[-100] ^= 4
    rotten.write_bytes(data)
    os.utime(rotten, ns=(was.st_atime_ns, was.st_mtime_ns))
    assert verified.holds(rotten, verified.recorded(rotten))
    done = run("verify", "--json")
    found = {row["model"]: row for row in map(json.loads, done.stdout.splitlines())}
    assert {name: row["state"] for name, row in found.items()} == {
        "whole": "ok", "rotten": "damaged", "own": "unknown",
    }  # fmt: skip
    assert done.exit_code == 65
    assert "localspec models rm rotten" in found["rotten"]["sentence"]
    assert not verified.recorded(rotten)
    assert run("verify", "nothing").exit_code == 2
    data[:4] = b"GGML"
    rotten.write_bytes(data)
    broken = run("verify", "rotten")
    assert broken.exit_code == 65
    assert "not with GGUF" in broken.stdout
