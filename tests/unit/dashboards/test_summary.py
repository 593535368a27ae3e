"""The report's main figures in little time: exact for few requests, of a part for many."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.store.rollups import make_days
from dashboards.filters import Filters, parse_filters
from dashboards.queries.base import QueryLimits
from dashboards.queries.report import report
from dashboards.queries.rollups import DAY_NS, HOUR_NS, MINUTE_NS, cut, made_days
from dashboards.queries.summary import summary
from tests.unit.dashboards.conftest import BASE_UNIX_NS, NOW_UNIX_NS, HandStore

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


MANY = QueryLimits(most_read=100)
"""As if a hundred requests were as many as can be read."""


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


@pytest.mark.parametrize("by", [("tag:tenant",), ("output_tokens",), ("model", "tag:tenant")], ids=str)
def test_many_requests_have_the_same_counts_and_the_times_of_a_part(filled, by):
    """Counts are of all, groups add up to the whole; of the times it is said of how many they are."""
    part = summary(filled, chosen(), by, now_unix_ns=NOW_UNIX_NS, limits=MANY)
    exact = summary(filled, chosen(), by, now_unix_ns=NOW_UNIX_NS)
    assert (part.exact, exact.exact, exact.sampled) == (False, True, None)
    assert part.sampled.of == 400
    assert part.sampled.one_in == 4
    assert 80 <= part.sampled.read <= 120
    assert sum(g.requests for g in part.groups) == 400
    assert sum(g.read for g in part.groups) == part.sampled.read
    left_out = {"stages", "measures", "read"}
    for ours, theirs in zip((part.overall, *part.groups), (exact.overall, *exact.groups), strict=True):
        assert ours.model_dump(exclude=left_out) == theirs.model_dump(exclude=left_out)
        figures = zip(
            (*ours.stages, *ours.measures), (*theirs.stages, *theirs.measures), strict=True
        )
        for one, told in figures:
            assert one.name == told.name
            assert one.n + one.no_data == ours.read <= ours.requests
            assert one.max_ns is None or one.max_ns <= told.max_ns
    whole = next(m for m in part.overall.measures if m.name == "e2e")
    assert (part.overall.read, whole.n) == (400, 400)  # out of the roll-ups


def test_a_group_without_a_request_in_the_part_has_its_counts_and_no_times(filled):
    """Of few requests read, few groups have any: the others' percentiles are no data."""
    filters = chosen(tags=["tenant=t1"])
    found = summary(filled, filters, ("model", "output_tokens", "cached", "warm"),
                    now_unix_ns=NOW_UNIX_NS, limits=QueryLimits(most_read=5))  # fmt: skip
    assert found.overall.requests == 200
    assert 0 < found.overall.read == found.sampled.read < 50
    unread = [g for g in found.groups if not g.read]
    assert unread
    for group in unread:
        assert group.requests > 0
        assert all(m.n == 0 and m.p50_ns is None for m in group.measures)


def test_exact_reads_them_all(filled):
    """However many they are."""
    filters = chosen(exact=True)
    found = summary(filled, filters, ("tag:tenant",), now_unix_ns=NOW_UNIX_NS, limits=MANY)
    plain = summary(filled, chosen(), ("tag:tenant",), now_unix_ns=NOW_UNIX_NS)
    assert found.model_dump(exclude={"filters"}) == plain.model_dump(exclude={"filters"})


@pytest.mark.parametrize("asked", FILTERS, ids=str)
@pytest.mark.parametrize(
    "by", [(), ("model",), ("cached", "warm"), ("route", "status", "stream")], ids=str
)
def test_the_roll_ups_say_what_the_requests_say(filled, asked, by):
    """Counts, sums and maxima exactly, percentiles within the sketch, whole and per group."""
    filters = chosen(**asked)
    rolled = summary(filled, filters, by, now_unix_ns=NOW_UNIX_NS, limits=QueryLimits(most_read=10))
    plain = summary(filled, filters, by, now_unix_ns=NOW_UNIX_NS)
    if not plain.overall.requests:
        assert rolled.overall == plain.overall
        return
    assert (rolled.exact, rolled.read_from) == (False, "requests_1d, requests_1h, requests_1m")
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


