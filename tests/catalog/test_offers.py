"""Tests of the catalog's families: short names, facts for a choice, and matching drafts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from localspec.catalog import entries, filenames, partner
from localspec.cli import fetching
from localspec.cli.main import cli
from localspec.engine.llama.library import native


def run(*arguments: str) -> Result:
    """`localspec models ...` through the real edge, which maps errors to exit codes."""
    return CliRunner().invoke(cli, ["models", *arguments])


def test_the_catalog_is_shown_without_a_network_and_before_what_the_hub_has(
    hub: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Models are listed by name or use: size, memory, speculation, licence."""
    hub.repos = ["someone/Qwen3-8B-GGUF"]
    shown = run("search", "qwen3-8b").stdout
    row = next(line for line in shown.splitlines() if line.startswith("qwen3-8b "))
    assert row.split()[1:7] == ["4.8", "GB", "5.6", "GB", "draft,", "lookup"]
    assert "Apache-2.0; all round" in row
    assert shown.index("qwen3-8b ") < shown.index("someone/Qwen3-8B-GGUF")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    whole = run("search")
    assert whole.exit_code == 0
    assert len(whole.stdout.splitlines()) == 1 + len(entries.offers())
    some = run("search", "coding agents")
    assert some.exit_code == 0
    assert "devstral2-24b" in some.stdout
    assert "HF_HUB_OFFLINE" in some.stderr
    assert run("search", "nosuch").exit_code != 0
    narrow = [*fetching.offered(entries.offers(), 80)]
    assert max(map(len, narrow)) <= 80
    told = json.loads(run("search", "glm", "--json").stdout)["catalog"]
    assert "glm-4.7-flash" in {each["name"] for each in told}


def test_every_model_of_the_catalog_tells_what_a_choice_needs() -> None:
    """Every model has a size, a use, and an architecture that llama.cpp reads."""
    library = Path(native._lib._name).read_bytes()  # noqa: SLF001 - where it was loaded from
    for family in entries.families():
        assert family.good_at, family.name
        assert family.architectures, family.name
        for architecture in family.architectures:
            assert architecture.encode() + b"\0" in library, architecture
        assert family.gb.keys() <= family.models.keys()
        assert set(family.usual) <= family.models.keys()
    unknown = {offer.name for offer in entries.offers() if not offer.size_bytes}
    assert unknown <= {"qwen3.8-flash-next"}
    for name in ("gpt-oss-20b", "gemma4-e4b", "lfm2.5-1.2b"):
        (offer,) = [each for each in entries.offers() if each.name == name]
        assert offer.drafted == "lookup"


def test_every_family_is_reachable_and_its_drafts_are_its_own() -> None:
    """Short names are unique, and a large model finds a smaller one of its words."""
    families = entries.families()
    names = [name for family in families for name in family.models]
    assert len(names) == len(set(names))
    assert len(families) >= 20
    for family in families:
        for repo in (*family.models.values(), *family.drafts):
            assert next(each for each in families if each.has(repo)) is family, repo
        for repo in family.models.values():
            size, found = filenames.active(repo), partner.elsewhere([repo])
            times = [size / (filenames.parameters(draft) or 1) for draft in family.drafts]
            suits = any(4 <= each <= 30 for each in times)
            assert (found is not None) == suits, repo
            assert found is None or found.name in family.drafts
    found = partner.elsewhere([entries.repository("llama3.3-70b") or ""])
    assert found is not None
    assert found.name == "bartowski/Llama-3.2-3B-Instruct-GGUF"
    mixture = partner.elsewhere(["Qwen/Qwen3-30B-A3B-GGUF"])
    assert mixture is not None
    assert mixture.name == "Qwen/Qwen3-0.6B-GGUF"
    assert mixture.share == pytest.approx(0.2)  # of the 3e9 parameters that a token uses


def test_what_a_draft_may_bring_falls_with_its_size_and_is_never_a_loss() -> None:
    """A draft that would slow decoding down is not used by the controller."""
    gains = [partner.expected_speedup(share) for share in (0.03, 0.1, 0.3, 1.0)]
    assert gains == sorted(gains, reverse=True)
    assert all(1 <= low <= high for low, high in gains)
