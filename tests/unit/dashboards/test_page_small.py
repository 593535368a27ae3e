"""Figures that are small or nearly all: the page never rounds them to 0 or to 100 %."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dashboards.api import build_api
from dashboards.filters import parse_filters
from dashboards.html.report import render_html
from dashboards.source import StoreSource
from dashboards.terminal.text import rate
from tests.support.browser import S, served, shown
from tests.support.clock import FakeClock
from tests.unit.dashboards.conftest import NOW_UNIX_NS, HandStore


@pytest.fixture(scope="module")
def url(module_store: HandStore) -> Iterator[str]:
    """Two requests of a model within 2,048 s, of one output token each."""
    for start in (0, 2047 * S):
        module_store.requests({"start": start, "decode": S, "Model": "low", "OutputTokens": 1, "FirstTokenNs": S})
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