def test_the_roll_ups_answer_for_the_window_that_was_asked(filled):
    """Bounds within an hour and within a minute: as many requests as lie between them."""
    filters = parse_filters(
        now_unix_ns=NOW_UNIX_NS, since="2026-01-01T08:10:30Z", until="2026-01-01T11:20:10Z"
    )
    found = summary(filled, filters, now_unix_ns=NOW_UNIX_NS, limits=MANY)
    exact = report(filled, filters, now_unix_ns=NOW_UNIX_NS).overall.counts.total
    assert found.read_from == "requests_1d, requests_1h, requests_1m"
    assert found.overall.requests == exact > 200


@pytest.mark.parametrize("by", [("tag:tenant",), ("input_tokens",)])
def test_what_the_roll_ups_lack_is_read_from_the_requests(filled, by):
    """Tags and lengths: times of a part of the requests themselves, which the answer says."""
    found = summary(filled, chosen(), by, now_unix_ns=NOW_UNIX_NS, limits=MANY)
    assert (found.exact, found.read_from) == (False, "requests")
    assert sum(g.requests for g in found.groups) == found.overall.requests == 400
    tagged = summary(filled, chosen(tags=["tenant=t1"]), now_unix_ns=NOW_UNIX_NS, limits=MANY)
    assert (tagged.read_from, tagged.overall.requests) == ("requests", 200)


@given(
    st.integers(0, 40 * DAY_NS), st.integers(1, 20 * DAY_NS), st.sets(st.integers(0, 60), max_size=12)
)
def test_a_window_is_cut_into_pieces_that_divide_it(begin, length, days):
    """Days, hours, minutes and the ends: none overlaps, none is missing, each is whole."""
    found = cut(begin, begin + length, days=[day * DAY_NS for day in days])
    pieces = sorted((*found.raw, *found.minutes, *found.hours, *found.days))
    assert (pieces[0][0], pieces[-1][1]) == (begin, begin + length)
    assert all(a[1] == b[0] for a, b in pairwise(pieces))
    for step, kind in ((MINUTE_NS, found.minutes), (HOUR_NS, found.hours), (DAY_NS, found.days)):
        assert all(a % step == b % step == 0 for a, b in kind)
    assert {a // DAY_NS for a, _ in found.days} <= days


def test_days_that_were_merged_say_what_their_hours_said(store):
    """The same counts, sums and maxima; percentiles within the sketch; a stale day is not taken."""
    day = BASE_UNIX_NS // DAY_NS * DAY_NS - BASE_UNIX_NS
    store.requests(*(
        {"start": day - 2 * DAY_NS + n * DAY_NS // 200, "decode": (1 + n * 7 % 50) * S, "Model": f"m{n % 2}"}
        for n in range(500)
    ))  # fmt: skip
    filters = parse_filters(now_unix_ns=NOW_UNIX_NS, since="7d")

    def asked():
        return summary(store, filters, ("model",), now_unix_ns=NOW_UNIX_NS, limits=MANY)

    hours = asked()
    assert made_days(store, 0, NOW_UNIX_NS, MANY) == ()
    assert make_days(store.raw, NOW_UNIX_NS // S) == 2
    assert len(made_days(store, 0, NOW_UNIX_NS, MANY)) == 2
    days = asked()
    for ours, theirs in zip((days.overall, *days.groups), (hours.overall, *hours.groups), strict=True):
        assert ours.requests == theirs.requests > 200
        for one, told in zip((*ours.stages, *ours.measures), (*theirs.stages, *theirs.measures), strict=True):
            assert (one.name, one.n, one.sum_ns, one.max_ns) == (told.name, told.n, told.sum_ns, told.max_ns)
            if one.n:
                assert one.p95_ns == pytest.approx(told.p95_ns, rel=0.03)
    store.requests({"start": day - DAY_NS, "decode": S})
    assert len(made_days(store, 0, NOW_UNIX_NS, MANY)) == 1
    assert asked().overall.requests == 501


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


def test_a_time_beyond_all_sums_takes_no_question_away(store):
    """Two TPOT of 1e308 in a store of before the view that leaves them out: the others stay readable."""
    store.requests(*({"decode": S, "TpotNs": 1e308} for _ in range(2)))
    found = summary(store, chosen(), now_unix_ns=NOW_UNIX_NS)
    assert {one.name: one.n for one in found.overall.measures}["tpot"] == 2
    assert {one.name: one.sum_ns for one in found.overall.stages}["decode"] == 2 * S
