"""What the charts over time draw: each step where it lies, and nothing where nothing was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dashboards.api import build_api
from dashboards.html.steps import log_axis
from tests.support.browser import S, served, shown
from tests.support.clock import FakeClock
from tests.unit.dashboards.conftest import BASE_UNIX_NS, NOW_UNIX_NS, HandStore

MS = 1_000_000
BACK_UNIX_NS = 1_792_890_000 * S
"""2026-10-25T01:00Z: at 3 o'clock in Rome it becomes 2 o'clock again."""
AUTUMN = {"since": "2026-10-25T00:00:00Z", "until": "2026-10-25T02:00:00Z"}


@pytest.fixture(scope="module")
def url(module_store: HandStore) -> Iterator[str]:
    """Requests of 10 ms and of 10 s in turn; one of 400 ns; two hours through a change of clocks."""
    far = BACK_UNIX_NS - BASE_UNIX_NS
    module_store.requests(
        *({"start": n * 60 * S, "decode": 10 * S if n % 2 else 10 * MS, "Model": "two"} for n in range(4)),
        {"start": 30 * S, "decode": 400, "Model": "short"},
        *({"start": n * S, "prefill": S, "decode": 4 * S, "OutputTokens": 40, "FirstTokenNs": S,
           "InFlight": 1, "Model": "levels"} for n in range(40)),
        *({"start": far + (n - 60) * 60 * S, "decode": S, "Model": "autumn"} for n in range(120)),
    )  # fmt: skip
    with served(build_api(module_store, None, FakeClock(unix_ns=NOW_UNIX_NS))) as at:
        yield at


def drawn(tab, place: int):
    """The traces of the overview's chart number ``place``, as plotly has them."""
    return tab.evaluate("n => document.querySelectorAll('.chart')[n].data", place)


def test_a_step_lies_where_it_was_and_a_gap_is_none_of_the_lines(tab, url):
    """Four steps of 30 s with requests, one a minute: 13:00:00 to 13:00:30 in Rome, then no data."""
    shown(tab, url, model="two")
    tab.wait_for_selector(".chart .main-svg")
    p50 = drawn(tab, 1)[0]
    assert p50["x"][:2] == ["2026-01-01T13:00:15.000", "2026-01-01T13:00:45.000"]
    assert [None if y is None else round(y, 2) for y in p50["y"]] == [.01, None, 10, None, .01, None, 10]
    bars = drawn(tab, 2)[0]
    assert bars["width"][0] == pytest.approx(30_000 * 0.96)


def test_a_cell_of_the_heat_map_ends_at_its_own_bounds(tab, url):
    """10 ms and 10 s: all cells between them are there and empty; a lone cell of 400 ns is drawn."""
    shown(tab, url, model="two")
    tab.wait_for_selector(".chart .main-svg")
    heat = drawn(tab, 5)[0]
    rows = [n for n, cells in enumerate(heat["z"]) if any(cells)]
    held = [(heat["y"][n], heat["y"][n + 1]) for n in rows]
    assert [low <= value < high for (low, high), value in zip(held, (0.01, 10), strict=True)] == [True, True]
    assert all(high / low == pytest.approx(2**0.5) for low, high in held)
    assert (len(heat["x"]), len(heat["y"])) == (len(heat["z"][0]) + 1, len(heat["z"]) + 1)
    shown(tab, url, model="short")
    tab.locator(".chart .heatmaplayer image").wait_for(state="attached")


def test_the_hour_that_comes_twice_is_drawn_twice(tab, url):
    """Two hours, a request a minute throughout: 120 minutes on the axis, never two in one place."""
    shown(tab, url, model="autumn", **AUTUMN)
    tab.wait_for_selector(".chart .main-svg")
    bars = drawn(tab, 2)[0]
    assert len(set(bars["x"])) == len(bars["x"]) == 120
    assert set(bars["y"]) == {1 / 60}
    assert (bars["x"][0][:16], bars["x"][-1][:16]) == ("2026-10-25T01:00", "2026-10-25T02:59")
    titles = tab.locator(".chart .xtitle").all_text_contents()
    assert "UTC+01:00 throughout: the clocks change in this time" in titles


