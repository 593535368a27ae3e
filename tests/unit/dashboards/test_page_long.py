"""Names of ten thousand characters in every view of the page: cut, broken, and told in the title."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dashboards.api import build_api
from tests.support.browser import S, served, shown
from tests.support.clock import FakeClock
from tests.unit.dashboards.conftest import NOW_UNIX_NS, HandStore

NAME = "n" * 10_000
VALUE = "v" * 10_000
READABLE = "a.library.s.attribute.with.a.name.of.seventy.characters.that.goes.on.x"
VIEWS = (
    "overview", "slices", "requests", "tail", "why", "goodput", "whatif", "compare", "trace",
)  # fmt: skip


@pytest.fixture(scope="module")
def url(module_store: HandStore) -> Iterator[str]:
    """Forty requests with spans; model, route, a tag's name and value, a tool and attributes are long."""
    for n in range(1, 41):
        at = n * 60 * S
        trace = module_store.traced(
            n, prefill=(at, at + S), decode=(at + S, at + (9 if n > 35 else 2) * S),
            tool=(at + S, at + S + 5), Tags={NAME: VALUE} if n > 35 else {}, Model=VALUE, Route=VALUE,
            InFlight=1, OutputTokens=9,
        )  # fmt: skip
        module_store.spans({
            "TraceId": trace, "SpanId": f"long{n:012x}", "ParentSpanId": f"c{n:015x}", "SpanName": NAME,
            "start": at + S, "duration": S // 2,
            "SpanAttributes": {"stagelens.stage": "tool", NAME: VALUE, READABLE: "a value of few words"},
        })  # fmt: skip
    with served(build_api(module_store, None, FakeClock(unix_ns=NOW_UNIX_NS))) as at_url:
        yield at_url


@pytest.mark.parametrize("width", [390, 1280])
def test_no_view_grows_with_a_name(browser, url, width):
    """As wide as the window, some screens high, no name of more than 121 characters anywhere."""
    context = browser.new_context(viewport={"width": width, "height": 800})
    tab = context.new_page()
    for view in VIEWS:
        shown(tab, url, view=view, by=f"tag:{NAME}" if view == "slices" else "model", id=f"{40:032x}",
              a="1h..30m", b="30m..now")  # fmt: skip
        size = tab.evaluate("[document.documentElement.scrollWidth, document.documentElement.scrollHeight]")
        assert size[0] <= width, view
        assert size[1] < 5_000, view
        widest = tab.evaluate(
            "Math.max(0, ...[...document.querySelectorAll('main table')].map((t) => t.scrollWidth))"
        )
        assert widest < 3000, view
        words = tab.locator("main").inner_text().split()
        assert max(map(len, words)) <= 150, view
    context.close()


@pytest.mark.parametrize("width", [390, 1280])
def test_values_stay_readable_beside_long_names(browser, url, width):
    """A span with names of 10,000 and 70 characters is opened: the value stands in one or two lines."""
    context = browser.new_context(viewport={"width": width, "height": 800})
    tab = context.new_page()
    shown(tab, url, view="trace", id=f"{40:032x}")
    tab.locator("[data-test=waterfall] button", has_text="nnnn").first.click()
    value = tab.locator("[data-test=span] dd", has_text="a value of few words").bounding_box()
    assert value["width"] > width / 2
    name = tab.locator("[data-test=span] dt[title]")
    assert len(name.inner_text()) == 121
    assert name.get_attribute("title") == "n" * 1000 + "…"
    whole = tab.locator("[data-test=span] dd details")
    whole.locator("summary").press("Enter")
    assert len(whole.inner_text().split()[-1]) > 4000
    assert tab.locator("[data-test=span] dt", has_text=READABLE).is_visible()
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    context.close()


@pytest.mark.parametrize("text", ["é" * 300, "👩" * 300, "x" * 119 + "👩" * 9])
def test_a_cut_leaves_no_half_of_a_character(tab, url, text):
    """What is cut in the middle of a character of two units is cut before it."""
    tab.goto(url)
    cut = tab.evaluate("(text) => import('/web/dom.js').then((dom) => dom.cut(text))", arg=text)
    assert cut.endswith("…")
    assert text.startswith(cut[:-1])
    assert len(cut) <= 121
