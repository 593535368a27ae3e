"""The web page in a real Chromium, under its own policy, over real figures in ClickHouse."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dashboards.api import build_api
from tests.support.browser import SIZES, S, asked, seconds, served, shown
from tests.support.clock import FakeClock
from tests.unit.dashboards.conftest import NOW_UNIX_NS, HandStore

ID = "ab" * 16
HOSTILE = "<img src=x onerror=\"document.title='taken'\">"


@pytest.fixture(scope="module")
def page_url(module_store: HandStore) -> Iterator[str]:
    """A running page over forty requests of two models and one trace with hostile names."""
    module_store.requests(*(
        {"start": n * 60 * S, "prompt": S // 10, "queue": n * S // 20, "prefill": S // 2,
         "decode": (1 + n % 5) * S, "FirstTokenNs": S, "FirstAnswerNs": S, "OutputTokens": 10,
         "InputTokens": 100 * n, "Model": "small" if n % 2 else "large",
         "Status": "error" if n == 7 else "ok"}
        for n in range(40)
    ))  # fmt: skip
    module_store.requests(
        {"TraceId": ID, "SpanId": "r", "start": 50 * 60 * S, "prefill": S, "decode": 2 * S,
         "Model": HOSTILE, "Route": HOSTILE}
    )  # fmt: skip
    at = {"TraceId": ID, "start": 50 * 60 * S}
    module_store.spans(
        {**at, "SpanId": "r", "SpanName": HOSTILE, "duration": 3 * S, "SpanAttributes": {HOSTILE: HOSTILE}},
        {**at, "SpanId": "p", "ParentSpanId": "r", "SpanName": "prefill", "duration": S,
         "SpanAttributes": {"stagelens.stage": "prefill"}},
    )  # fmt: skip
    with served(build_api(module_store, None, FakeClock(unix_ns=NOW_UNIX_NS))) as url:
        yield url


def test_the_overviews_figures_are_the_apis(tab, page_url):
    """Each stage's percentiles and n, and the number of requests; the charts are drawn."""
    shown(tab, page_url)
    report = asked(page_url, "/report", since="1h")["overall"]
    assert tab.locator(".card dd").first.inner_text().startswith(str(report["counts"]["total"]))
    for figures in [s for s in report["stages"] if s["n"]]:
        row = tab.locator("tbody tr", has=tab.locator(f"th:text-is('{figures['stage']}')"))
        cells = row.locator("td").all_inner_texts()
        assert cells[0].split("\n")[0] == seconds(figures["p50_ns"])
        assert cells[3].split("\n")[0] == seconds(figures["p99_ns"])
        assert cells[5] == str(figures["n"])
    tab.wait_for_selector(".chart .main-svg")
    assert tab.locator(".chart").count() == 6
    assert tab.locator("#zone").inner_text() == "Times in Europe/Rome"


def test_filters_live_in_the_url_and_come_back_with_it(tab, page_url):
    """Type a model, submit: the URL, the figures and the back button follow."""
    shown(tab, page_url)
    tab.get_by_label("Model").fill("small")
    tab.get_by_role("button", name="Show").press("Enter")
    tab.wait_for_url("**model=small*")
    tab.locator(".card dd", has_text="20").first.wait_for()
    tab.go_back()
    tab.locator(".card dd", has_text="41").first.wait_for()
    assert tab.get_by_label("Model").input_value() == ""


def test_the_request_table_is_sorted_and_leads_to_the_waterfall(tab, page_url):
    """Slowest first as in the API; a click opens its trace, with spans and stages."""
    shown(tab, page_url, view="requests", sort="e2e")
    first = asked(page_url, "/requests", since="1h", sort="e2e", limit="1")["requests"][0]
    link = tab.locator("tbody a").first
    assert link.get_attribute("title") == first["trace_id"]
    assert first["trace_id"].endswith(link.inner_text()[-8:])
    shown(tab, page_url, view="requests", model=HOSTILE)
    tab.locator("tbody a").first.click()
    tab.wait_for_url(f"**id={ID}*")
    tab.locator("[data-test=waterfall]").wait_for()
    tab.wait_for_selector("main:not([aria-busy])")
    assert tab.locator("[data-test=waterfall] .name").all_inner_texts() == [HOSTILE, "prefill"]
    tab.get_by_role("button", name="prefill").press("Enter")
    tab.locator("dt", has_text="stagelens.stage").wait_for()


def test_the_live_tail_puts_new_requests_on_top(tab, page_url, module_store):
    """What ends while one watches appears above the others, without a reload; a pause holds it."""
    shown(tab, page_url, view="tail")
    assert tab.locator("tbody tr").count() == 41
    module_store.requests(
        {"start": 55 * 60 * S, "decode": S, "Model": "newcomer", "Operation": "chat"}
    )
    tab.locator("tbody tr", has_text="newcomer").wait_for()
    assert "newcomer" in tab.locator("tbody tr").first.inner_text()
    tab.get_by_role("button", name="Pause").press("Enter")
    assert tab.get_by_role("button", name="Pause").get_attribute("aria-pressed") == "true"
    module_store._store.command(
        f"ALTER TABLE {module_store.database}.requests DELETE WHERE Model = 'newcomer' "
        "SETTINGS mutations_sync = 1"
    )


