"""Figures that are small or nearly all: the page never rounds them to 0 or to 100 %."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dashboards.api import build_api
from dashboards.filters import parse_filters
from dashboards.html.report import render_html
from dashboards.html.tables import time as html_time
from dashboards.source import StoreSource
from dashboards.terminal.text import rate
from tests.support.browser import S, served, shown
from tests.support.clock import FakeClock
from tests.unit.dashboards.conftest import NOW_UNIX_NS, HandStore


@pytest.fixture(scope="module")
def url(module_store: HandStore) -> Iterator[str]:
    """Two requests of a model within 2,048 s, of one output token each."""
    for start in (0, 2047 * S):
        module_store.requests(
            {"start": start, "decode": S, "Model": "low", "OutputTokens": 1, "FirstTokenNs": S}
        )
    with served(build_api(module_store, None, FakeClock(unix_ns=NOW_UNIX_NS))) as at:
        yield at


def made(tab, name: str, values: list[float]) -> list[str]:
    """What a function of dom.js makes of each value."""
    code = "([name, all]) => import('/web/dom.js').then((dom) => all.map((one) => dom[name](one)))"
    return tab.evaluate(code, arg=[name, values])


def test_a_rate_of_a_low_load_is_no_0(tab, url):
    """The cards and the line of goodput have three digits of it."""
    shown(tab, url, model="low")
    for name in ("Requests/s", "Output tokens/s"):
        card = tab.locator(".card", has_text=name).locator("dd").inner_text()
        assert card.startswith("0.000977"), name
    assert "0.000977 of 0.000977 requests/s met" in tab.locator("[data-test=goodput]").inner_text()


def test_rates_are_written_as_the_command_line_writes_them(tab, url):
    """Three digits or all before the point, a 0 of 0 alone."""
    tab.goto(url)
    values = [0, 0.000488, 0.01234, 0.5, 1.234, 56.78, 987.6, 12345.6]
    assert made(tab, "rate", values) == [rate(value) for value in values]


def test_a_low_rate_is_no_0_in_the_html_report(url, module_store):
    """In its cards, as in the page's."""
    source = StoreSource(module_store, FakeClock(unix_ns=NOW_UNIX_NS))
    filters = parse_filters(now_unix_ns=NOW_UNIX_NS, model=["low"])
    text = render_html(source.report(filters, ()), [source.series(filters, m) for m in ("e2e", "ttft")])
    assert text.count('<span class="whole">0.000977</span>') == 2


@pytest.mark.parametrize("view", ["requests", "tail"])
def test_a_request_that_ran_no_stage_has_no_longest_one(tab, url, module_store, view):
    """Not the first of the stages with a time of 0."""
    module_store.requests({"start": 3000 * S, "Status": "error", "Model": f"none-{view}"})
    shown(tab, url, view=view, model=f"none-{view}")
    assert tab.locator("tbody tr > :last-child").all_inner_texts() == ["no data"]


def test_a_share_is_0_or_100_percent_only_where_it_is(tab, url):
    """A tenth of a per cent is the least that is told of the rest."""
    tab.goto(url)
    assert made(tab, "share", [0, 0.0004, 0.004, 0.5, 0.999, 0.9996, 1]) == [
        "0.0 %", "<0.1 %", "0.4 %", "50.0 %", "99.9 %", ">99.9 %", "100.0 %"
    ]  # fmt: skip


def test_long_times_are_told_in_hours_and_days(tab, url):
    """No row of minutes; the HTML report has the same units."""
    tab.goto(url)
    values = [59 * 60 * S, 3600 * S, 90_000_000 * S, -7200 * S]
    assert made(tab, "time", values) == ["59.0 min", "1.00 h", "1041.67 d", "−2.00 h"]
    assert [html_time(value) for value in values[:3]] == ["59.0 min", "1.00 h", "1041.67 d"]


def test_a_change_has_its_sign(tab, url):
    """A rise as well as a fall, in the table of a what-if; what rounds to zero has none."""
    tab.goto(url)
    assert made(tab, "change", [0.6, -0.25, 0, 0.0004, -0.0004]) == [
        "+60.0 %", "−25.0 %", "0.0 %", "0.0 %", "0.0 %"
    ]  # fmt: skip
    shown(tab, url, view="whatif", model="low", change="decode=+60%")
    cells = tab.get_by_role("region", name="would bring").locator("tbody tr").first.locator("td")
    assert cells.nth(2).inner_text() == "+60.0 %"
