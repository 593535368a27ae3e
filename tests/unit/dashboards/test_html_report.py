"""The report as one HTML file: whole, escaped, without network, in a real Chromium."""

from __future__ import annotations

import pytest

from dashboards.filters import parse_filters
from dashboards.html.figures import figures
from dashboards.html.report import render_html
from dashboards.html.steps import log_axis
from dashboards.source import StoreSource
from tests.support.browser import SIZES, S, interval, seconds
from tests.support.clock import FakeClock
from tests.unit.dashboards.conftest import NOW_UNIX_NS, HandStore

HOSTILE = "</script><img src=x onerror=\"document.title='taken'\"><b>x</b>&lt;"
CLOCK = FakeClock(unix_ns=NOW_UNIX_NS)
FILTERS = parse_filters(now_unix_ns=NOW_UNIX_NS, since="2h")


def rendered(store, by=("model",)):
    source = StoreSource(store, CLOCK)
    report = source.report(FILTERS, by)
    return report, render_html(report, [source.series(FILTERS, m) for m in ("e2e", "ttft")])


@pytest.fixture(scope="module")
def filled(module_store: HandStore) -> HandStore:
    """Thirty requests of two models, one with a hostile name."""
    module_store.requests(*(
        {"start": n * 60 * S, "queue": n * S // 20, "prefill": S // 2, "decode": (1 + n % 5) * S,
         "FirstTokenNs": S, "OutputTokens": 10, "Model": HOSTILE if n % 2 else "m",
         "Status": "error" if n == 7 else "ok"}
        for n in range(30)
    ))  # fmt: skip
    return module_store


@pytest.fixture
def opened(browser, filled, tmp_path):
    """The file in a browser that is offline; errors and requests to anywhere are noted."""
    report, text = rendered(filled)
    file = tmp_path / "report.html"
    file.write_text(text, encoding="utf-8")
    context = browser.new_context(viewport=SIZES["wide"], offline=True)
    tab = context.new_page()
    seen: list[str] = []
    tab.on("console", lambda m: seen.append(m.text) if m.type == "error" else None)
    tab.on("pageerror", lambda e: seen.append(str(e)))
    tab.on(
        "request",
        lambda r: seen.append(r.url) if not r.url.startswith(("file:", "data:", "blob:")) else None,
    )
    tab.goto(file.as_uri())
    yield report, tab
    context.close()
    assert seen == []


def test_it_shows_the_figures_and_draws_every_plot(opened):
    """Each stage's p50 and n are the report's; nothing was loaded and the policy held."""
    report, tab = opened
    for one in report.overall.stages:
        if one.part_of is None and one.n:
            row = tab.locator("tbody tr", has=tab.locator(f"th:text-is('{one.stage}')"))
            cells = row.locator("td").all_inner_texts()
            assert (cells[0].split("\n")[0], cells[5]) == (seconds(one.p50_ns), str(one.n))
    plots = tab.locator(".chart")
    assert plots.count() == 11
    assert tab.locator(".chart .main-svg").first.is_visible()
    assert tab.evaluate(
        "[...document.querySelectorAll('.chart')].every((c) => c.querySelector('.main-svg'))"
    )


def test_each_percentile_has_its_interval_below(opened):
    """The report's own bounds, "?" where thirty values have none; no word of it for ITL."""
    report, tab = opened
    rows = tab.get_by_role("region", name="Percentiles by stage").locator("tbody tr")
    below = rows.filter(has=tab.locator("th:text-is('queue')")).locator("td small").all_inner_texts()
    queue = next(one for one in report.overall.stages if one.stage == "queue")
    assert below == [
        interval(one.low_ns, one.high_ns).replace("\xa0", " ") for one in queue.intervals
    ]
    assert below[0][0] != "?"
    assert below[-1].endswith("?")
    assert rows.filter(has=tab.locator("th:text-is('ITL (gaps)')")).locator("small").count() == 0
    tab.get_by_text("Below each percentile: its 95 % interval").wait_for()


def test_hostile_names_are_text_in_tables_and_plots(opened):
    """The name is shown letter by letter and makes no element."""
    _, tab = opened
    assert tab.locator("main tbody th", has_text="onerror").inner_text() == HOSTILE
    labels = tab.locator(".chart .xtick text").all_text_contents()
    assert f"{HOSTILE[:24]}… (1)" in labels
    assert tab.locator("main img").count() == 0
    assert tab.title() == "Stagelens report"


def test_it_has_no_accessibility_violation(browser, filled, tmp_path):
    """axe's rules, wide and narrow, light and dark."""
    from axe_playwright_python.sync_playwright import Axe

    file = tmp_path / "report.html"
    file.write_text(rendered(filled)[1], encoding="utf-8")
    for size, scheme in (("wide", "light"), ("narrow", "dark")):
        context = browser.new_context(viewport=SIZES[size], color_scheme=scheme, bypass_csp=True)
        tab = context.new_page()
        tab.goto(file.as_uri())
        tab.screenshot(path=tmp_path / f"report-{size}.png", full_page=True)
        violations = Axe().run(tab).response["violations"]
        assert [(v["id"], [n["html"][:120] for n in v["nodes"]][:3]) for v in violations] == []
        assert tab.evaluate("document.documentElement.scrollWidth") <= SIZES[size]["width"]
        context.close()


