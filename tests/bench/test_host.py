"""The host path's micro-benchmark: that it runs the real parts and reports each of them."""

from __future__ import annotations

import msgspec
from click.testing import CliRunner

from localspec.bench.host import HostPath
from localspec.cli.main import cli

PARTS = {
    "lookup proposal",
    "controller plan",
    "controller trees",
    "controller cut",
    "verification",
    "certainty",
    "drafters' commit",
    "controller observe",
}


def test_every_part_of_a_round_is_reported() -> None:
    """Greedy and sampled, each with all parts, from the command and no daemon."""
    done = CliRunner().invoke(cli, ["bench", "--host", "--json"])
    assert done.exit_code == 0, done.stderr
    found = msgspec.json.decode(done.stdout, type=HostPath)
    assert (found.rows, found.vocabulary) == (8, 151_936)
    assert set(found.ways) == {"greedy", "sampled"}
    for way in found.ways.values():
        assert way.rounds > 100
        assert set(way.parts) == PARTS
        assert all(0 < span.least_ms <= span.median_ms for span in way.parts.values())
    assert set(found.undrafted) == {"plain", "speculating"}
    assert all(0 < span.least_ms <= span.median_ms for span in found.undrafted.values())


def test_people_see_the_limit_below_the_round() -> None:
    """One table a way, whose parts and rest are followed by the sum and what it should be."""
    done = CliRunner().invoke(cli, ["bench", "--host"])
    assert done.exit_code == 0, done.stderr
    assert done.stdout.count("Host time of a round, ") == 2
    assert done.stdout.count("Host time of a round that drafts nothing") == 1
    lines = [line.split()[0] for line in done.stdout.splitlines() if line.strip()]
    assert lines.count("limit") == 2
    assert lines[lines.index("limit") - 2 : lines.index("limit")] == ["rest", "round"]
