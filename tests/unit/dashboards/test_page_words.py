"""How the page tells what is not known, large gauges, ids that look alike, and what a tab shows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dashboards.api import build_api
from dashboards.visible import quoted
from tests.support.browser import S, served, shown
from tests.support.clock import FakeClock
from tests.unit.dashboards.conftest import NOW_UNIX_NS, HandStore
from tracer import semconv

MS = S // 1000


@pytest.fixture(scope="module")
def url(module_store: HandStore) -> Iterator[str]:
    """Two requests that a third one's prefill holds up, with small ids; gauges near the largest number."""
    module_store.steps(*({"start": n * 10 * MS, "duration": 10 * MS, "decode": 2} for n in range(5)),
                       {"start": 100 * MS, "duration": 40 * MS, "decode": 2, "prefill": 2})  # fmt: skip
    for n in (1, 2):
        module_store.traced(n, prefill=(0, 5 * MS), decode=(5 * MS, 300 * MS), Model="v", OutputTokens=9)
    for n in (3, 4):
        module_store.traced(n, prefill=(95 * MS, 140 * MS), InputTokens=100 * n)
    module_store.gauges("gpu.big", {0: 1e308, 10 * MS: -1e308, 20 * MS: 1.7e308})
    module_store.gauges("gpu.bytes", {0: 0.0, 10 * MS: 1.7e308}, MetricUnit="By")
    module_store.gauges("gpu.flat", {0: 0.0, 10 * MS: 0.0})
    with served(build_api(module_store, None, FakeClock(unix_ns=NOW_UNIX_NS))) as at:
        yield at


def test_gauges_near_the_largest_number_have_a_line_and_short_labels(tab, url):
    """Their difference is beyond it: each point lies in the lane, and no label is a row of digits."""
    shown(tab, url, view="trace", id=f"{1:032x}")
    lane = tab.locator("[data-test=gpu]")
    names, ranges = (lane.locator(part).all_inner_texts() for part in (".name", ".time"))
    assert {name.strip(): told for name, told in zip(names, ranges, strict=True)} == {
        "gpu.big": "−1e+308 to 1.7e+308", "gpu.bytes": "0.00 to 1.58e+299 GiB", "gpu.flat": "0.00 to 0.00",
    }  # fmt: skip
    heights = [
        [float(point.split(",")[1]) for point in line.get_attribute("points").split()]
        for line in lane.locator("polyline").all()
    ]
    assert heights == [[5.7, 19.0, 1.0], [19.0, 1.0], [19.0, 19.0]]


def test_ids_that_begin_alike_are_told_apart(tab, url):
    """Of small ones the end is shown too, in each table of requests; the whole id is in the title."""
    for view, table in (("requests", "Requests"), ("tail", "Requests as they end"),
                        ("why", "Requests that lost"), ("why", "Requests that caused")):  # fmt: skip
        shown(tab, url, view=view)
        links = tab.get_by_role("region", name=table).locator("tbody tr > :first-child a").all()
        cut = [link.inner_text() for link in links]
        assert len(set(cut)) == len(cut) > 0, view
        for link, text in zip(links, cut, strict=True):
            whole = link.get_attribute("title")
            begin, _, end = text.partition("…")
            assert whole.startswith(begin), view
            assert whole.endswith(end), view


def test_ids_are_cut_to_the_shortest_that_tells_them_apart(tab, url):
    """Eight digits of ids that differ in these; more where they begin alike; whole at last."""
    tab.goto(url)
    cut = "ids => import('/web/api.js').then((api) => { const cut = api.idCut(ids); return ids.map(cut); })"
    assert tab.evaluate(cut, arg=["ab" * 16, "cd" * 16, "ab" * 16]) == ["abababab", "cdcdcdcd", "abababab"]
    assert tab.evaluate(cut, arg=["a" * 10 + "b" * 22, "a" * 32]) == ["a" * 10 + "bb", "a" * 12]
    ends = ["a" * 31 + "b", "a" * 32]
    assert tab.evaluate(cut, arg=ends) == ["a" * 8 + "…" + "a" * 7 + "b", "a" * 8 + "…" + "a" * 8]
    middles = ["a" * 16 + "b" + "a" * 15, "a" * 32]
    assert tab.evaluate(cut, arg=middles) == middles


def test_the_tab_is_named_by_its_view(tab, url):
    """So that two of them are told apart; of a trace by its id."""
    for query, title in (("", "Overview"), ("?view=why", "Why slow"), ("?view=x", "No such view"),
                         (f"?view=trace&id={1:032x}", f"Trace {1:032x}")):  # fmt: skip
        shown(tab, f"{url}/{query}")
        assert tab.title() == f"{title} – Stagelens"