def test_the_live_tail_says_how_many_it_does_not_show(tab, page_url, module_store):
    """300 at once, of which it holds the latest 200, and one that ended long before: 101 are missing."""
    shown(tab, page_url, view="tail")
    assert "41 of 41 requests of the last hour" in tab.get_by_role("status").last.inner_text()
    rush = [{"start": 55 * 60 * S + n, "decode": S, "Model": "rush"} for n in range(300)]
    module_store.requests(*rush, {"start": S, "decode": 1, "Model": "rush"})
    try:
        told = tab.get_by_text("200 more requests, the latest began")
        told.wait_for()
        assert "101 since this view was opened are not shown: more than 200 came" in told.inner_text()
        assert tab.locator("tbody tr").count() == 200
    finally:
        module_store._store.command(
            f"ALTER TABLE {module_store.database}.requests DELETE WHERE Model = 'rush' "
            "SETTINGS mutations_sync = 1"
        )


def test_the_focus_stays_when_a_slider_draws_the_view_again(tab, page_url):
    """Three arrow keys in a row move one slider three times."""
    shown(tab, page_url, view="whatif", change="decode=-20%")
    slider = tab.get_by_label("decode, per cent")
    slider.focus()
    for _ in range(3):
        before = tab.url
        tab.keyboard.press("ArrowRight")
        tab.wait_for_url(lambda url, before=before: url != before)
        tab.wait_for_selector("main:not([aria-busy])")
    assert "change=decode%3D-5" in tab.url
    assert slider.evaluate("one => one === document.activeElement")


def test_hostile_names_are_text_everywhere(tab, page_url):
    """A span's name, attribute, model and route hold markup: it is shown, never made."""
    shown(tab, page_url, view="trace", id=ID)
    tab.locator("[data-test=waterfall] button").first.click()
    tab.locator("dl.facts dd", has_text="onerror").first.wait_for()
    for view in ("requests", "slices"):
        shown(tab, page_url, view=view, by="model")
        tab.get_by_text(HOSTILE).first.wait_for()
    assert tab.locator("main img").count() == 0
    assert tab.title() == "Slices – Stagelens"


def test_a_slider_moved_by_keyboard_asks_what_if(tab, page_url):
    """The end key halves nothing: decode +100 % by keyboard, and the API's own answer."""
    shown(tab, page_url, view="whatif", change="decode=-20%")
    tab.get_by_label("decode, per cent").press("End")
    tab.wait_for_url("**change=decode*100*")
    answer = asked(page_url, "/whatif", since="1h", change="decode=+100%")
    first = answer["effects"][0]
    row = tab.locator("tbody tr", has_text="E2E p50")
    row.locator("td", has_text=seconds(first["after_ns"])).wait_for()


def test_compare_says_both_sides_and_the_interval(tab, page_url):
    """Two windows; the reading is the API's."""
    sides = {"a": "1h..30m", "b": "30m..now"}
    shown(tab, page_url, view="compare", **sides)
    for line in asked(page_url, "/compare", since="1h", **sides)["reading"]:
        tab.get_by_text(line).wait_for()


def test_empty_and_wrong_are_said(tab, page_url):
    """No request: what to do; a bad filter: the API's sentence, and the page stays usable."""
    shown(tab, page_url, model="nobody")
    tab.get_by_text("No request matches").wait_for()
    shown(tab, page_url, since="sideways")
    alert = tab.get_by_role("alert").inner_text()
    assert "sideways" in alert
    tab.get_by_label("Since").fill("1h")
    tab.get_by_role("button", name="Show").click()
    tab.locator(".card dd", has_text="41").first.wait_for()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_view_has_an_accessibility_violation(browser, page_url, size, scheme, tmp_path):
    """axe's rules on each view, wide and narrow, light and dark; and a picture of each."""
    from axe_playwright_python.sync_playwright import Axe

    context = browser.new_context(viewport=SIZES[size], color_scheme=scheme, bypass_csp=True)
    tab = context.new_page()
    found = {}
    for view in ("overview", "slices", "requests", "tail", "whatif", "compare", "trace"):
        shown(tab, page_url, view=view, id=ID, a="1h..30m", b="30m..now")
        tab.screenshot(path=tmp_path / f"{view}.png", full_page=True)
        assert (tmp_path / f"{view}.png").stat().st_size > 5_000
        violations = Axe().run(tab).response["violations"]
        found[view] = [(v["id"], [n["html"][:120] for n in v["nodes"]][:3]) for v in violations]
        width = tab.evaluate("document.documentElement.scrollWidth")
        assert width <= SIZES[size]["width"], f"{view} is wider than the window"
    context.close()
    assert {view: v for view, v in found.items() if v} == {}
