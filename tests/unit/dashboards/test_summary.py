"""The report's main figures in little time: exact for few requests, of a part for many."""

from __future__ import annotations

import pytest

from dashboards.filters import Filters, parse_filters
from dashboards.queries.report import report
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
    """As if a hundred requests were as many as can be read."""
    monkeypatch.setattr("dashboards.queries.summary.EXACT_UP_TO", 100)


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


@pytest.mark.parametrize("by", [("tag:tenant",), ("input_tokens",)], ids=str)
def test_many_requests_have_the_same_counts_and_nearly_the_same_percentiles(
    filled, many, by, monkeypatch
):
    """One in four is picked for percentiles; all else is of all, and groups add up to the whole."""
    sketched = summary(filled, chosen(), by, now_unix_ns=NOW_UNIX_NS)
    monkeypatch.setattr("dashboards.queries.summary.EXACT_UP_TO", 10**9)
    exact = summary(filled, chosen(), by, now_unix_ns=NOW_UNIX_NS)
    assert (sketched.exact, exact.exact) == (False, True)
    assert sum(g.requests for g in sketched.groups) == (400 if by else 0)
    pairs = zip((sketched.overall, *sketched.groups), (exact.overall, *exact.groups), strict=True)
    left_out = {"stages", "measures"}
    for ours, theirs in pairs:
        assert ours.model_dump(exclude=left_out) == theirs.model_dump(exclude=left_out)
        figures = zip(
            (*ours.stages, *ours.measures), (*theirs.stages, *theirs.measures), strict=True
        )
        for one, told in figures:
            assert (one.name, one.n, one.max_ns, one.sum_ns) == (
                told.name, told.n, told.max_ns, told.sum_ns,
            )  # fmt: skip
            if one.n >= 100:
                assert one.p50_ns == pytest.approx(told.p50_ns, rel=0.5)
            assert one.p99_ns is None or one.p99_ns <= told.max_ns


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
    left_out = {"stages", "measures"}
    for ours, theirs in pairs:
        assert ours.model_dump(exclude=left_out) == theirs.model_dump(exclude=left_out)
        figures = zip(
            (*ours.stages, *ours.measures), (*theirs.stages, *theirs.measures), strict=True
        )
        for one, told in figures:
            assert (one.name, one.n, one.no_data, one.max_ns) == (
                told.name, told.n, told.no_data, told.max_ns,
            )  # fmt: skip
            assert one.sum_ns == pytest.approx(told.sum_ns, abs=1)
            if one.n >= 20:
                assert one.p50_ns == pytest.approx(told.p50_ns, rel=0.1)


def test_the_roll_ups_answer_for_the_window_that_was_asked(filled, many):
    """Bounds within an hour and within a minute: as many requests as lie between them."""
    filters = parse_filters(
        now_unix_ns=NOW_UNIX_NS, since="2026-01-01T08:10:30Z", until="2026-01-01T11:20:10Z"
    )
    found = summary(filled, filters, now_unix_ns=NOW_UNIX_NS)
    exact = report(filled, filters, now_unix_ns=NOW_UNIX_NS).overall.counts.total
    assert found.read_from == "requests_1h, requests_1m"
    assert found.overall.requests == exact > 200


@pytest.mark.parametrize("by", [("tag:tenant",), ("input_tokens",)])
def test_what_the_roll_ups_lack_is_read_from_the_requests(filled, many, by):
    """Tags and lengths: sketches over the requests themselves, which the answer says."""
    found = summary(filled, chosen(), by, now_unix_ns=NOW_UNIX_NS)
    assert (found.exact, found.read_from) == (False, "requests")
    assert sum(g.requests for g in found.groups) == found.overall.requests == 400
    tagged = summary(filled, chosen(tags=["tenant=t1"]), now_unix_ns=NOW_UNIX_NS)
    assert (tagged.read_from, tagged.overall.requests) == ("requests", 200)


def test_groups_are_those_of_the_report(filled):
    """The same keys in the same order, with the same requests in them."""
    by = ("model", "warm")
    found = summary(filled, chosen(), by, now_unix_ns=NOW_UNIX_NS)
    told = report(filled, chosen(), by, now_unix_ns=NOW_UNIX_NS)
    assert [(g.key, g.requests) for g in found.groups] == [
        (g.key, g.counts.total) for g in told.groups
    ]


def test_groups_beyond_the_limit_are_counted(filled, monkeypatch):
    """The largest are kept."""
    monkeypatch.setattr("dashboards.queries.summary.MOST_GROUPS", 2)
    found = summary(filled, chosen(), ("output_tokens",), now_unix_ns=NOW_UNIX_NS)
    assert (len(found.groups), found.overall.requests) == (2, 400)
    assert found.groups_left_out == 1
