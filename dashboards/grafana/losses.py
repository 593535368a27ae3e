"""What is known to be lost, from the cumulative sums that senders tell."""

from __future__ import annotations

from typing import Final

from tracer import semconv

DROPPED: Final = (semconv.METRIC_SPANS_DROPPED, semconv.METRIC_STEPS_DROPPED)


def increases(begin: str, end: str, *, metrics: tuple[str, ...] = DROPPED) -> str:
    """A subquery of ``metric, reason, service, lost``: each series' growth in ``[begin, end]``.

    The value told last before ``begin`` is taken off; a sender tells every 5 s, so a minute
    is looked back. One that started inside the window began from 0.
    """
    names = ", ".join(f"'{name}'" for name in metrics)
    return f"""(
  SELECT
    MetricName AS metric, Attributes['{semconv.DROP_REASON}'] AS reason, ServiceName AS service,
    argMax(Value, TimeUnix) - multiIf(
      countIf(TimeUnix < {begin}) > 0, argMaxIf(Value, TimeUnix, TimeUnix < {begin}),
      StartTimeUnix >= {begin}, 0,
      argMin(Value, TimeUnix)
    ) AS lost
  FROM otel_metrics_sum
  WHERE MetricName IN ({names})
    AND TimeUnix >= {begin} - INTERVAL 1 MINUTE AND TimeUnix <= {end}
  GROUP BY metric, reason, service, ResourceAttributes['{semconv.SERVICE_INSTANCE_ID}'], StartTimeUnix
)"""
