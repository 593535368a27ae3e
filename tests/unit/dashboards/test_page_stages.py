"""The stages in the overview: their intervals, and the stack with n."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dashboards.api import build_api
from tests.support.browser import S, asked, interval, served, shown
from tests.support.clock import FakeClock
from tests.unit.dashboards.conftest import NOW_UNIX_NS, HandStore

TITLES = {"first_chunk": "First chunk", "first_answer": "First answer", "itl_chunk": "ITL (chunk gaps)"}
NARROW = {"width": 390, "height": 800}


@pytest.fixture(scope="module")
def url(module_store: HandStore) -> Iterator[str]:
    """Forty requests, of which one has a retrieval of 20 s."""
    module_store.requests(*(
        {"start": n * 60 * S, "queue": n * S // 20, "prefill": S // 2, "decode": (1 + n % 5) * S,
         "retrieval": 20 * S if n == 11 else 0, "FirstTokenNs": S}
        for n in range(40)
    ))  # fmt: skip
    with served(build_api(module_store, None, FakeClock(unix_ns=NOW_UNIX_NS))) as at:
        yield at


def test_each_percentile_has_the_apis_interval_below(tab, url):
    """Every stage and measure with intervals, at 390 px too, where the page is no wider."""
    tab.set_viewport_size(NARROW)
    shown(tab, url)
    whole = asked(url, "/report", since="1h")["overall"]
    rows = tab.get_by_role("region", name="Percentiles by stage").locator("tbody tr")
    told = {row.locator("th").inner_text(): row.locator("small").all_inner_texts() for row in rows.all()}
    for one in [*whole["stages"], *whole["measures"]]:
        name = one.get("stage") or TITLES.get(one["measure"], one["measure"].upper())
        if one.get("part_of") is None:
            assert told[name] == [interval(i["low_ns"], i["high_ns"]) for i in one["intervals"]], name
    assert told["queue"][0][0] != "?"
    assert told["queue"][3].endswith("– ?")
    assert tab.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]


def test_without_intervals_it_is_said_where_they_are(browser, url):
    """While the roll-ups' figures are shown, and in a part: no bound, and where to find them."""
    tab = browser.new_page()
    tab.route("**/api/v1/report?*", lambda route: route.fulfill(status=400, json={"detail": "too many"}))
    shown(tab, url)
    assert tab.locator("td small").count() == 0
    assert "where all requests are read" in tab.locator("[data-test=intervals]").inner_text()
    tab.close()


def test_a_stage_of_few_requests_is_named_below_the_stack_and_not_in_it(tab, url):
    """One retrieval of 20 s in forty requests would fill most of the p50 bar: its n is told instead."""
    shown(tab, url)
    bars = tab.locator("[data-test=stacks] svg").all()
    assert [bar.locator(".s-retrieval").count() for bar in bars] == [0, 0, 0]
    assert [bar.locator(".s-decode").count() for bar in bars] == [1, 1, 1]
    note = tab.locator("[data-test=rare]").inner_text()
    assert note == (
        "n: of 40 requests, those that ran the stage. Not in the bars, since fewer than one in ten "
        "ran them: retrieval (n 1)."
    )
    legend = tab.get_by_role("list", name="Colours of the stages").get_by_role("listitem")
    told = dict(one.rsplit(" n ", 1) for one in legend.all_inner_texts())
    figures = asked(url, "/report", since="1h")["overall"]["stages"]
    assert told == {s["stage"]: str(s["n"]) for s in figures if s["n"] >= 4 and not s["part_of"]}


def test_a_stage_that_a_tenth_of_the_requests_ran_is_in_the_stack(tab, url):
    """Ten requests of which one has the retrieval: just enough, with n 1 beside its name."""
    shown(tab, url, since="2026-01-01T12:05:00Z", until="2026-01-01T12:15:00Z")
    assert tab.locator("[data-test=stacks] .s-retrieval").count() == 3
    assert "retrieval n 1" in tab.get_by_role("list", name="Colours of the stages").inner_text()
    assert "Not in the bars" not in tab.locator("[data-test=rare]").inner_text()
