"""What went wrong in other projects' dashboards, tried on the page and its queries."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from dashboards.api import build_api
from dashboards.filters import parse_filters
from dashboards.queries.facets import facets
from dashboards.queries.requests import requests
from dashboards.queries.series import series
from dashboards.queries.summary import summary
from tests.support.browser import served, shown
from tests.support.clock import FakeClock
from tests.unit.dashboards.conftest import NOW_UNIX_NS, HandStore

NAMES = ("d'arc", "a--b", "x\\y", 'c"d', "e`f", "{g:String}", "%h%", "i;j", "k,l", "ü m")
ID = "ab" * 16


@pytest.fixture(scope="module")
def url(module_store: HandStore):
    """A request a name, and spans shorter than a millisecond."""
    module_store.requests(*({"Model": name, "decode": 5, "Tags": {"t": name}} for name in NAMES))
    module_store.spans(
        {"TraceId": ID, "SpanId": "r", "SpanName": "root", "duration": 2_000_000},
        {"TraceId": ID, "SpanId": "a", "ParentSpanId": "r", "SpanName": "short", "duration": 400_000},
        {"TraceId": ID, "SpanId": "b", "ParentSpanId": "r", "SpanName": "long", "duration": 1_500_000},
    )  # fmt: skip
    with served(build_api(module_store, None, FakeClock(unix_ns=NOW_UNIX_NS))) as at:
        yield at


@pytest.mark.parametrize("field", ["Model", "Tag"])
def test_a_filter_holds_any_name_letter_by_letter(tab, url, field):
    """Typed into the page: quotes, dashes, backslashes and braces find their own request alone."""
    shown(tab, url, view="requests")
    for name in NAMES:
        tab.get_by_label(field, exact=True).fill(name if field == "Model" else f"t={name}")
        tab.get_by_role("button", name="Show").press("Enter")
        tab.get_by_text("1 of 1 request,").wait_for()
        tab.wait_for_selector("main:not([aria-busy])")
        assert tab.locator("tbody td:nth-child(3)").all_inner_texts() == [name]
    tab.get_by_label(field, exact=True).fill("")
    tab.get_by_role("button", name="Show").press("Enter")
    tab.get_by_text(f"{len(NAMES)} of {len(NAMES)} requests").wait_for()


def test_several_values_in_the_url_are_all_meant(tab, url):
    """Two models, and one that nobody has."""
    tab.goto(f"{url}/?view=requests&model=d%27arc&model=a--b&model=nobody")
    tab.get_by_text("2 of 2 requests").wait_for()


def test_spans_below_a_millisecond_keep_their_length(tab, url):
    """400,000 ns and 1,500,000 ns are 400 µs and 1.5 ms, and their bars are as long."""
    shown(tab, url, view="trace", id=ID)
    rows = tab.locator("[data-test=waterfall] .time").all_inner_texts()
    assert rows == ["2.0 ms", "1.5 ms", "400 µs"]
    widths = [
        float(bar.get_attribute("width"))
        for bar in tab.locator("[data-test=waterfall] rect[y='2']").all()
    ]
    assert widths == pytest.approx([1000, 750, 200])


class Noting:
    """A store that notes what it is asked."""

    def __init__(self, store: HandStore) -> None:
        self._store = store
        self.database = store.database
        self.asked: list[tuple[str, Mapping[str, object]]] = []

    def query(self, sql: str, params: Mapping[str, object]) -> list[dict[str, object]]:
        self.asked.append((sql, params))
        return self._store.query(sql, params)


def test_the_last_hour_of_a_month_reads_a_part_of_a_hundred(store):
    """Every query of the first view and of the lists, over a million requests in thirty days."""
    begin = NOW_UNIX_NS - 30 * 86_400 * 10**9
    store._store.command(
        f"INSERT INTO {store.database}.requests (Timestamp, Model, Operation, E2ENs) "
        f"SELECT fromUnixTimestamp64Nano(toInt64({begin} + number * 2592000000)), "
        "['a', 'b', 'c'][number % 3 + 1], 'chat', number FROM numbers(1000000)"
    )
    store._store.command(f"OPTIMIZE TABLE {store.database}.requests FINAL")
    noting = Noting(store)
    filters = parse_filters(now_unix_ns=NOW_UNIX_NS, since="1h")
    assert 1300 < summary(noting, filters, now_unix_ns=NOW_UNIX_NS).overall.requests < 1400
    series(noting, filters, now_unix_ns=NOW_UNIX_NS)
    requests(noting, filters, sort="e2e")
    facets(noting, filters)
    asked = [(sql, params) for sql, params in noting.asked if ".requests" in sql]
    read = [(sql, _granules(store, sql, params)) for sql, params in asked]
    assert len([one for _, one in read if one is not None]) >= 7
    for sql, granules in read:
        if granules is not None:
            some, whole = granules
            assert whole >= 120, sql
            assert some <= 6, sql


def _granules(
    store: HandStore, sql: str, params: Mapping[str, object]
) -> tuple[int, int] | None:
    """How many granules ClickHouse selects for ``sql``, and how many there are; None: it reads none."""
    plain = sql.rpartition("\nSETTINGS")[0]
    rows = store.query(f"SELECT explain FROM (EXPLAIN indexes = 1 {plain})", params)
    counts = [re.search(r"Granules: (\d+)/(\d+)", str(row["explain"])) for row in rows]
    found = [(int(m[1]), int(m[2])) for m in counts if m]
    if not found:  # the bounds that each part keeps are enough
        assert any("_minmax_count_projection" in str(row["explain"]) for row in rows), rows
        return None
    return found[-1][0], found[0][1]
