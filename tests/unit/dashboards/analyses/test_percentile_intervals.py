"""Intervals of the report's percentiles."""

from __future__ import annotations

import math
import random

import pytest

from dashboards.filters import Filters
from dashboards.queries import intervals
from dashboards.queries.intervals import Z_RANKS
from dashboards.queries.measures import LEVELS
from dashboards.queries.report import report

NOW = 1_767_272_400_000_000_000


def ranks(n, p):
    """The ranks that the documentation gives; None where there is no such value."""
    reach = Z_RANKS * math.sqrt(n * p * (1 - p))
    low, high = math.floor(n * p - reach), math.ceil(n * p + reach) + 1
    return (low if low >= 1 else None), (high if high <= n else None)


def binomial(n, p):
    """P(B = k) for every k."""
    logs = [
        math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
        + k * math.log(p) + (n - k) * math.log(1 - p)
        for k in range(n + 1)
    ]  # fmt: skip
    return [math.exp(one) for one in logs]


@pytest.mark.parametrize("p", LEVELS)
def test_the_ranks_hold_the_true_percentile_at_least_as_often_as_they_say(p):
    """The exact binomial coverage of two-sided intervals is 95 % or more, for many n."""
    seen = 0
    for n in (*range(5, 200), *range(200, 2000, 61), 3000):
        low, high = ranks(n, p)
        if low is not None and high is not None:
            seen += 1
            assert sum(binomial(n, p)[low:high]) >= 0.95, n
    assert seen > 20


def test_the_report_gives_the_values_at_those_ranks(store):
    """Of a known list of E2E times, whole and per group, low and high are its order statistics."""
    draw = random.Random(3)
    times = {"x": [draw.randrange(1, 10**9) for _ in range(300)], "y": list(range(1, 41))}
    for model, values in times.items():
        store.requests(*({"decode": ns, "Model": model} for ns in values))
    found = report(store, Filters(), ["model"], now_unix_ns=NOW)
    slices = [(found.overall, sorted(times["x"] + times["y"]))]
    slices += [(one, sorted(times[one.key["model"]])) for one in found.groups]
    for one, values in slices:
        for name, p in zip(("p50", "p90", "p95", "p99"), LEVELS, strict=True):
            low, high = ranks(len(values), p)
            told = one.measure("e2e").interval(name)
            assert told.low_ns == (None if low is None else values[low - 1])
            assert told.high_ns == (None if high is None else values[high - 1])
    assert "order statistics" in " ".join(found.assumptions)


def test_few_values_have_open_intervals_and_gaps_have_none(store):
    """Three requests bound no percentile on both sides; ITL, whose gaps depend, gets none."""
    store.requests(*({"decode": 5, "ItlNs": [1, 2], "ItlKind": "token"} for _ in range(3)))
    found = report(store, Filters(), now_unix_ns=NOW).overall
    assert found.measure("e2e").interval("p99").high_ns is None
    assert found.measure("itl").n == 6
    assert found.measure("itl").intervals == ()
    assert found.measure("ttft").intervals == ()


def test_only_quantities_with_few_values_are_sorted(store, monkeypatch):
    """Above the limit a quantity has no interval; the others keep theirs."""
    monkeypatch.setattr(intervals, "MOST_VALUES", 40)
    store.requests(*({"decode": ns, "queue": ns * (ns <= 30)} for ns in range(1, 42)))
    found = report(store, Filters(), now_unix_ns=NOW).overall
    assert found.measure("e2e").intervals == ()
    assert found.stage("queue").n == 30
    assert found.stage("queue").interval("p50").low_ns == 9
