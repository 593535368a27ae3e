"""Laws of the report, for any requests."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dashboards.filters import Filters
from dashboards.queries.dimensions import INPUT_BOUNDS, bucket_of, known
from dashboards.queries.report import report

NOW = 1_767_272_400_000_000_000
STAGES = ("prompt", "retrieval", "queue", "prefill", "decode", "tool", "deliver", "unattributed")

ns = st.integers(0, 10**13)
maybe = st.none() | st.integers(0, 200_000)
request_rows = st.fixed_dictionaries(
    {
        **{name: st.just(0) | ns for name in STAGES},
        "start": st.integers(0, 10**12),
        "Model": st.sampled_from(["", "a", "b"]),
        "Status": st.sampled_from(["ok", "error", "cancelled"]),
        "InputTokens": maybe,
        "OutputTokens": maybe,
        "CachedTokens": maybe,
        "InFlight": st.integers(0, 1000),
        "Warm": st.none() | st.booleans(),
        "Stream": st.booleans(),
        "Tags": st.dictionaries(st.sampled_from(["t", "u"]), st.text(max_size=3), max_size=2),
    }
)
every_dimension = st.lists(
    st.sampled_from([name for name in known() if not name.startswith("tag:")] + ["tag:t"]),
    min_size=1,
    max_size=3,
    unique=True,
)


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(rows=st.lists(request_rows, min_size=1, max_size=30), by=every_dimension)
def test_shares_add_to_one_and_groups_divide_the_requests(store, rows, by):
    """Of any requests the stages share all the time, and each is in exactly one group."""
    store.empty()
    store.requests(*rows)
    found = report(store, Filters(), by, now_unix_ns=NOW)
    e2e = [sum(row[name] for name in STAGES) for row in rows]
    for one in (found.overall, *found.groups):
        stages = [s for s in one.stages if s.part_of is None]
        if sum(s.sum_ns for s in stages):
            assert abs(sum(s.share for s in stages) - 1) < 1e-9
            assert abs(sum(s.slowest_share for s in stages) - 1) < 1e-9
        assert one.slowest_n >= -(-one.counts.total // 20)
        assert one.counts.partition_broken == 0
    assert sum(s.sum_ns for s in found.overall.stages if s.part_of is None) == sum(e2e)
    assert found.overall.counts.total == len(rows)
    assert sum(one.counts.total for one in found.groups) == len(rows)
    assert len({tuple(one.key.items()) for one in found.groups}) == len(found.groups)
    for i, stage in enumerate(found.overall.stages):
        assert stage.sum_ns == sum(one.stages[i].sum_ns for one in found.groups)
        assert stage.n == sum(one.stages[i].n for one in found.groups)
    got = found.overall.measure("e2e")
    expected = np.percentile(np.array(e2e, dtype=float), [50, 90, 95, 99])
    assert np.allclose(
        [got.p50_ns, got.p90_ns, got.p95_ns, got.p99_ns], expected, rtol=1e-12, atol=0.51
    )


@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(values=st.lists(maybe, min_size=1, max_size=20))
def test_buckets_in_sql_and_in_python_are_the_same(store, values):
    """The bucket a number falls into does not depend on who computes it."""
    store.empty()
    store.requests(*({"InputTokens": value} for value in values))
    found = report(store, Filters(), ["input_tokens"], now_unix_ns=NOW)
    expected = [None if v is None else bucket_of(v, INPUT_BOUNDS) for v in values]
    assert {one.key["input_tokens"]: one.counts.total for one in found.groups} == {
        label: expected.count(label) for label in expected
    }
