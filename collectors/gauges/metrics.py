"""One reading as an OTLP request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality

CUMULATIVE = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE


@dataclass(frozen=True, slots=True)
class Point:
    """One value of one metric. ``kind``: ``gauge``, or ``sum`` for what only grows."""

    name: str
    value: float
    attributes: Mapping[str, str] = field(default_factory=dict)
    kind: str = "gauge"
    unit: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True)
class Buckets:
    """A cumulative histogram: ``counts`` has one more element than the ascending ``bounds``."""

    name: str
    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float
    attributes: Mapping[str, str] = field(default_factory=dict)
    description: str = ""


def request_of(
    resource: Mapping[str, str], unix_ns: int, readings: Iterable[Point | Buckets]
) -> ExportMetricsServiceRequest:
    """All readings of one source at one instant; points of one name are one metric."""
    made = ExportMetricsServiceRequest()
    group = made.resource_metrics.add()
    group.resource.attributes.extend(_pairs(resource))
    scoped = group.scope_metrics.add()
    scoped.scope.name = "stagelens.gauges"
    metrics: dict[tuple[str, str], Any] = {}
    for one in readings:
        kind = "histogram" if isinstance(one, Buckets) else one.kind
        metric = metrics.get((one.name, kind))
        if metric is None:
            metric = metrics[one.name, kind] = scoped.metrics.add(
                name=one.name, description=one.description,
                unit="" if isinstance(one, Buckets) else one.unit,
            )  # fmt: skip
            if kind != "gauge":
                getattr(metric, kind).aggregation_temporality = CUMULATIVE
            if kind == "sum":
                metric.sum.is_monotonic = True
        point = getattr(metric, kind).data_points.add(
            time_unix_nano=unix_ns, attributes=_pairs(one.attributes)
        )
        if isinstance(one, Buckets):
            point.count, point.sum = sum(one.counts), one.total
            point.explicit_bounds.extend(one.bounds)
            point.bucket_counts.extend(one.counts)
        else:
            point.as_double = one.value
    return made


def _pairs(of: Mapping[str, str]) -> list[KeyValue]:
    return [KeyValue(key=key, value=AnyValue(string_value=text)) for key, text in of.items()]
