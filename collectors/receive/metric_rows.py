"""Checked rows of all five kinds of metrics, as the exporter's schema has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from collectors.receive.attributes import attribute_map, cut, shared_map
from collectors.receive.rows import MAX_UNIX_NS, NO_RECORDED_VALUE, Batch, Row, TimeWindow
from tracer import semconv

MOST_BUCKETS = 4096
"""More buckets than these are no honest histogram; the point is refused."""

HEAD_COLUMNS = (
    "ResourceAttributes", "ResourceSchemaUrl", "ScopeName", "ScopeVersion", "ScopeAttributes",
    "ScopeDroppedAttrCount", "ScopeSchemaUrl", "ServiceName", "MetricName", "MetricDescription",
    "MetricUnit", "Attributes", "StartTimeUnix", "TimeUnix", "Flags",
)  # fmt: skip
EXEMPLAR_COLUMNS = (
    "Exemplars.FilteredAttributes", "Exemplars.TimeUnix", "Exemplars.Value", "Exemplars.SpanId",
    "Exemplars.TraceId",
)  # fmt: skip
METRIC_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "otel_metrics_gauge": (*HEAD_COLUMNS, *EXEMPLAR_COLUMNS, "Value"),
    "otel_metrics_sum": (
        *HEAD_COLUMNS, *EXEMPLAR_COLUMNS, "Value", "AggregationTemporality", "IsMonotonic",
    ),
    "otel_metrics_histogram": (
        *HEAD_COLUMNS, *EXEMPLAR_COLUMNS, "Count", "Sum", "Min", "Max", "BucketCounts",
        "ExplicitBounds", "AggregationTemporality",
    ),
    "otel_metrics_exp_histogram": (
        *HEAD_COLUMNS, *EXEMPLAR_COLUMNS, "Count", "Sum", "Min", "Max", "Scale", "ZeroCount",
        "PositiveOffset", "PositiveBucketCounts", "NegativeOffset", "NegativeBucketCounts",
        "AggregationTemporality",
    ),
    "otel_metrics_summary": (
        *HEAD_COLUMNS, "Count", "Sum", "ValueAtQuantiles.Quantile", "ValueAtQuantiles.Value",
    ),
}  # fmt: skip
TABLE_OF = {
    "gauge": "otel_metrics_gauge",
    "sum": "otel_metrics_sum",
    "histogram": "otel_metrics_histogram",
    "exponential_histogram": "otel_metrics_exp_histogram",
    "summary": "otel_metrics_summary",
}


def metric_batch(request: Any, window: TimeWindow) -> Batch:  # noqa: ANN401
    """Rows of an ``ExportMetricsServiceRequest``; bad points are refused alone."""
    batch = Batch()
    for group in request.resource_metrics:
        resource = shared_map(group.resource.attributes)
        for scoped in group.scope_metrics:
            scope = scoped.scope
            head = (
                resource, cut(group.schema_url), cut(scope.name), cut(scope.version),
                shared_map(scope.attributes), scope.dropped_attributes_count,
                cut(scoped.schema_url), resource.get(semconv.SERVICE_NAME, ""),
            )  # fmt: skip
            for metric in scoped.metrics:
                _add_metric(batch, metric, head, window)
    return batch


def _add_metric(batch: Batch, metric: Any, head: Row, window: TimeWindow) -> None:  # noqa: ANN401
    kind = metric.WhichOneof("data")
    if kind is None:
        return
    told = getattr(metric, kind)
    head = (*head, cut(metric.name), cut(metric.description), cut(metric.unit))
    for point in told.data_points:
        reason = _refuse_point(kind, point, window)
        if reason is not None:
            batch.refused[reason] += 1
        else:
            row = (*head, *_common(point), *_VALUES[kind](point), *_tail(kind, told))
            batch.add(TABLE_OF[kind], row)


def _refuse_point(kind: str, point: Any, window: TimeWindow) -> str | None:  # noqa: ANN401
    """A point may lack a value only if it says so: no data is not 0."""
    if (
        kind in ("gauge", "sum")
        and point.WhichOneof("value") is None
        and not point.flags & NO_RECORDED_VALUE
    ):
        return "no_value"
    if kind == "histogram":
        buckets = len(point.bucket_counts)
        if buckets > MOST_BUCKETS or (buckets and buckets != len(point.explicit_bounds) + 1):
            return "bad_buckets"
    if kind == "exponential_histogram":
        sides = (point.positive.bucket_counts, point.negative.bucket_counts)
        if any(len(side) > MOST_BUCKETS for side in sides):
            return "bad_buckets"
    return window.judge(point.time_unix_nano)


def _common(point: Any) -> Row:  # noqa: ANN401
    return (
        attribute_map(point.attributes), min(point.start_time_unix_nano, MAX_UNIX_NS),
        point.time_unix_nano, point.flags,
    )  # fmt: skip


def _exemplars(given: Iterable[Any]) -> Row:
    kept = list(given)[:MOST_BUCKETS]
    return (
        [attribute_map(e.filtered_attributes) for e in kept],
        [min(e.time_unix_nano, MAX_UNIX_NS) for e in kept],
        [float(getattr(e, e.WhichOneof("value") or "as_int")) for e in kept],
        [e.span_id.hex() if any(e.span_id) else "" for e in kept],
        [e.trace_id.hex() if any(e.trace_id) else "" for e in kept],
    )


def _number(point: Any) -> Row:  # noqa: ANN401
    number = getattr(point, point.WhichOneof("value") or "as_int")
    return (*_exemplars(point.exemplars), float(number))


def _of_a_histogram(point: Any) -> Row:  # noqa: ANN401
    return (
        *_exemplars(point.exemplars), point.count, point.sum, point.min, point.max,
        list(point.bucket_counts), list(point.explicit_bounds),
    )  # fmt: skip


def _of_an_exponential(point: Any) -> Row:  # noqa: ANN401
    return (
        *_exemplars(point.exemplars), point.count, point.sum, point.min, point.max, point.scale,
        point.zero_count, point.positive.offset, list(point.positive.bucket_counts),
        point.negative.offset, list(point.negative.bucket_counts),
    )  # fmt: skip


def _of_a_summary(point: Any) -> Row:  # noqa: ANN401
    values = point.quantile_values[:MOST_BUCKETS]
    return point.count, point.sum, [v.quantile for v in values], [v.value for v in values]


_VALUES: Mapping[str, Callable[[Any], Row]] = {
    "gauge": _number, "sum": _number, "histogram": _of_a_histogram,
    "exponential_histogram": _of_an_exponential, "summary": _of_a_summary,
}  # fmt: skip


def _tail(kind: str, told: Any) -> Row:  # noqa: ANN401
    if kind == "sum":
        return (told.aggregation_temporality, told.is_monotonic)
    return () if kind in ("gauge", "summary") else (told.aggregation_temporality,)
