"""A server's ``/metrics`` page: vLLM's, SGLang's, or any other that Prometheus reads."""

from __future__ import annotations

import math
import urllib.request
from collections.abc import Iterator
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

from collectors.gauges.metrics import Buckets, Point
from tracer import semconv

PAGE_BYTES = 16 << 20
TIMEOUT_S = 5.0


class PrometheusPage:
    """Reads ``url`` anew each time. Not for several threads at once."""

    def __init__(self, url: str, name: str | None = None) -> None:
        parts = urlsplit(url)
        self.url = url
        self.resource = {
            semconv.SERVICE_NAME: name or parts.netloc,
            "server.address": parts.hostname or "",
            "server.port": str(parts.port or (443 if parts.scheme == "https" else 80)),
        }

    def read(self) -> list[Point | Buckets]:
        """Its samples now.

        Raises:
            OSError, ValueError: no answer, or none that can be read.
        """
        request = urllib.request.Request(self.url, headers={"Accept": "text/plain;version=0.0.4"})  # noqa: S310  the operator's own setting
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
            page = answer.read(PAGE_BYTES + 1)
        if len(page) > PAGE_BYTES:
            raise ValueError(f"the page has more than {PAGE_BYTES} bytes")
        return list(readings(page.decode("utf-8", "replace")))


def readings(page: str) -> Iterator[Point | Buckets]:
    """The samples of a page in Prometheus's text format; what is no number is left out.

    Raises:
        ValueError: it is not in that format.
    """
    from prometheus_client.parser import text_string_to_metric_families

    for family in text_string_to_metric_families(page):
        if family.type == "histogram":
            yield from _histograms(family)
            continue
        for sample in family.samples:
            if sample.name.endswith("_created") or not math.isfinite(sample.value):
                continue
            grows = family.type == "counter" or sample.name.endswith(("_sum", "_count", "_total"))
            yield Point(
                sample.name, sample.value, dict(sample.labels), "sum" if grows else "gauge",
                description=family.documentation,
            )  # fmt: skip


def _histograms(family: Any) -> Iterator[Buckets]:  # noqa: ANN401
    """Prometheus counts up to each bound; OTLP counts between bounds."""
    by_labels: dict[tuple[tuple[str, str], ...], dict[float, float]] = {}
    totals: dict[tuple[tuple[str, str], ...], float] = {}
    for sample in family.samples:
        labels = {key: text for key, text in sample.labels.items() if key != "le"}
        key = tuple(sorted(labels.items()))
        if sample.name.endswith("_bucket"):
            by_labels.setdefault(key, {})[float(sample.labels["le"])] = sample.value
        elif sample.name.endswith("_sum"):
            totals[key] = sample.value
    for key, upto in by_labels.items():
        bounds = sorted(upto)
        if not bounds or not math.isinf(bounds[-1]):
            continue  # without the last bucket the number of values is not known
        below = [0.0, *(upto[bound] for bound in bounds)]
        counts = tuple(max(0, round(b - a)) for a, b in pairwise(below))
        yield Buckets(
            family.name, tuple(bounds[:-1]), counts, totals.get(key, 0.0), dict(key),
            family.documentation,
        )  # fmt: skip
