"""Tests of the verdicts on files, which are kept as long as file and rules are the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tiny

from localspec import paths
from localspec.catalog import soundness


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sound model whose verdict is kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tiny.build(tmp_path / "tiny.gguf")
    assert soundness.broken([path]) == {}
    return path


def kept() -> dict[str, list[int | str]]:
    """The record of verdicts."""
    found: dict[str, list[int | str]] = json.loads((paths.cache_dir() / "headers.json").read_text())
    return found


def keep(record: dict[str, list[int | str]]) -> None:
    """Replace the record of verdicts."""
    (paths.cache_dir() / "headers.json").write_text(json.dumps(record))


def test_a_verdict_is_kept_while_file_and_rules_are_the_same(model: Path) -> None:
    """Then no header is read, so the record is believed."""
    *state, _ = kept()[str(model)]
    keep({str(model): [*state, "It is said to be broken."]})
    assert soundness.broken([model]) == {model: "It is said to be broken."}


def test_a_verdict_by_other_rules_is_found_again(model: Path) -> None:
    """An upgrade may bring rules that a file breaks, or take one away."""
    *state, rules, _ = kept()[str(model)]
    assert isinstance(rules, int)
    keep({str(model): [*state, rules + 1, "Another version refused it."]})
    assert soundness.broken([model]) == {}
    assert kept()[str(model)] == [*state, rules, ""]


def test_a_record_without_rules_is_left(model: Path) -> None:
    """So was it kept before rules had a version."""
    *state, rules, _ = kept()[str(model)]
    keep({str(model): [*state, "An old version refused it."]})
    assert soundness.broken([model]) == {}
    assert kept()[str(model)] == [*state, rules, ""]
