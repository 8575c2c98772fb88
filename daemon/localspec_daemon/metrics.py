"""GET /metrics: llama-server's names where it has them, `localspec_` for the rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from localspec_daemon.journal import Tally
from localspec_daemon.model import Model


def exposition(tallies: Mapping[str, Tally], models: Iterable[Model]) -> bytes:
    """Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(_Figures(tallies, list(models)))
    return generate_latest(registry)


class _Figures(Collector):
    """One scrape."""

    def __init__(self, tallies: Mapping[str, Tally], models: list[Model]) -> None:
        self._tallies = tallies
        self._models = models

    def collect(self) -> Iterable[Metric]:
        yield from self._llama_counters()
        yield from self._llama_gauges()
        yield from self._by_model()
        yield from self._by_label()

    def _llama_counters(self) -> Iterable[Metric]:
        tallies = self._tallies.values()
        drafted = sum(tally.drafted.total() for tally in tallies)
        accepted = sum(tally.accepted.total() for tally in tallies)
        for name, help_, value in (
            ("prompt_tokens", "Prompt tokens processed, cached ones excluded",
             sum(tally.prompt_tokens for tally in tallies)),
            ("prompt_tokens_cached", "Prompt tokens reused from the cache",
             sum(tally.cached_tokens for tally in tallies)),
            ("prompt_seconds", "Time spent processing prompts",
             sum(tally.prompt_seconds for tally in tallies)),
            ("tokens_predicted", "Tokens generated",
             sum(tally.completion_tokens for tally in tallies)),
            ("tokens_predicted_seconds", "Time spent generating tokens",
             sum(tally.completion_seconds for tally in tallies)),
            ("n_decode", "Target forwards of the decode phase",
             sum(tally.rounds for tally in tallies)),
            ("spec_decode_num_draft_tokens", "Tokens drafted", drafted),
            ("spec_decode_num_accepted_tokens", "Drafted tokens accepted", accepted),
            ("spec_decode_num_drafts", "Rounds that verified a draft",
             sum(tally.draft_rounds for tally in tallies)),
        ):  # fmt: skip
            yield CounterMetricFamily(f"llamacpp:{name}", help_, value=value)
        positions = CounterMetricFamily(
            "llamacpp:spec_decode_num_accepted_tokens_per_pos",
            "Accepted tokens by position in the draft",
            labels=["position"],
        )
        counts: dict[int, int] = {}
        for tally in tallies:
            for position, count in tally.accepted_by_position.items():
                counts[position] = counts.get(position, 0) + count
        for position, count in sorted(counts.items()):
            positions.add_metric([str(position)], count)
        yield positions

    def _llama_gauges(self) -> Iterable[Metric]:
        tallies = self._tallies.values()
        prompt_seconds = sum(tally.prompt_seconds for tally in tallies)
        completion_seconds = sum(tally.completion_seconds for tally in tallies)
        prompt_tokens = sum(tally.prompt_tokens for tally in tallies)
        completion_tokens = sum(tally.completion_tokens for tally in tallies)
        queued = sum(model.queued for model in self._models)
        processing = sum(model.requests for model in self._models) - queued
        for name, help_, value in (
            ("prompt_tokens_seconds", "Average prompt throughput in tokens/s",
             prompt_tokens / prompt_seconds if prompt_seconds else 0.0),
            ("predicted_tokens_seconds", "Average generation throughput in tokens/s",
             completion_tokens / completion_seconds if completion_seconds else 0.0),
            ("requests_processing", "Requests being processed", processing),
            ("requests_deferred", "Requests waiting for a slot", queued),
        ):  # fmt: skip
            yield GaugeMetricFamily(f"llamacpp:{name}", help_, value=value)

    def _by_model(self) -> Iterable[Metric]:
        loaded = GaugeMetricFamily("localspec_model_loaded", "1 while ready", labels=["model"])
        crashes = GaugeMetricFamily(
            "localspec_recent_crashes", "Worker crashes of late", labels=["model"]
        )
        for model in self._models:
            loaded.add_metric([model.name], model.state == "ready")
            crashes.add_metric([model.name], len(model.crashes.times))
        yield loaded
        yield crashes

    def _by_label(self) -> Iterable[Metric]:
        labelled = (
            ("requests", "Requests by outcome", "outcome", "requests"),
            ("routed", "Requests by the router's reason", "reason", "reasons"),
            ("drafted_tokens", "Drafted tokens by source", "source", "drafted"),
            ("accepted_tokens", "Accepted tokens by source", "source", "accepted"),
        )
        for name, help_, label, attribute in labelled:
            family = CounterMetricFamily(f"localspec_{name}", help_, labels=["model", label])
            for model, tally in self._tallies.items():
                for key, count in sorted(getattr(tally, attribute).items()):
                    family.add_metric([model, key], count)
            yield family
        host = CounterMetricFamily(
            "localspec_host_seconds", "Host time of decode rounds", labels=["model"]
        )
        for model, tally in self._tallies.items():
            host.add_metric([model], tally.host_seconds)
        yield host
