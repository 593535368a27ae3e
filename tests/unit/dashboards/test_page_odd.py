"""Odd links, odd names and odd figures in the page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dashboards.api import build_api
from dashboards.visible import visible
from tests.support.browser import SIZES, S, asked, served, shown
from tests.support.clock import FakeClock
from tests.unit.dashboards.conftest import NOW_UNIX_NS, HandStore

ID = "ab" * 16
LONG = "x" * 3000
TURNED = "\u202eevil\u202c"


@pytest.fixture(scope="module")
def url(module_store: HandStore) -> Iterator[str]:
    """Three models, a name of 3000 characters, one that turns the text, spans shorter than 1 µs."""
    module_store.requests(
        {"decode": 2 * S, "Model": "a"}, {"decode": 2 * S, "Model": "b", "Status": "error"},
        {"decode": 2 * S, "Model": "c", "Status": "cancelled"},
        {"decode": S, "Model": TURNED, "Route": LONG, "Tags": {LONG: "y"}},
    )  # fmt: skip
    at = {"TraceId": ID, "SpanId": "r", "SpanName": TURNED, "start": 5 * S, "duration": 400}
    module_store.spans(
        at,
        {**at, "SpanId": "c", "ParentSpanId": "r", "SpanName": "early", "start": 0, "duration": S},
    )
    with served(build_api(module_store, None, FakeClock(unix_ns=NOW_UNIX_NS))) as where:
        yield where


@pytest.mark.parametrize("view", ["constructor", "__proto__", "nothing"])
def test_a_view_that_is_none_is_said(tab, url, view):
    """Also where the name is one that every object has."""
    shown(tab, url, view=view)
    assert f"there is no view '{view}': take" in tab.get_by_role("alert").inner_text()


@pytest.mark.parametrize(
    ("change", "told"),
    [("decode=+50ms", "+50ms"), ("decode=-0.5%", "-0.5 %"), ("decode=+0.5s queue=-20%", "+0.5s")],
)
def test_a_change_in_the_link_is_asked_as_it_stands(tab, url, change, told):
    """An amount is no per cent and half a per cent is not none: the slider says what is asked."""
    shown(tab, url, view="whatif", change=change)
    assert tab.locator(".sliders output").nth(4).inner_text() == told
    caption = tab.locator("caption").inner_text()
    assert caption == f"What {', '.join(change.split())} would bring"


def test_a_change_that_cannot_be_used_is_said_below_the_sliders(tab, url):
    """The API's sentence, and the sliders stay."""
    for change in ("decode", "sleep=-1%"):
        shown(tab, url, view="whatif", change=change)
        tab.get_by_role("alert").wait_for()
        assert tab.locator(".sliders input").count() == 7


def test_a_slider_back_at_0_leaves_no_change(tab, url):
    """decode from -20 % to 0 % by keyboard: no other change comes in its place."""
    shown(tab, url, view="whatif", change="decode=-5%")
    tab.get_by_label("decode, per cent").press("ArrowRight")
    tab.get_by_text("Move a slider").wait_for()


def test_sides_that_cannot_be_compared_are_said_below_the_form(tab, url):
    """The form stays, to be put right."""
    shown(tab, url, view="compare", a="..", b="1h..now")
    assert "neither a run's name" in tab.get_by_role("alert").inner_text()
    assert tab.get_by_label("A: a run").input_value() == ".."


def test_every_value_of_a_filter_is_shown_and_kept(tab, url):
    """Two models, two statuses and an operation in the link: all are in the form, and stay after Show."""
    tab.goto(f"{url}/?view=requests&model=a&model=b&status=ok&status=error&operation=any")
    tab.get_by_text("2 of 2 requests").wait_for()
    assert [one.input_value() for one in tab.locator("input[name=model]").all()] == ["a", "b"]
    assert tab.get_by_label("Status").input_value() == "ok error"
    assert "operation: any" in tab.locator("#filters").inner_text()
    tab.get_by_role("button", name="Show").press("Enter")
    tab.wait_for_url("**since=1h*")
    tab.get_by_text("2 of 2 requests").wait_for()
    tab.get_by_label("or Model 2").fill("")
    tab.get_by_role("button", name="Show").press("Enter")
    tab.get_by_text("1 of 1 request,").wait_for()


