"""How requests lie in time, and what picks those of some slices of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards.analyses.compare import Side, compare
from dashboards.filters import Filters, where
from dashboards.queries.base import QueryLimits
from dashboards.queries.dimensions import dimensions, known
from dashboards.queries.sample import part_of, within
from dashboards.queries.steps import ROLLED_FROM_NS, Slice, counted
from tests.unit.dashboards.conftest import BASE_UNIX_NS, HandStore

S = 1_000_000_000
MANY = QueryLimits(most_read=200)
N = 2000
APART_S = 86
"""Seconds between two requests: two days in all."""


@pytest.fixture(scope="module")
def filled(module_store: HandStore) -> HandStore:
    """Two thousand requests over two days; many figures are missing in some of them."""
    module_store.requests(*(
        {"start": n * APART_S * S + n % 7, "decode": (1 + n % 9) * S,
         "Model": f"m{n % 3}", "InputTokens": n % 3000 if n % 5 else None,
         "OutputTokens": n % 400 if n % 7 else None, "CachedTokens": n % 2 if n % 4 else None,
         "Warm": bool(n % 3) if n % 6 else None, "InFlight": n % 40, "Stream": bool(n % 2),
         "Status": "error" if n % 50 == 7 else "ok", "ErrorType": "timeout" if n % 50 == 7 else "",
         "FinishReason": "stop" if n % 3 else "", "Route": "/a" if n % 11 else "",
         "Tags": {"other": "x", "tenant": f"t{n % 3}" if n % 3 else ""} if n % 8 else {"other": "x"}}
        for n in range(N)
    ))  # fmt: skip
    return module_store


def ask(store: HandStore, sql: str, params: dict[str, object] | None = None) -> list[dict[str, object]]:
    return store.query(sql.replace("requests", f"{store.database}.requests"), params or {})


@pytest.mark.parametrize("name", [*(one for one in known() if one != "tag:NAME"), "tag:tenant", "tag:no"])
def test_what_is_grouped_by_tells_the_values_apart_and_no_others(filled, name):
    """Each request's value comes back out of it, known or not."""
    (one,) = dimensions((name,))
    coded = f"(SELECT *, {one.key} AS code FROM requests)"
    sql = f"SELECT {one.sql} AS told, {one.decoded('code')} AS back FROM {coded}"
    rows = ask(filled, sql, dict(one.params))
    assert len(rows) == N
    assert [row["told"] for row in rows] == [row["back"] for row in rows]
    if name not in {"tag:no", "stream"}:
        assert len({row["told"] for row in rows}) > 1


@pytest.mark.parametrize("value", ["t1", "", "nobody"])
def test_a_tag_with_an_empty_value_is_not_a_tag_that_is_missing(filled, value):
    """The filter takes requests that have the tag, with that value."""
    picked = where(Filters(tags={"tenant": value}))
    (row,) = ask(filled, f"SELECT count() AS n FROM requests WHERE {picked.sql}", dict(picked.params))
    (told,) = ask(
        filled,
        "SELECT count() AS n FROM requests WHERE mapContains(Tags, 'tenant') AND Tags['tenant'] = {v:String}",
        {"v": value},
    )
    assert row == told
    assert bool(row["n"]) == (value != "nobody")


spans = st.lists(st.tuples(st.integers(0, 170_000), st.integers(1, 3000)), min_size=1, max_size=12)


@given(spans, st.integers(0, 2000), st.integers(0, 2000))
def test_a_search_in_bounds_picks_what_the_times_say(filled, pairs, before, after):
    """Slices that touch, overlap or stand in any order, widened on both sides."""
    slices = [Slice(BASE_UNIX_NS + at * S, BASE_UNIX_NS + (at + long) * S, 1.0) for at, long in pairs]
    (row,) = ask(filled, f"SELECT count() AS n FROM requests WHERE {within(slices, before * S, after * S)}")
    starts = [BASE_UNIX_NS + n * APART_S * S + n % 7 for n in range(N)]
    wide = [(one.begin - before * S, one.end + after * S) for one in slices]
    assert row["n"] == sum(any(a <= at < b for a, b in wide) for at in starts)


@pytest.mark.parametrize("more", [{}, {"model": ("m1",)}, {"status": ("error",), "warm": "exclude"}])
def test_the_roll_ups_place_requests_where_they_began(filled, more):
    """As many in each step as the requests themselves say, for steps of whole minutes."""
    begin, end = BASE_UNIX_NS + 1234 * S, BASE_UNIX_NS + 150_000 * S
    assert end - begin > ROLLED_FROM_NS
    filters = Filters(since_unix_ns=begin, until_unix_ns=end, **more)
    found = counted(filled, filters, MANY)
    assert found.sums == {}  # no request was read
    assert found.total > 0
    for one in found.steps:
        inside = where(filters.model_copy(update={"since_unix_ns": one.begin, "until_unix_ns": one.end}))
        (row,) = ask(filled, f"SELECT count() AS n FROM requests WHERE {inside.sql}", dict(inside.params))
        assert row["n"] == one.rows
    picked = where(filters)
    (row,) = ask(filled, f"SELECT count() AS n FROM requests WHERE {picked.sql}", dict(picked.params))
    assert found.total == row["n"]


def test_a_scan_for_steps_brings_the_sums_that_were_asked_for(filled):
    """Of all chosen requests, whichever part is read after it."""
    filters = Filters(tags={"tenant": "t1"})
    columns = ("countIf(Status = 'ok') AS fine", "sum(OutputTokens) AS words")
    part = part_of(filled, filters, MANY, columns=columns)
    picked = where(filters)
    (row,) = ask(
        filled,
        f"SELECT {', '.join(columns)}, count() AS n FROM requests WHERE {picked.sql}",
        dict(picked.params),
    )
    assert part.sums == {"fine": row["fine"], "words": row["words"]}
    assert part.sampled.of == row["n"] > part.sampled.read > 0


def test_a_comparison_of_parts_has_the_lengths_of_all(filled):
    """Means and numbers out of the roll-ups are those of the requests."""
    half = BASE_UNIX_NS + N * APART_S * S // 2
    sides = (
        Side("a", Filters(since_unix_ns=BASE_UNIX_NS, until_unix_ns=half)),
        Side("b", Filters(since_unix_ns=half, until_unix_ns=BASE_UNIX_NS + N * APART_S * S)),
    )
    part, exact = compare(filled, *sides, MANY), compare(filled, *sides)
    assert part.sampled_a.of == part.requests_a == exact.requests_a
    assert (part.requests_b, part.warnings) == (exact.requests_b, exact.warnings)
    assert part.requests_a + part.requests_b == N
    read = next(d for d in part.differences if (d.quantity, d.percentile) == ("e2e", "p50"))
    assert read.n_a == part.sampled_a.read < part.requests_a
