"""The report's main figures in little time: exact for few requests, from roll-ups for many."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards.filters import Filters, parse_filters
from dashboards.queries.report import report
from dashboards.queries.rollups import HOUR_NS, MINUTE_NS, window
from dashboards.queries.series import series
from dashboards.queries.summary import summary
from tests.unit.dashboards.conftest import NOW_UNIX_NS, HandStore

S = 1_000_000_000


@pytest.fixture(scope="module")
def filled(module_store: HandStore) -> HandStore:
    """Four hundred requests over five hours, of two models, some warm, cached, failed."""
    module_store.requests(*(
        {"start": n * 45 * S - 5 * 3600 * S, "queue": n * S // 100, "prefill": S // 2,
         "decode": (1 + n % 7) * S,
         "FirstTokenNs": n * S // 100 + S // 2 if n % 10 else None, "InputTokens": 10, "OutputTokens": n % 30,
         "CachedTokens": n % 3 if n % 4 else None, "Warm": bool(n % 5) if n % 6 else None,
         "Model": "small" if n % 2 else "large", "Route": "/a" if n % 3 else "/b",
         "Status": "error" if n % 50 == 7 else "cancelled" if n % 50 == 8 else "ok",
         "Tags": {"tenant": f"t{n % 2}"}}
        for n in range(400)
    ))  # fmt: skip
    return module_store


@pytest.fixture
def many(monkeypatch) -> None:
    """As if a single request were too many to read."""
    monkeypatch.setattr("dashboards.queries.summary.EXACT_UP_TO", 0)
    monkeypatch.setattr("dashboards.queries.series.EXACT_UP_TO", 0)


def chosen(**more: object) -> Filters:
    return parse_filters(now_unix_ns=NOW_UNIX_NS, **{"since": "10h", **more})  # type: ignore[arg-type]


FILTERS = [
    {}, {"model": ["small"]}, {"route": ["/a"], "status": ["ok", "error"]}, {"warm": "only"},
    {"warm": "exclude"},
    {"cached": "only"}, {"cached": "exclude"}, {"operation": "any"}, {"model": ["nobody"]},
]  # fmt: skip


@pytest.mark.parametrize("asked", FILTERS, ids=str)
def test_few_requests_have_the_reports_figures(filled, asked):
    """Percentiles, n, sums and shares of every stage, exactly; and every count."""
    filters = chosen(**asked)
    whole = report(filled, filters, now_unix_ns=NOW_UNIX_NS).overall
    found = summary(filled, filters, now_unix_ns=NOW_UNIX_NS)
    assert (found.exact, found.read_from) == (True, "requests")
    for one in found.overall.stages:
        told = whole.stage(one.name)
        assert (one.n, one.no_data, one.sum_ns) == (told.n, told.no_data, told.sum_ns)
        assert (one.p50_ns, one.p90_ns, one.p95_ns, one.p99_ns, one.max_ns, one.share) == (
            told.p50_ns, told.p90_ns, told.p95_ns, told.p99_ns, told.max_ns, told.share,
        )  # fmt: skip
    for one in found.overall.measures:
        told = whole.measure(one.name)
        assert (one.n, one.p50_ns, one.p99_ns) == (told.n, told.p50_ns, told.p99_ns)
    counts = whole.counts
    ours = found.overall
    assert (ours.requests, ours.errors, ours.cancelled, ours.cached, ours.cold) == (
        counts.total, counts.error, counts.cancelled, counts.cached, counts.cold,
    )  # fmt: skip


@pytest.mark.parametrize("asked", FILTERS, ids=str)
@pytest.mark.parametrize(
    "by", [(), ("model",), ("cached", "warm"), ("route", "status", "stream")], ids=str
)
def test_the_roll_ups_say_what_the_requests_say(filled, many, asked, by, monkeypatch):
    """Counts, sums and maxima exactly, percentiles within the sketch, whole and per group."""
    filters = chosen(**asked)
    rolled = summary(filled, filters, by, now_unix_ns=NOW_UNIX_NS)
    monkeypatch.setattr("dashboards.queries.summary.EXACT_UP_TO", 10**9)
    plain = summary(filled, filters, by, now_unix_ns=NOW_UNIX_NS)
    if not plain.overall.requests:
        assert rolled.overall == plain.overall
        return
    assert (rolled.exact, rolled.read_from) == (False, "requests_1h, requests_1m")
    assert [g.key for g in rolled.groups] == [g.key for g in plain.groups]
    pairs = zip((rolled.overall, *rolled.groups), (plain.overall, *plain.groups), strict=True)
    for ours, theirs in pairs:
        assert ours.model_dump(exclude={"stages", "measures"}) == theirs.model_dump(
            exclude={"stages", "measures"}
        )
        for one, told in zip(
            (*ours.stages, *ours.measures), (*theirs.stages, *theirs.measures), strict=True
        ):
            assert (one.name, one.n, one.no_data, one.max_ns) == (
                told.name,
                told.n,
                told.no_data,
                told.max_ns,
            )
            assert one.sum_ns == pytest.approx(told.sum_ns, abs=1)
            if one.n >= 20:
                assert one.p50_ns == pytest.approx(told.p50_ns, rel=0.1)


def test_the_window_of_the_roll_ups_is_of_whole_minutes_and_said(filled, many):
    """An hour's edge, a minute's edge: what was not asked for is not in it, but for part minutes."""
    filters = parse_filters(
        now_unix_ns=NOW_UNIX_NS, since="2026-01-01T08:10:30Z", until="2026-01-01T11:20:10Z"
    )
    found = summary(filled, filters, now_unix_ns=NOW_UNIX_NS)
    assert (found.from_unix_ns % MINUTE_NS, found.to_unix_ns % MINUTE_NS) == (0, 0)
    snapped = filters.model_copy(
        update={"since_unix_ns": found.from_unix_ns, "until_unix_ns": found.to_unix_ns}
    )
    exact = report(filled, snapped, now_unix_ns=NOW_UNIX_NS).overall.counts.total
    assert found.overall.requests == exact > 200


@pytest.mark.parametrize("by", [("tag:tenant",), ("input_tokens",)])
def test_what_the_roll_ups_lack_is_read_from_the_requests(filled, many, by):
    """Tags and lengths: sketches over the requests themselves, which the answer says."""
    found = summary(filled, chosen(), by, now_unix_ns=NOW_UNIX_NS)
    assert (found.exact, found.read_from) == (False, "requests")
    assert sum(g.requests for g in found.groups) == found.overall.requests == 400
    tagged = summary(filled, chosen(tags=["tenant=t1"]), now_unix_ns=NOW_UNIX_NS)
    assert (tagged.read_from, tagged.overall.requests) == ("requests", 200)


def test_steps_over_time_agree(filled, many, monkeypatch):
    """The same steps with the same counts, out of minutes and out of hours."""
    for since in ("10h", "60d"):
        filters = chosen(since=since)
        rolled = series(filled, filters, now_unix_ns=NOW_UNIX_NS)
        monkeypatch.setattr("dashboards.queries.series.EXACT_UP_TO", 10**9)
        plain = series(filled, filters, now_unix_ns=NOW_UNIX_NS)
        monkeypatch.setattr("dashboards.queries.series.EXACT_UP_TO", 0)
        assert rolled.cells == plain.cells
        assert rolled.step_ns == plain.step_ns
        names = ("start_unix_ns", "requests", "errors", "cancelled", "output_tokens", "ttft_n")
        assert [[getattr(s, n) for n in names] for s in rolled.steps] == [
            [getattr(s, n) for n in names] for s in plain.steps
        ]
        assert rolled.steps[0].e2e_p99_ns == pytest.approx(plain.steps[0].e2e_p99_ns, rel=0.1)


@given(begin=st.integers(0, 10**16), length=st.integers(1, 10**15))
def test_a_window_holds_what_was_asked_for_and_less_than_two_minutes_more(begin, length):
    """Its parts follow each other, the middle of whole hours, the ends of whole minutes."""
    found = window(begin, begin + length)
    assert found.begin <= begin < begin + length <= found.end
    assert (found.end - found.begin) - length < 2 * MINUTE_NS
    assert found.begin <= found.first <= found.last <= found.end
    assert all(edge % MINUTE_NS == 0 for edge in (found.begin, found.first, found.last, found.end))
    assert (found.last - found.first) % HOUR_NS == 0
    assert found.first == found.last or found.first % HOUR_NS == 0
