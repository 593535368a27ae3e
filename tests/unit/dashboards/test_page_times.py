"""What the page makes of requests far from now."""

from __future__ import annotations

from dashboards.api import build_api
from tests.support.browser import S, asked, served, shown
from tests.support.clock import FakeClock
from tests.unit.dashboards.conftest import NOW_UNIX_NS

HOUR = 3600 * S
YEAR = 365 * 24 * HOUR


def test_a_clock_that_is_ahead_is_said_and_stretches_no_chart(tab, store):
    """One request 30 years after now beside one of this hour: the charts have the steps of the hour."""
    store.requests({"decode": S}, {"start": 30 * YEAR, "decode": S})
    with served(build_api(store, None, FakeClock(unix_ns=NOW_UNIX_NS))) as url:
        shown(tab, url)
        tab.get_by_text("1 request began later than now, by a clock that is ahead").first.wait_for()
        ticks = tab.evaluate("document.querySelector('.chart .js-plotly-plot, .chart').data[0].x.length")
        assert ticks == 1
        store.truncate("requests")
        store.requests({"start": 30 * YEAR, "decode": S})
        shown(tab, url)
        tab.get_by_text("No request began in this window.").first.wait_for()


def test_runs_are_compared_at_all_times_unless_a_time_is_chosen(tab, store):
    """Two runs of five hours ago: the page compares them as the command line does."""
    for run, decode in (("a", S), ("b", 2 * S)):
        store.requests(*({"start": -5 * HOUR + n * S, "decode": decode, "Tags": {"run": run}}
                         for n in range(5)))  # fmt: skip
    with served(build_api(store, None, FakeClock(unix_ns=NOW_UNIX_NS))) as url:
        shown(tab, url, view="compare", a="a", b="b")
        row = tab.locator("tbody tr", has=tab.locator("th:text-is('e2e p50')"))
        assert row.locator("td").all_inner_texts()[:3] == ["1.00 s", "2.00 s", "+1.00 s"]
        assert tab.get_by_label("Since").input_value() == ""
        assert asked(url, "/compare", a="a", b="b")["requests_a"] == 5
        shown(tab, url, view="compare", a="a", b="b", since="1h")
        tab.get_by_text("A has no requests.").wait_for()
