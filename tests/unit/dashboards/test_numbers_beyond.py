"""Figures that no measurement gives: they are told short, and take no room from the others."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

import pytest
from rich.cells import cell_len
from rich.console import Console

from dashboards.analyses.goodput import parse_limits
from dashboards.api import build_api
from dashboards.filters import Filters, parse_filters
from dashboards.html.report import render_html
from dashboards.source import StoreSource
from dashboards.terminal.costs import render_goodput, render_throughput
from dashboards.terminal.report import render_report
from dashboards.terminal.requests import render_requests
from dashboards.terminal.text import MS, SECONDS, decimals, duration, in_unit, number, rate
from dashboards.times import in_words, many
from tests.support.browser import S, served, shown
from tests.support.clock import FakeClock
from tests.unit.dashboards.conftest import NOW_UNIX_NS, HandStore

ROW_OF_DIGITS = re.compile(r"[1-9][\d,]{20,}")
"""Longer than any count or time that a reader could take in."""


@pytest.fixture(scope="module")
def filled(module_store: HandStore) -> HandStore:
    """Requests whose TPOT and tokens are beyond all reason, and one that took 47 years."""
    module_store.requests(
        {"decode": S, "TpotNs": 1e300, "FirstTokenNs": S // 2, "OutputTokens": 2**32 - 1, "Stream": True},
        {"decode": S, "TpotNs": 1.7e308, "FirstTokenNs": S // 2, "OutputTokens": 2**32 - 1},
        {"decode": 15 * 10**17, "Model": "slow", "TpotNs": 1e300},
    )  # fmt: skip
    return module_store


def source(store) -> StoreSource:
    return StoreSource(store, FakeClock(unix_ns=NOW_UNIX_NS))


def text_of(render, found, width) -> str:
    console = Console(width=width, file=io.StringIO(), record=True)
    render(found, console)
    return console.export_text()


@pytest.mark.parametrize("width", [80, 100, 160])
def test_no_column_of_a_table_vanishes_beside_a_large_figure(filled, width):
    """A percentile of 1e+291 s: every column of the report has its head and its figure."""
    found = source(filled).report(Filters(), ["model"])
    text = text_of(render_report, found, width)
    lines = text.splitlines()
    assert all(cell_len(line) <= width for line in lines)
    assert ROW_OF_DIGITS.findall(text) == []
    row = next(line for line in lines if line.startswith("TPOT")).split()
    assert len(row) == 1 + 1 + 5  # its name, n, and each percentile to the maximum
    assert row[-1] == "2e+299"
    heads = next(line for line in lines if line.startswith("stage")).split()
    assert heads == ["stage", "n", "data", "s", "s", "s", "s", "s", "%", "5", "%"]
    assert "…" not in text


def test_the_other_tables_and_sentences_hold_no_row_of_digits(filled):
    """Requests, goodput and throughput of the same."""
    of = source(filled)
    for render, found in (
        (render_requests, of.requests(Filters(), sort="e2e")),
        (render_goodput, of.goodput(Filters(), parse_limits("1s", "1s", None))),
        (render_throughput, of.throughput(Filters())),
    ):
        assert ROW_OF_DIGITS.findall(text_of(render, found, 120)) == []


@pytest.mark.parametrize("value", [1e300, 1.7e308, 2.0**64, 1e21])
def test_a_large_figure_is_short_in_every_form(value):
    """In a column at most seven cells for a time and nine for a count; in a sentence a power of ten."""
    assert all(len(in_unit(value, unit)) <= 7 for unit in (MS, SECONDS))
    assert all(len(told) <= 9 for told in (number(int(value)), rate(value), decimals(value, 3)))
    assert len(decimals(-value, 3, "+z")) <= 10
    assert all(len(told) <= 20 for told in (duration(value), in_words(value), many(int(value), "token")))


def test_the_html_report_writes_them_short(filled):
    """In its tables, cards and plots."""
    filters = parse_filters(now_unix_ns=NOW_UNIX_NS, since="2h")
    of = source(filled)
    text = render_html(of.report(filters, ("model",)), [of.series(filters, m) for m in ("e2e", "ttft")])
    page = text.partition("<body>")[2].partition("<script>")[0]
    assert ">1e+291 s<" in page
    assert "1.7e+299 s" in page
    assert re.findall(r"[1-9]\d{20,}", page) == []


@pytest.fixture(scope="module")
def url(filled: HandStore) -> Iterator[str]:
    with served(build_api(filled, None, FakeClock(unix_ns=NOW_UNIX_NS))) as at:
        yield at


@pytest.mark.parametrize("view", ["overview", "slices", "requests", "goodput", "why", "whatif"])
def test_the_page_writes_them_short(tab, url, view):
    """In every view; the overview tells the TPOT."""
    shown(tab, url, view=view)
    text = tab.locator("main").inner_text()
    assert ROW_OF_DIGITS.findall(text) == []
    if view == "overview":
        assert "1e+291 s" in text