@pytest.mark.parametrize("width", [390, 1280])
def test_names_of_ten_thousand_characters_leave_it_as_wide_as_the_window(browser, store, tmp_path, width):
    """A tag's name and value: cut with more in the title, and the first characters are read."""
    name = "n" * 10_000
    store.requests({"decode": S, "Tags": {name: "v" * 10_000}})
    file = tmp_path / "report.html"
    file.write_text(rendered(store, (f"tag:{name}",))[1], encoding="utf-8")
    context = browser.new_context(viewport={"width": width, "height": 800})
    tab = context.new_page()
    tab.goto(file.as_uri())
    tab.wait_for_selector(".chart .main-svg")
    size = tab.evaluate("[document.documentElement.scrollWidth, document.documentElement.scrollHeight]")
    texts = tab.locator("main").inner_text()
    title = tab.locator("tbody th[title]").get_attribute("title")
    context.close()
    assert size[0] <= width
    assert size[1] < 10_000
    assert max(map(len, texts.split())) < 150
    assert title == "v" * 1000 + "…"


def test_an_empty_report_is_whole_and_says_so(store):
    """No request: no plot, no figure, the sentence that says it."""
    _, text = rendered(store, ())
    assert "There is no request to report on" in text
    assert 'class="chart"' not in text
    assert text.rstrip().endswith("</html>")


def test_what_turns_or_shows_nothing_is_written_out(store):
    """A group's name in the table and in the plot, and the dimension in heads: each by its number."""
    name = "\u202eevil\u202c\u200d\x9b\u2066"
    store.requests({"decode": S, "Tags": {name: name}})
    _, text = rendered(store, (f"tag:{name}",))
    assert not set(name) & set(text) - set("evil")
    assert text.count("\\u202eevil\\u202c\\u200d\\x9b\\u2066") >= 4
    assert "\\\\u202eevil" in text  # in the plots' JSON


def test_the_stack_tells_n_and_leaves_out_stages_of_few_requests(store):
    """One retrieval in eleven requests is named in the note; in ten it is drawn, with n 1."""
    store.requests({"decode": S, "retrieval": 9 * S}, *({"decode": S} for _ in range(9)))
    source = StoreSource(store, CLOCK)
    window = [source.series(FILTERS, m) for m in ("e2e", "ttft")]
    stacks = figures(source.report(FILTERS, ()), window)[0]
    assert [one["name"] for one in stacks.data[:2]] == ["retrieval (n 1)", "decode (n 10)"]
    assert "Not in the bars" not in stacks.note
    store.requests({"decode": S})
    stacks = figures(source.report(FILTERS, ()), window)[0]
    assert "retrieval (n 1)" not in {one["name"] for one in stacks.data}
    assert stacks.note.endswith("fewer than one in ten requests ran them: retrieval (n 1).")
    assert "of 11 requests" in stacks.note


@pytest.mark.parametrize(
    ("edges", "told"),
    [((0.5, 8.2), "0.5 1 2 5"), ((0.01, 30), "0.01 0.1 1 10"), ((0.6, 0.9), "0.6 0.9"),
     ((4e-7, 5.6e-7), "4e-07 5.6e-07")],
)  # fmt: skip
def test_the_labels_of_a_heat_map_keep_apart(edges, told):
    """One, two and five of a power of ten, fewer where there are many, the ends where there are none."""
    axis = log_axis(edges)
    assert " ".join(axis["ticktext"]) == told
    assert [f"{one:g}" for one in axis["tickvals"]] == axis["ticktext"]


def test_plots_over_time_draw_each_step_where_it_lies(store):
    """Two requests two minutes apart, 10 ms and 10 s: no line between them, and no cell is stretched."""
    store.requests(
        {"start": 0, "decode": S // 100}, {"start": 120 * S, "decode": 10 * S},
    )  # fmt: skip
    source = StoreSource(store, CLOCK)
    window = parse_filters(
        now_unix_ns=NOW_UNIX_NS, since="2026-01-01T11:30:00Z", until="2026-01-01T12:02:15Z"
    )
    plots = {
        one.title: one.data
        for one in figures(source.report(window, ()), [source.series(window, m) for m in ("e2e", "ttft")])
    }
    p50 = plots["Whole request (E2E) over time"][0]
    assert p50["y"] == [0.01, None, None, None, 10]
    assert p50["x"][0].startswith("2026-01-01T12:00:15")
    bars = plots["Requests per second"][0]
    assert (bars["y"][0], bars["y"][-1]) == (1 / 30, 1 / 15)
    assert bars["width"][-1] == pytest.approx(15_000 * 0.96)
    heat = plots["Heat map of E2E"][0]
    rows = [n for n, cells in enumerate(heat["z"]) if any(cells)]
    assert all(
        heat["y"][n] <= value < heat["y"][n + 1] for n, value in zip(rows, (0.01, 10), strict=True)
    )
    assert "Heat map of TTFT" not in plots