@pytest.mark.parametrize(
    "query", ["since=1h&since=2h", "view=requests&sort=e2e&sort=ttft", "view=trace&id=a&id=b",
              "view=goodput&ttft=1s&ttft=2s", "view=slices&by=model&by=route"],
)  # fmt: skip
def test_what_stands_twice_in_the_link_is_said_and_not_halved(tab, url, query):
    """The page names it, and shows no figure of one of the two values."""
    tab.goto(f"{url}/?{query}")
    name = query.split("&")[-1].partition("=")[0]
    told = tab.get_by_role("alert").inner_text()
    assert told.startswith(f"{name} stands more than once in the address and can stand there once")
    assert tab.locator("main table, main .chart").count() == 0


def test_a_filter_twice_in_the_link_can_be_put_right_in_the_form(tab, url):
    """Both values have a field; with one of them emptied the view is shown."""
    tab.goto(f"{url}/?view=requests&since=1h&since=2h")
    tab.get_by_role("alert").wait_for()
    tab.get_by_label("or Since 2").fill("")
    tab.get_by_role("button", name="Show").press("Enter")
    tab.get_by_text("4 of 4 requests").wait_for()


def test_what_shows_nothing_is_written_out_and_scripts_are_left_whole(tab, url):
    """Each hidden character of a name by its number, as visible.py does; joiners of a script stay."""
    tab.goto(url)
    for text in ("a\x1bb", "\x9b31m", "\u2066x\u2069", "\u200e\u200f", "g\u200dpt", "\xad\u3164\u034f",
                 "\U000e0041", "\u2060\ufeff", "\u2028", "a\tb\r\nc"):  # fmt: skip
        assert seen(tab, text) == visible(text)
    for text in ("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "👩\u200d🔬", "模型 é"):
        assert seen(tab, text) == text


def seen(tab, text):
    """What the page makes of ``text``."""
    return tab.evaluate(
        "(text) => import('/web/dom.js').then((dom) => dom.visible(text))", arg=text
    )


def test_characters_that_turn_the_text_are_written_out(tab, url):
    """A name that would read backwards is shown letter by letter."""
    shown(tab, url, view="requests")
    tab.locator("td", has_text="\\u202eevil\\u202c").wait_for()


@pytest.mark.parametrize("size", SIZES)
def test_a_long_name_does_not_widen_the_page(browser, url, size):
    """3000 characters in a tag's name and a route: cut in tables, broken in lines."""
    context = browser.new_context(viewport=SIZES[size])
    tab = context.new_page()
    for view in ("slices", "requests", "overview", "trace"):
        shown(tab, url, view=view, by="route", id=ID)
        width = tab.evaluate("document.documentElement.scrollWidth")
        assert width <= SIZES[size]["width"], view
    context.close()


def test_times_below_a_microsecond_and_before_the_root_are_told(tab, url):
    """400 ns are not 0 µs, and a span 5 s before its root stands at -5 s."""
    shown(tab, url, view="trace", id=ID)
    assert tab.locator("[data-test=waterfall] .time").all_inner_texts() == ["400 ns", "1.00 s"]
    assert tab.locator(".axis").inner_text().split("\n")[0] == "−5.00 s"
    assert tab.locator("[data-test=waterfall] button").first.inner_text() == "\\u202eevil\\u202c"


def test_no_count_of_tokens_is_no_data(tab, url):
    """No request tells its output tokens: the card says so, and the API gives null."""
    shown(tab, url)
    card = tab.locator(".card", has_text="Output tokens/s").locator("dd").inner_text()
    assert card.startswith("no data")
    assert asked(url, "/summary", since="1h")["overall"]["output_tokens"] is None
    assert {s["output_tokens"] for s in asked(url, "/series", since="1h")["steps"]} == {None}


@pytest.mark.parametrize(
    ("query", "told"),
    [("nonsense=1", "nonsense is not known in the address: take it out; known are since, until, model"),
     ("modle=zz", "modle is not known in the address"),
     ("view=requests&limit=5000", "limit is not known in the address"),
     ("__proto__=1", "__proto__ is not known"), ("=1", "a parameter without a name is not known"),
     ("heat=x", "heat 'x' is not known: it is e2e or ttft"),
     ("view=why&measure=E2E", "measure 'E2E' is not known"),
     ("live=yes", "live 'yes' is not known: it is 1")],
)  # fmt: skip
def test_what_the_page_does_not_know_in_a_link_is_said(tab, url, query, told):
    """A name with a slip in it would filter nothing, and the figures would be of other requests."""
    shown(tab, f"{url}/?{query}")
    assert tab.get_by_role("alert").inner_text().startswith(told)
    assert tab.locator("main table, main .chart").count() == 0
