"""Engine: steps, batches, KV cache, preemptions, and the GPU where gauges of it are stored."""

from __future__ import annotations

from typing import Final

from dashboards.grafana.spec import Board, Panel, Row
from dashboards.grafana.sql import CACHED_SHARE, IN_RANGE, STEP, chosen, requests, select
from dashboards.grafana.variables import INSTANCE, MODEL, ROUTE, TAG
from tracer import semconv

_BY_TIME: Final = "GROUP BY time\nORDER BY time"
_STEPS: Final = (
    f"FROM engine_steps\nWHERE {IN_RANGE}\n  AND {chosen('Model', 'model')}\n"
    f"  AND {chosen('ServiceInstance', 'instance')}"
)
_Q: Final = "quantilesTDigest(0.5, 0.95, 0.99)"
_KIND: Final = (
    "multiIf(PrefillTokens = 0 AND DecodeTokens = 0, 'neither', PrefillTokens = 0, 'decode', "
    "DecodeTokens = 0, 'prefill', 'both')"
)
_WHICH_GPU: Final = (
    "arrayStringConcat(arrayFilter(part -> part != '', [ResourceAttributes['host.name'], "
    "if(Attributes['gpu'] = '', Attributes['hw.id'], Attributes['gpu']), Attributes['reason']]), ' ')"
)
GPU_GAUGES: Final = {
    "GPU use": (semconv.METRIC_GPU_UTILIZATION, "percentunit", "Share of the time that kernels ran."),
    "GPU memory": (semconv.METRIC_GPU_MEMORY_USAGE, "bytes", "In use."),
    "GPU power": (semconv.METRIC_GPU_POWER, "watt", "Drawn."),
    "GPU held back": (semconv.METRIC_GPU_THROTTLED, "short", "1 while its clock is held back, by reason."),
}


def _over_time(title: str, about: str, columns: list[str], unit: str, stacked: bool = False) -> Panel:
    return Panel(
        title, "timeseries", about, select([STEP, *columns], f"{_STEPS}\n{_BY_TIME}"), unit,
        width=8, stacked=stacked,
    )  # fmt: skip


def _gpu(title: str, name: str, unit: str, about: str) -> Panel:
    sql = select(
        ["$__timeInterval(TimeUnix) AS time", f"{_WHICH_GPU} AS gpu", "max(Value) AS value"],
        f"FROM otel_metrics_gauge\nWHERE $__timeFilter(TimeUnix) AND MetricName = '{name}'\n"
        "GROUP BY time, gpu\nORDER BY time",
    )  # fmt: skip
    return Panel(title, "timeseries", f"{about} Gauge {name}; empty where no collector sends it.",
                 sql, unit, width=6)  # fmt: skip


BOARD: Final = Board(
    "stagelens-engine", "Stagelens: engine",
    "What the engine did: its steps, their batches, and its KV cache.",
    (MODEL, ROUTE, TAG, INSTANCE),
    (
        Row(
            "Steps",
            (
                _over_time("Step length", "Percentiles.", [
                    f"{_Q}(DurationNs)[{n}] / 1e6 AS {name}"
                    for n, name in ((1, "p50"), (2, "p95"), (3, "p99"))
                ], "ms"),
                Panel(
                    "Steps per second by kind", "timeseries",
                    "A step with prefill in it makes the decodes that share it wait.",
                    select(
                        [STEP, f"{_KIND} AS kind", "count() / $__interval_s AS rate"],
                        f"{_STEPS}\nGROUP BY time, kind\nORDER BY time",
                    ),
                    "short", width=8, stacked=True,
                ),
                _over_time("Engine busy", "Time in steps by the time there was, of all engines.", [
                    "sum(DurationNs) / 1e9 / $__interval_s / uniqExact(ServiceInstance, Engine) AS busy"
                ], "percentunit"),
                Panel(
                    "Step length by batch", "table",
                    "Medians by the requests that decode in the step, with prefill in it and "
                    "without. The difference is what a prefill costs its neighbours.",
                    select(
                        ["DecodeRequests AS decoding", "countIf(PrefillTokens = 0) AS n_decode_only",
                         "countIf(PrefillTokens > 0) AS n_with_prefill",
                         *(f"if({n} = 0, NULL, quantileTDigestIf(0.5)(DurationNs, {when}) / 1e6) AS {name}"
                           for n, when, name in (
                               ("n_decode_only", "PrefillTokens = 0", "decode_only"),
                               ("n_with_prefill", "PrefillTokens > 0", "with_prefill")))],
                        f"{_STEPS}\nGROUP BY decoding\nORDER BY decoding\nLIMIT 1000",
                    ),
                    width=24, units=dict.fromkeys(("decoding", "n_decode_only", "n_with_prefill"), "short"),
                ),
            ),
        ),
        Row(
            "Batches and cache",
            (
                _over_time("Requests in the batch", "Mean a step.",
                           ["avg(PrefillRequests) AS prefill", "avg(DecodeRequests) AS decode"],
                           "short", stacked=True),
                _over_time("Tokens per second", "As the engine's steps count them.",
                           ["sum(PrefillTokens) / $__interval_s AS prefill",
                            "sum(DecodeTokens) / $__interval_s AS decode"], "short"),
                _over_time("Running and waiting", "Most in any step.",
                           ["max(Running) AS running", "max(Waiting) AS waiting"], "short"),
                _over_time("KV cache in use", "Most in any step.",
                           ["max(KvCacheUsage) AS used"], "percentunit"),
                Panel(
                    "Preemptions", "timeseries", "Of the requests that began then, and their time.",
                    select([STEP, "sum(Preemptions) AS preemptions", "sum(PreemptedNs) / 1e6 AS lost_ms"],
                           f"{requests()}\n{_BY_TIME}"),
                    "short", width=8, units={"lost_ms": "ms"},
                ),
                Panel(
                    "Prefix cache hits", "timeseries",
                    "Cached share of the prompt tokens, of requests that say it.",
                    select(
                        [STEP, f"{CACHED_SHARE} AS hit"],
                        f"{requests()}\n{_BY_TIME}",
                    ),
                    "percentunit", width=8,
                ),
            ),
        ),
        Row("GPU", tuple(_gpu(title, *what) for title, what in GPU_GAUGES.items())),
    ),
)  # fmt: skip
