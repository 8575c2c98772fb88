"""GET /metrics: llama-server's names where it has them, `localspec_` for the rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from localspec_daemon.supervisor.model import Model
from localspec_daemon.supervisor.request_log import Tally


def exposition(tallies: Mapping[str, Tally], models: Iterable[Model]) -> bytes:
    """Prometheus' text format. `n_tokens_max`, a maximum, is a counter here, as in llama-server."""
    registry = CollectorRegistry()
    registry.register(_Figures(tallies, list(models)))
    text = generate_latest(registry)
    return text.replace(
        b"# TYPE llamacpp:n_tokens_max gauge", b"# TYPE llamacpp:n_tokens_max counter"
    )


class _Figures(Collector):
    """One scrape."""

    def __init__(self, tallies: Mapping[str, Tally], models: list[Model]) -> None:
        self._tallies = tallies
        self._total = Tally.total(tallies.values())
        self._models = models

    def collect(self) -> Iterable[Metric]:
        yield from self._llama_counters()
        yield from self._llama_gauges()
        yield from self._by_model()
        yield from self._by_label()

    def _llama_counters(self) -> Iterable[Metric]:
        total = self._total
        for name, help_, value in (
            ("prompt_tokens", "Prompt tokens processed, without cached ones", total.prompt_tokens),
            ("prompt_tokens_cached", "Prompt tokens reused from the cache", total.cached_tokens),
            ("prompt_seconds", "Time spent processing prompts", total.prompt_seconds),
            ("tokens_predicted", "Tokens generated", total.completion_tokens),
            ("tokens_predicted_seconds", "Time spent generating", total.completion_seconds),
            (
                "n_decode",
                "Target forwards of the decode phase, and requests for vectors",
                total.rounds,
            ),
            ("spec_decode_num_draft_tokens", "Tokens drafted", total.drafted.total()),
            ("spec_decode_num_accepted_tokens", "Drafted and accepted", total.accepted.total()),
            ("spec_decode_num_drafts", "Rounds that verified a draft", total.draft_rounds),
        ):
            yield CounterMetricFamily(f"llamacpp:{name}", help_, value=value)
        positions = CounterMetricFamily(
            "llamacpp:spec_decode_num_accepted_tokens_per_pos",
            "Accepted tokens by position in the draft",
            labels=["position"],
        )
        for position, count in sorted(total.accepted_by_position.items()):
            positions.add_metric([str(position)], count)
        yield positions

    def _llama_gauges(self) -> Iterable[Metric]:
        total = self._total
        queued = sum(model.queued for model in self._models)
        processing = sum(model.requests for model in self._models) - queued
        for name, help_, value in (
            ("prompt_tokens_seconds", "Average prompt tokens/s",
             _rate(total.prompt_tokens, total.prompt_seconds)),
            ("predicted_tokens_seconds", "Average generated tokens/s",
             _rate(total.completion_tokens, total.completion_seconds)),
            ("requests_processing", "Requests being processed", processing),
            ("requests_deferred", "Requests waiting for a slot", queued),
            ("n_busy_slots_per_decode", "Average busy slots of a step",
             _rate(total.rounds, self._steps())),
            ("n_tokens_max", "Tokens of the longest text so far", total.longest),
        ):  # fmt: skip
            yield GaugeMetricFamily(f"llamacpp:{name}", help_, value=value)

    def _steps(self) -> int:
        """Steps of the current workers, by their latest heartbeats."""
        beats = [model.worker.heartbeat for model in self._models if model.worker]
        return sum(beat.steps for beat in beats if beat)

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
        yield from self._prefixes()

    def _prefixes(self) -> Iterable[Metric]:
        """The prefix stores of the current workers."""
        beats = {
            model.name: model.worker.heartbeat.prefixes
            for model in self._models
            if model.worker and model.worker.heartbeat
        }
        for kind, name, field, help_ in (
            (GaugeMetricFamily, "texts", "texts", "Texts in the prefix store"),
            (GaugeMetricFamily, "memory_bytes", "memory_bytes", "Their copies in memory"),
            (GaugeMetricFamily, "disk_bytes", "disk_bytes", "Their copies on disk"),
            (CounterMetricFamily, "hits", "hits", "Prompts that began with one of them"),
            (CounterMetricFamily, "saved_tokens", "tokens", "Tokens that were loaded, not read"),
            (CounterMetricFamily, "saved_seconds", "seconds", "Seconds that this has saved"),
        ):
            family = kind(f"localspec_prefix_{name}", help_, labels=["model"])
            for model, figures in beats.items():
                family.add_metric([model], getattr(figures, field))
            yield family

    def _by_label(self) -> Iterable[Metric]:
        labelled = (
            ("requests", "Requests by outcome", "outcome", "requests"),
            ("routed", "Requests by the router's reason", "reason", "reasons"),
            ("drafted_tokens", "Drafted tokens by source", "source", "drafted"),
            ("accepted_tokens", "Accepted tokens by source", "source", "accepted"),
            (
                "cached_tokens",
                "Prompt tokens not read, by where they were",
                "origin",
                "cached_from",
            ),
        )
        for name, help_, label, attribute in labelled:
            family = CounterMetricFamily(f"localspec_{name}", help_, labels=["model", label])
            for model, tally in self._tallies.items():
                for key, count in sorted(getattr(tally, attribute).items()):
                    family.add_metric([model, key], count)
            yield family
        for name, help_ in (
            ("host_seconds", "Host time of decode rounds"),
            ("resumes", "Requests that went on with another worker"),
        ):
            family = CounterMetricFamily(f"localspec_{name}", help_, labels=["model"])
            for model, tally in self._tallies.items():
                family.add_metric([model], getattr(tally, name))
            yield family


def _rate(count: float, seconds: float) -> float:
    return count / seconds if seconds else 0.0
