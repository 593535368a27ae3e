"""How the analyses' sentences tell counts: one is not many, and thousands are kept apart."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from dashboards.analyses.goodput import parse_limits
from dashboards.filters import Filters
from dashboards.models.cache import Cache
from dashboards.source import StoreSource
from dashboards.terminal.causes import render_attribution, render_interference, render_path
from dashboards.terminal.costs import render_cache, render_goodput, render_throughput
from dashboards.terminal.report import render_report
from dashboards.terminal.requests import render_requests
from dashboards.times import many
from tests.support.clock import FakeClock
from tests.unit.dashboards.conftest import NOW_UNIX_NS

S = 1_000_000_000
ONE_OF_MANY = re.compile(r"(?<![\d,.])1 (?:requests|spans|steps|tokens|times|others|preemptions)\b")
UNBROKEN = re.compile(r"(?<![\w,.:-])\d{4,}(?= (?:of|requests|hit|broke|steps)\b)")


def all_texts(store) -> str:
    """What the command line prints of every analysis."""
    source, console = StoreSource(store, FakeClock(unix_ns=NOW_UNIX_NS)), text_console()
    every = Filters()
    render_report(source.report(every, ()), console)
    render_requests(source.requests(every, limit=3), console)
    render_attribution(source.attribution(every, "e2e"), console)
    render_path(source.path(every), console)
    render_interference(source.interference(every), console)
    render_cache(source.cache(every), console)
    render_goodput(source.goodput(every, parse_limits("1ms", None, None)), console)
    render_throughput(source.throughput(every), console)
    return console.export_text()


def text_console() -> Console:
    return Console(width=200, file=io.StringIO(), record=True)


def test_one_request_is_one(store):
    """A lone one with spans, a preemption and a mixed step: nowhere "1 requests"."""
    store.traced(1, prefill=(0, S), decode=(S, 3 * S), FirstTokenNs=S, CachedTokens=0, InputTokens=1,
                 OutputTokens=1, Preemptions=1, PreemptedNs=5)  # fmt: skip
    store.steps({"start": S, "duration": S, "prefill": 1, "decode": 1})
    text = all_texts(store)
    assert ONE_OF_MANY.findall(text) == []
    assert "0 of 1 request (0 %) met the limits" in text
    assert "Preempted 1 time in 1 request" in text


def test_thousands_are_kept_apart(store):
    """Of 1,234 requests all missed, in the same words as beside them in the tables."""
    store.requests(*(
        {"start": n * S, "queue": S, "prefill": S, "FirstTokenNs": 2 * S, "CachedTokens": n % 2,
         "InputTokens": 2 + n % 9} for n in range(1234)
    ))  # fmt: skip
    text = all_texts(store)
    assert UNBROKEN.findall(text) == []
    assert "0 of 1,234 requests (0 %) met the limits" in text
    assert "1,234 broke TTFT, 1,234 of them in" in text


def test_what_was_computed_again_is_no_number_where_it_is_not_known(store):
    """A preempted request without spans: said, and no "at most - tokens"."""
    store.requests({"decode": S, "Preemptions": 1, "PreemptedNs": S // 2})
    found: Cache = StoreSource(store, FakeClock(unix_ns=NOW_UNIX_NS)).cache(Filters())
    console = text_console()
    render_cache(found, console)
    assert "off the engine; what was done again is not known." in console.export_text()


@pytest.mark.parametrize(("n", "told"), [(0, "0 spans"), (1, "1 span"), (2000, "2,000 spans")])
def test_a_count_with_its_word(n, told):
    """None, one, many."""
    assert many(n, "span") == told
