"""The host path's micro-benchmark: that it runs the real parts and reports each of them."""

from __future__ import annotations

from localspec.bench import host


def test_every_part_of_a_round_is_reported() -> None:
    """Greedy and sampled, each with all parts and a round that lasts at least as long as any."""
    found = host.measure()
    assert (found.rows, found.vocabulary) == (8, 151_936)
    assert set(found.ways) == {"greedy", "sampled"}
    for way in found.ways.values():
        assert way.rounds > 100
        assert set(way.parts) == {
            "lookup proposal",
            "controller plan",
            "controller cut",
            "verification",
            "certainty",
            "drafters' commit",
            "controller observe",
        }
        assert all(0 < span.least_ms <= span.median_ms for span in way.parts.values())
    tables = host.tables(found)
    assert [table.rows[-1][0] for table in tables] == ["limit", "limit"]