@pytest.mark.parametrize("query", ["view=", "view=requests&sort=", "view=slices&by="])
def test_what_stands_empty_in_a_link_is_not_given(tab, url, query):
    """As without it: no sentence about a view or an order without a name."""
    shown(tab, f"{url}/?{query}")
    assert tab.get_by_role("alert").count() == 0
    assert tab.locator("main table").count() > 0


def test_hits_that_nobody_tells_are_not_counted(tab, url, module_store):
    """Neither "0 of 0 requests hit" nor "no data of the input tokens"; nor where the input is not told."""
    shown(tab, url, view="why", model="v")
    words = tab.locator("main").inner_text()
    assert "Which requests hit is not known." in words
    assert "0 of 0" not in words
    module_store.requests({"decode": S, "Model": "half", "CachedTokens": 5})
    shown(tab, url, view="why", model="half")
    words = tab.locator("main").inner_text()
    assert "1 of 1 request hit; what share of the input tokens was cached is not known." in words
    assert "no data of" not in words


def test_a_correct_task_without_a_price_has_a_time(tab, url, module_store):
    """Its cost is said to be unknown; of tasks of which none is correct neither is told."""
    for n, good in ((1, "true"), (2, "false")):
        module_store.spans({"TraceId": f"{n:032x}", "SpanId": "o", "SpanName": semconv.OUTCOME_SPAN,
                            "SpanAttributes": {semconv.OUTCOME_SUCCESS: good}})  # fmt: skip
    shown(tab, url, view="goodput", model="v")
    told = "1 of 2 tasks correct; 600.0 ms for each correct one, whose cost is not known."
    tab.get_by_text(told).wait_for()
    module_store.requests({"start": 60 * S, "TraceId": "f" * 32, "decode": S, "Model": "wrong"})
    module_store.spans({"TraceId": "f" * 32, "SpanId": "o", "SpanName": semconv.OUTCOME_SPAN,
                        "SpanAttributes": {semconv.OUTCOME_SUCCESS: "false"}})  # fmt: skip
    shown(tab, url, view="goodput", model="wrong")
    tab.get_by_text("0 of 1 task correct.").wait_for()


def test_line_ends_and_tabs_of_a_tag_are_seen(tab, url, module_store):
    """Its name and value are not shown as blanks, neither among the slices nor in the trace."""
    module_store.requests({"start": 90 * S, "decode": S, "Model": "ends", "TraceId": "e" * 32, "SpanId": "r",
                           "Tags": {"a\nb\tc": "d\r\ne"}})  # fmt: skip
    module_store.spans({"TraceId": "e" * 32, "SpanId": "r", "start": 90 * S, "duration": S})
    shown(tab, url, view="slices", model="ends", by="tag:a\nb\tc")
    assert tab.get_by_role("link", name="tag:a\\nb\\tc", exact=True).count() == 1
    assert tab.locator("tbody th").all_inner_texts() == ["d\\r\\ne"]
    shown(tab, url, view="trace", id="e" * 32)
    assert tab.locator("dt", has_text="tag a\\nb\\tc").locator("+ dd").inner_text() == "d\\r\\ne"


def test_no_cell_stands_empty_for_a_value_that_shows_nothing(tab, url, module_store):
    """Values of a tag are quoted; a model or a route that is not told is no data."""
    for n, (value, model) in enumerate((("", ""), (" ", " "), ("x", "x"))):
        given = {"Model": model, "Route": model, "Tags": {"bl": value}}
        module_store.requests({"start": (91 + n) * S, "decode": S, **given})
    shown(tab, url, view="slices", by="tag:bl")
    assert set(tab.locator("tbody th").all_inner_texts()) == {'""', '" "', "x", "not known"}
    shown(tab, url, view="requests", tag="bl=")
    assert tab.locator("tbody td").all_inner_texts()[1:3] == ["no data", "no data"]
    shown(tab, url, view="requests", tag="bl= ")
    assert tab.locator("tbody td").all_inner_texts()[1:3] == ['" "', '" "']


def test_each_tag_that_is_offered_can_be_sliced_by(tab, url, module_store):
    """Also one with a comma, one that is a blank, and one that looks escaped; each is named as it is."""
    names = ["a,b", " ", "%41%", " c ", "d%2Ce", "f+g&h"]
    tags = {name: f"<{name}>" for name in names}
    module_store.requests({"start": 99 * S, "decode": S, "Model": "odd tags", "Tags": tags})
    for name in names:
        shown(tab, url, view="slices", model="odd tags")
        tab.locator("main p a").filter(has_text="tag:").nth(sorted(names).index(name)).click()
        tab.locator("main:not([aria-busy]) table").wait_for()
        assert tab.get_by_role("alert").count() == 0
        assert tab.locator("tbody th").all_text_contents() == [f"<{name}>"]
        shown_as = f"tag:{quoted(name)}"
        assert tab.locator("caption").text_content() == f"Slices by {shown_as}"
        assert tab.locator("main p a[aria-current]").text_content() == shown_as