def test_a_step_that_the_window_cuts_has_its_own_rate(tab, url):
    """A window of 90 s ends after 15 s of a step: one request in them is 1/15 a second, not 1/30."""
    shown(tab, url, model="two", since="2026-01-01T11:30:00Z", until="2026-01-01T12:02:15Z")
    tab.wait_for_selector(".chart .main-svg")
    bars = drawn(tab, 2)[0]
    assert bars["y"][-1] == pytest.approx(1 / 15)
    assert bars["width"][-1] == pytest.approx(15_000 * 0.96)
    points = drawn(tab, 4)[0]
    assert points["x"] == pytest.approx([1 / 30, 1 / 30])


def test_no_first_token_is_said_in_place_of_a_heat_map(tab, url):
    """None was streamed: a sentence, and nothing drawn."""
    shown(tab, url, model="two", heat="ttft")
    tab.get_by_text("No request has a TTFT.").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_axis_has_the_pages_own_lines(browser, url, scheme):
    """Also the second one, on the right: its grid is not plotly's nearly white one in the dark."""
    context = browser.new_context(color_scheme=scheme)
    tab = context.new_page()
    line = {"light": "#d0d7de", "dark": "#3d444d"}[scheme]
    for view in ("overview", "goodput"):
        shown(tab, url, view=view, model="levels")
        tab.wait_for_selector(".chart .main-svg")
        axes = tab.evaluate(
            "[...document.querySelectorAll('.chart')].flatMap((c) => Object.entries(c.layout)"
            ".filter(([name]) => /^[xy]axis/.test(name))"
            ".map(([name, axis]) => [name, axis.gridcolor, axis.zerolinecolor]))"
        )
        assert {tuple(one[1:]) for one in axes} == {(line, line)}
    assert "yaxis2" in {one[0] for one in axes}
    context.close()


def test_the_labels_of_the_heat_map_are_those_of_the_report(tab, url):
    """Both take one, two and five of a power of ten; labels of 7, 8 and 9 stood in each other."""
    tab.goto(url)
    for edges in ((0.5, 8.2), (0.01, 30), (0.6, 0.9), (4e-7, 5.6e-7)):
        made = tab.evaluate(
            "edges => import('/web/charts.js').then((charts) => charts.logAxis(...edges).tickvals)", arg=edges
        )
        assert made == log_axis(edges)["tickvals"]
    shown(tab, url, model="two")
    tab.wait_for_selector(".chart .main-svg")
    labels = tab.locator(".chart").nth(5).locator(".ytick text").all_text_contents()
    assert labels == ["0.01", "0.1", "1", "10"]


def test_figures_do_not_wait_for_the_charts_library(tab, url):
    """While it is on its way all figures are there; where it never comes that is said in each place."""
    held: list[object] = []
    tab.route("**/plotly.min.js", lambda route: held.append(route))  # noqa: PLW0108  # a method of a list holds no marks
    tab.goto(f"{url}/?model=two")
    tab.locator("tbody th", has_text="decode").wait_for()
    tab.locator(".chart").nth(5).wait_for(state="attached")
    assert tab.locator(".main-svg").count() == 0
    held[0].fulfill(status=404)  # type: ignore[attr-defined]
    tab.get_by_text("This chart could not be drawn").nth(5).wait_for()
    tab.wait_for_selector("main:not([aria-busy])")
    assert "is shown in part" in tab.locator("#told").inner_text()
    tab.unroute("**/plotly.min.js")
    tab.get_by_role("link", name="Goodput", exact=True).click()
    tab.locator(".chart .main-svg").first.wait_for()


def test_views_without_charts_fetch_no_library_for_them(tab, url):
    """It is fifty times as long as the page itself."""
    asked: list[str] = []
    tab.on("request", lambda request: asked.append(request.url.rpartition("/")[2]))
    shown(tab, url, view="requests", model="two")
    assert "app.js" in asked
    assert "plotly.min.js" not in asked
