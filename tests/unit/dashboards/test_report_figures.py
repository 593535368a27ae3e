"""The report's figures against values worked out by hand or by numpy."""

from __future__ import annotations

import numpy as np
import pytest

from dashboards.filters import Filters
from dashboards.queries.report import report
from tracer import semconv

BASE = 1_767_268_800_000_000_000
NOW = BASE + 3600 * 1_000_000_000
S = 1_000_000_000


def whole(store, filters=None):
    return report(store, filters or Filters(), now_unix_ns=NOW).overall


def test_percentiles_are_those_of_numpy(store):
    """p50..p99 of every clock are numpy's default percentile, rounded to a nanosecond."""
    rng = np.random.default_rng(7)
    values = [int(x) for x in rng.lognormal(18, 1.2, 137)]
    store.requests(*({"decode": v, "FirstTokenNs": v // 3, "TpotNs": v / 7} for v in values))
    found = whole(store)
    expected = np.percentile(values, [50, 90, 95, 99])
    for one, factor in (
        (found.stage("decode"), lambda v: v),
        (found.measure("e2e"), lambda v: v),
        (found.measure("ttft"), lambda v: v // 3),
        (found.measure("tpot"), lambda v: v / 7),
    ):
        expected = np.percentile([factor(v) for v in values], [50, 90, 95, 99])
        got = [one.p50_ns, one.p90_ns, one.p95_ns, one.p99_ns]
        assert np.allclose(got, expected, rtol=0, atol=0.51)
        assert one.max_ns == round(max(factor(v) for v in values))
        assert one.n == 137


def test_a_stage_is_measured_over_the_requests_that_ran_it(store):
    """A request that never retrieved is not a retrieval of 0 ns; one that took 0 ns is."""
    store.requests(
        {"queue": 100, "retrieval": 40},
        {"queue": 100},
        {"queue": 100, "StageCounts": {"queue": 1, "retrieval": 1}},
    )
    retrieval = whole(store).stage("retrieval")
    assert (retrieval.n, retrieval.no_data) == (2, 1)
    assert (retrieval.p50_ns, retrieval.max_ns) == (20, 40)
    tool = whole(store).stage("tool")
    assert (tool.n, tool.no_data, tool.p50_ns, tool.max_ns) == (0, 3, None, None)
    assert tool.share == 0.0


def test_unattributed_is_over_all_requests(store):
    """What is left of a request is a figure of each request, 0 included."""
    store.requests({"decode": 10, "unattributed": 4}, {"decode": 10})
    rest = whole(store).stage("unattributed")
    assert (rest.n, rest.p50_ns, rest.max_ns) == (2, 2, 4)


def test_shares_are_of_the_summed_time_and_of_the_slowest(store):
    """The tail's shares are of its own time: here its one request queued."""
    store.requests(*({"start": i, "queue": 10, "decode": 90} for i in range(19)))
    store.requests({"queue": 900, "decode": 100})
    found = whole(store)
    assert found.slowest_n == 1
    assert found.stage("queue").share == pytest.approx((190 + 900) / 2900)
    assert found.stage("decode").share == pytest.approx((1710 + 100) / 2900)
    assert found.stage("queue").slowest_share == pytest.approx(0.9)
    assert found.stage("decode").slowest_share == pytest.approx(0.1)
    assert found.stage("queue").sum_ns == 1090


def test_parts_lie_inside_their_stage(store):
    """Hand-off and preempted time are told apart and not added to the whole."""
    store.requests(
        {"prompt": 50, "HandoffNs": 20, "decode": 50, "PreemptedNs": 30, "Preemptions": 1},
        {"prompt": 100},
    )
    found = whole(store)
    handoff, preempted = found.stage("handoff"), found.stage("preempted")
    assert (handoff.part_of, handoff.n, handoff.p50_ns) == ("prompt", 1, 20)
    assert (preempted.part_of, preempted.n, preempted.p50_ns) == ("decode", 1, 30)
    assert handoff.share == pytest.approx(0.1)
    names = [one.stage for one in found.stages]
    assert names.index("handoff") == names.index("prompt") + 1
    assert names.index("preempted") == names.index("decode") + 1
    assert sum(one.share for one in found.stages if one.part_of is None) == pytest.approx(1)
    assert found.counts.preempted == 1


def test_no_data_is_null_with_a_count(store):
    """A clock that nobody has is None and counted, never 0."""
    store.requests({"decode": 9, "FirstTokenNs": 3}, {"decode": 9}, {"decode": 9})
    found = whole(store)
    ttft, tpot = found.measure("ttft"), found.measure("tpot")
    assert (ttft.n, ttft.no_data, ttft.p50_ns) == (1, 2, 3)
    assert (tpot.n, tpot.no_data, tpot.p50_ns, tpot.p99_ns, tpot.max_ns) == (0, 3, *[None] * 3)


def test_itl_is_over_all_gaps_and_chunk_gaps_stand_apart(store):
    """Every gap counts once, whichever request it is of; a chunk gap is no token gap."""
    store.requests(
        {"ItlNs": [1, 2, 3], "ItlKind": "token"},
        {"ItlNs": [10], "ItlKind": "token"},
        {"ItlNs": [100, 300], "ItlKind": "chunk"},
        {},
    )
    found = whole(store)
    itl, chunk = found.measure("itl"), found.measure("itl_chunk")
    assert (itl.n, itl.no_data, itl.max_ns) == (4, 2, 10)
    assert itl.p50_ns == round(np.percentile([1, 2, 3, 10], 50))
    assert (chunk.n, chunk.no_data, chunk.p50_ns, chunk.max_ns) == (2, 3, 200, 300)


def test_throughput_is_over_the_window_of_activity(store):
    """Rates are over first start to last end, not over the window asked for."""
    store.requests(
        {"start": 0, "decode": 1 * S, "InputTokens": 100, "OutputTokens": 30},
        {"start": 1 * S, "decode": 3 * S, "InputTokens": 300, "OutputTokens": 50},
        {"start": 2 * S, "decode": 1 * S},
    )
    found = whole(store).activity
    assert (found.start_unix_ns, found.end_unix_ns) == (BASE, BASE + 4 * S)
    assert found.window_ns == 4 * S
    assert found.requests_per_s == pytest.approx(0.75)
    assert (found.input_tokens, found.input_tokens_known) == (400, 2)
    assert found.input_tokens_per_s == pytest.approx(100)
    assert found.output_tokens_per_s == pytest.approx(20)


def test_concurrency_is_the_summed_time_over_the_window(store):
    """Mean = sum of E2E / window; the peak is the most at one instant, touching ends apart."""
    store.requests(
        {"start": 0, "decode": 4},
        {"start": 1, "decode": 3},
        {"start": 2, "decode": 1},
        {"start": 4, "decode": 4},
    )
    found = whole(store).activity
    assert found.mean_concurrency == pytest.approx(12 / 8)
    assert found.peak_concurrency == 3


def test_counts_divide_the_requests(store):
    """Each way of counting adds up to the total, with the unknown as its own part."""
    store.requests(
        {"Status": "ok", "CachedTokens": 8, "Warm": True},
        {"Status": "ok", "CachedTokens": 0, "Warm": False, "ColdReason": "first_minute"},
        {"Status": "error", "ErrorType": "timeout", "Stream": False, "Repairs": ["rule"]},
        {"Status": "error", "ErrorType": "timeout"},
        {"Status": "cancelled", "ErrorType": "client_disconnect"},
        {"Status": "weird"},
    )
    counts = whole(store).counts
    assert (counts.total, counts.ok, counts.error, counts.cancelled) == (6, 2, 2, 1)
    assert counts.other_status == 1
    assert counts.error_types == {"timeout": 2, "client_disconnect": 1}
    assert (counts.cached, counts.not_cached, counts.cached_unknown) == (1, 1, 4)
    assert (counts.warm, counts.cold, counts.warm_unknown) == (1, 1, 4)
    assert counts.cold_reasons == {"first_minute": 1}
    assert (counts.streamed, counts.repaired) == (5, 1)


def test_nothing_stored_is_null_everywhere_and_says_so(store):
    """An empty answer has counts of 0 and figures of None."""
    found = report(store, Filters(), ["model"], now_unix_ns=NOW)
    assert found.overall.counts.total == 0
    assert found.groups == ()
    assert found.overall.activity.requests_per_s is None
    assert {one.p50_ns for one in (*found.overall.stages, *found.overall.measures)} == {None}
    assert {one.share for one in found.overall.stages} == {None}
    assert found.reading == (
        "There is no request to report on: widen the window or drop a filter.",
    )


def test_a_percentile_with_nothing_above_it_is_marked(store):
    """p99 of fewer than 100 values is about the maximum, and so on down."""
    store.requests(*({"decode": 5, "TpotNs": 1.0} for _ in range(99)))
    store.requests(*({"decode": 5, "queue": 1} for _ in range(1)))
    found = whole(store)
    assert found.measure("e2e").weak == ()
    assert found.measure("tpot").weak == ("p99",)
    assert found.stage("queue").weak == ("p50", "p90", "p95", "p99")


def test_a_row_whose_stages_do_not_add_up_is_told(store):
    """A foreign writer's broken row is counted and named in the assumptions."""
    store.requests({"decode": 5, "E2ENs": 9}, {"decode": 5})
    found = report(store, Filters(), now_unix_ns=NOW)
    assert found.overall.counts.partition_broken == 1
    assert any("do not add up" in one for one in found.assumptions)


def test_cut_gap_lists_are_told(store):
    """ITL says when it holds only the first gaps of a long answer."""
    cap = semconv.ITL_CAP
    gaps = {"ItlNs": [1] * cap, "ItlKind": "token"}
    store.requests({**gaps, "OutputTokens": cap + 2}, {**gaps, "OutputTokens": cap + 1})
    assert whole(store).counts.itl_cut == 1


def test_the_assumptions_are_in_words(store):
    """Window, zone, warm, cached and the way of the percentiles are stated."""
    filters = Filters(since_unix_ns=BASE, warm="only", cached="exclude", model=("m",), run="r")
    text = " ".join(report(store, filters, now_unix_ns=NOW).assumptions)
    assert "from 2026-01-01 12:00:00 UTC to 2026-01-01 13:00:00 UTC (now)" in text
    assert "Only requests known to be warm" in text
    assert "prefix cache are left out" in text
    assert "with a model call, of model 'm', of run 'r'" in text
    assert "Percentiles are exact" in text
