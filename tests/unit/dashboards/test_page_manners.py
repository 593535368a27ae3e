"""How the page speaks and where the focus goes: for a keyboard, a screen reader, and small numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from dashboards.api import build_api
from tests.support.browser import S, served, shown
from tests.support.clock import FakeClock
from tests.unit.dashboards.conftest import NOW_UNIX_NS, HandStore

ONE_OF_MANY = re.compile(
    r"\b1 (requests|spans|steps|tokens|times|values|points|gaps|slices|groups|others|tasks)\b"
)


@pytest.fixture(scope="module")
def url(module_store: HandStore) -> Iterator[str]:
    """A lone request of one model with its spans and one engine step, and thirty of another."""
    module_store.traced(1, prefill=(0, S), decode=(S, 2 * S), Model="lone", FirstTokenNs=S, OutputTokens=1,
                        CachedTokens=0, InputTokens=1, ItlNs=[5], ItlKind="token")  # fmt: skip
    module_store.steps({"start": 0, "duration": S, "prefill": 1, "PrefillTokens": 1})
    module_store.requests(*({"start": (9 + n) * S, "decode": (1 + n) * S, "Model": "m"} for n in range(30)))
    with served(build_api(module_store, None, FakeClock(unix_ns=NOW_UNIX_NS))) as at:
        yield at


def told(tab) -> str:
    return tab.locator("#told").inner_text()


def test_a_view_that_failed_is_not_announced_as_shown(tab, url):
    """Nothing of it, a part of it, all of it: each is said as it is."""
    shown(tab, url, view="why", since="sideways")
    assert told(tab) == "Why slow could not be shown"
    tab.route("**/api/v1/path?*", lambda route: route.fulfill(status=400, json={"detail": "no path"}))
    shown(tab, url, view="why")
    assert told(tab) == "Why slow is shown in part"
    tab.unroute("**/api/v1/path?*")
    shown(tab, url, view="why")
    assert told(tab) == "Why slow is shown"


def test_sorting_by_keyboard_keeps_the_focus_and_tells_the_order(tab, url):
    """Enter on a column's head: the focus stays on it, and its column alone says how it is sorted."""
    shown(tab, url, view="requests")
    for name, title in (("e2e", "E2E"), ("ttft", "TTFT"), ("start", "start")):
        tab.get_by_role("columnheader", name=title).get_by_role("link").press("Enter")
        tab.wait_for_url(f"**sort={name}*")
        tab.wait_for_function(
            "name => document.activeElement.dataset.focus === `head-${name}`", arg=name
        )
        heads = tab.locator("th[aria-sort]")
        assert heads.count() == 1
        assert (heads.inner_text(), heads.get_attribute("aria-sort")) == (title, "descending")


@pytest.mark.parametrize(("view", "name"), [("slices", "route"), ("why", "By TTFT instead")])
def test_a_choice_within_a_view_keeps_the_focus(tab, url, view, name):
    """Another dimension, another measure: the link that was pressed, or what stands in its place."""
    shown(tab, url, view=view)
    link = tab.get_by_role("link", name=name, exact=True)
    key = link.get_attribute("data-focus")
    link.press("Enter")
    tab.wait_for_function("key => document.activeElement.dataset.focus === key", arg=key)


def test_one_is_not_told_as_many(tab, url):
    """A lone request with one step, one token and one gap, in every view."""
    for view in ("overview", "slices", "requests", "tail", "why", "goodput", "whatif", "trace"):
        shown(tab, url, view=view, model="lone", id=f"{1:032x}")
        for summary in tab.locator("main summary").all():
            summary.click()
        words = tab.locator("main").inner_text()
        assert ONE_OF_MANY.findall(words) == [], view
    shown(tab, url, view="requests", model="lone")
    tab.get_by_text("1 of 1 request, sorted").wait_for()


def test_what_rounds_to_zero_has_no_sign(tab, url):
    """A change of -0.04 % is 0.0 %, one of -0.06 % is -0.1 %."""
    tab.goto(url)
    made = tab.evaluate(
        "parts => import('/web/dom.js').then((dom) => parts.map(dom.percent))", arg=[-0.0004, -0.0006, 0, 0.5]
    )
    assert made == ["0.0 %", "−0.1 %", "0.0 %", "50.0 %"]


def test_what_was_computed_again_is_no_number_where_it_is_not_known(tab, url, module_store):
    """A preempted request without spans: no "at most no data tokens"."""
    module_store.requests({"decode": S, "Model": "off", "Preemptions": 1, "PreemptedNs": S // 2})
    shown(tab, url, view="why", model="off")
    line = tab.get_by_text("Preemption: 1 time in 1 request").inner_text()
    assert line.endswith("off the engine; what was done again is not known.")


def test_lost_decode_and_paths_of_requests_without_spans_are_no_data(tab, url, module_store):
    """Their roots alone are stored, beside engine steps: neither 0 s lost nor all unattributed."""
    module_store.steps(
        *({"start": 3000 * S + n * S // 100, "duration": S // 100, "decode": 1} for n in range(5)),
        {"start": 3001 * S, "duration": S // 10, "decode": 1, "prefill": 1},
    )
    at = {"start": 3000 * S, "decode": 2 * S, "Model": "bare", "TraceId": "ba" * 16, "SpanId": "r"}
    module_store.requests(at)
    module_store.spans({"TraceId": at["TraceId"], "SpanId": "r", "start": 3000 * S, "duration": 2 * S})
    shown(tab, url, view="why", model="bare")
    words = tab.locator("main").inner_text()
    assert "Lost: no data, in 1 of 6 steps." in words
    assert "The prefill and decode spans of 1 request are not stored" in words
    assert "Of 1 request looked at none has its spans stored" in words
    shown(tab, url, view="trace", id=at["TraceId"])
    tab.get_by_text("The spans of 1 request are not stored: what held it is not known.").wait_for()
