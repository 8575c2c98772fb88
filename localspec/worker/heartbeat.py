"""Writes a worker's heartbeat: its figures of this second."""

from __future__ import annotations

from localspec.engine.calibrate import FAR_TOKENS
from localspec.wire.messages import Heartbeat
from localspec.worker.assemble import Loaded
from localspec.worker.totals import Totals


def heartbeat(  # noqa: PLR0913 - what only the service knows
    loaded: Loaded, totals: Totals, rate: float, *, steps: int, active: int, waiting: int
) -> Heartbeat:
    """The figures of a loaded model; `rate` are tokens a second since the last heartbeat."""
    corpus, costs = loaded.corpus, loaded.profile.costs
    return Heartbeat(
        steps=steps,
        active=active,
        waiting=waiting,
        prompt_tokens_total=totals.prompt_tokens,
        completion_tokens_total=totals.completion_tokens,
        drafted_total=dict(totals.drafted),
        accepted_total=dict(totals.accepted),
        routing=dict(totals.routing),
        decode_tokens_per_second=rate,
        cost_ms_by_rows=loaded.cost_ms_by_rows(),
        draft_ms=loaded.draft_ms(),
        host_ms=round(costs.host_seconds * 1000, 3),
        host_row_ms=round(costs.host_row_seconds * 1000, 4),
        far_tokens=FAR_TOKENS,
        far_ms_by_rows=loaded.cost_ms_by_rows(FAR_TOKENS),
        far_draft_ms=loaded.draft_ms(FAR_TOKENS),
        measuring=loaded.idle.measuring or not loaded.decision.over,
        checking=None if loaded.decision.over else loaded.decision.step,
        exactness_detail=loaded.probe.detail,
        kernels=loaded.kernels,
        idle_work=loaded.idle.left,
        corpus=corpus.sentence if corpus else "",
        indexing=not corpus.over if corpus else False,
        gpus=loaded.gpus(),
        prefixes=loaded.prefixes.figures(),
        **loaded.kv(),
    )
