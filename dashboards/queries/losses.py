"""What is known to be lost on the way, so that no figure looks more complete than it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dashboards.filters import Filters
from dashboards.models.report import Loss, Losses, SignalCounts
from dashboards.queries.base import QueryLimits, QueryStore, Row, run
from dashboards.times import LATEST_UNIX_NS, NS_PER_S
from tracer import semconv

TELLING_DELAY_NS: Final = 10 * NS_PER_S
"""Senders tell their losses every 5 s: a loss may be told that long after the window."""

_NAMES: Final = (
    semconv.METRIC_SPANS_RECEIVED,
    semconv.METRIC_SPANS_DROPPED,
    semconv.METRIC_STEPS_DROPPED,
)
_SQL: Final = """\
SELECT name, reason, sum(latest) AS since_start, sum(latest - before) AS in_window
FROM (
  SELECT
    toString(MetricName) AS name,
    toString(Attributes[{reason:String}]) AS reason,
    argMax(Value, TimeUnix) AS latest,
    argMaxIf(Value, TimeUnix, TimeUnix < fromUnixTimestamp64Nano({begin:Int64}, 'UTC')) AS before
  FROM {database:Identifier}.otel_metrics_sum
  WHERE MetricName IN {names:Array(String)}
    AND TimeUnix <= fromUnixTimestamp64Nano({end:Int64}, 'UTC')
  GROUP BY name, reason, ServiceName, ResourceAttributes[{instance:String}], StartTimeUnix
)
GROUP BY name, reason
ORDER BY name, since_start DESC, reason"""
_SENDERS_SQL: Final = """\
SELECT uniqExact(ServiceName, ResourceAttributes[{instance:String}]) AS senders
FROM {database:Identifier}.otel_metrics_sum
WHERE MetricName IN {names:Array(String)}
  AND TimeUnix <= fromUnixTimestamp64Nano({end:Int64}, 'UTC')"""


def losses(
    store: QueryStore,
    filters: Filters,
    counts: Mapping[str, object] | None,
    limits: QueryLimits,
) -> Losses:
    """Losses at the senders in the window of ``filters``, beside the collector's ``counts``.

    Each sender's latest cumulative value is taken, per instance and start (a restart
    counts from 0 again), less the last one told before the window.
    """
    begin = filters.since_unix_ns or 0
    end = filters.until_unix_ns
    params: dict[str, object] = {
        "names": list(_NAMES),
        "reason": semconv.DROP_REASON,
        "instance": semconv.SERVICE_INSTANCE_ID,
        "begin": begin,
        "end": LATEST_UNIX_NS if end is None else min(end + TELLING_DELAY_NS, LATEST_UNIX_NS),
    }
    rows = run(store, _SQL, params, limits)
    senders = int(run(store, _SENDERS_SQL, params, limits)[0]["senders"])
    spans, steps = _of(rows, semconv.METRIC_SPANS_DROPPED), _of(rows, semconv.METRIC_STEPS_DROPPED)
    made = _of(rows, semconv.METRIC_SPANS_RECEIVED)
    return Losses(
        senders=senders,
        spans_made=sum(one.since_start for one in made) if made else None,
        spans_in_window=sum(one.in_window for one in spans) if senders else None,
        spans_since_start=sum(one.since_start for one in spans) if senders else None,
        spans=spans,
        steps_in_window=sum(one.in_window for one in steps) if senders else None,
        steps_since_start=sum(one.since_start for one in steps) if senders else None,
        steps=steps,
        collector=None if counts is None else read_counts(counts),
    )


def read_counts(counts: Mapping[str, object]) -> dict[str, SignalCounts]:
    """The collector's counts per signal (spans, logs, metrics)."""
    return {name: SignalCounts.model_validate(one) for name, one in counts.items()}


def _of(rows: list[Row], name: str) -> tuple[Loss, ...]:
    return tuple(
        Loss(
            reason=row["reason"],
            in_window=round(row["in_window"]),
            since_start=round(row["since_start"]),
        )
        for row in rows
        if row["name"] == name
    )
