"""The analyses in the page: what it shows is what the API answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dashboards.api import build_api
from tests.support.browser import SIZES, S, asked, seconds, served, shown
from tests.support.clock import FakeClock
from tests.unit.dashboards.conftest import NOW_UNIX_NS, HandStore

MS = 1_000_000


@pytest.fixture(scope="module")
def url(module_store: HandStore) -> Iterator[str]:
    """Sixty requests with spans, of which the late ones wait in the queue, and one held up by a prefill."""
    for n in range(1, 61):
        at = n * 30 * S
        queue = at + (5 * S if n > 55 else 10 * MS)
        module_store.traced(
            n, queue=(at, queue), prefill=(queue, queue + 200 * MS), decode=(queue + 200 * MS, queue + S),
            FirstTokenNs=queue + 200 * MS - at, TpotNs=float(20 * MS), InputTokens=100, OutputTokens=40,
            CachedTokens=50 if n % 2 else 0, Model="slow" if n > 50 else "quick",
        )  # fmt: skip
    module_store.steps(*(
        {"start": 30 * S + n * 20 * MS, "duration": 20 * MS, "decode": 1, "prefill": 0} for n in range(60)
    ))  # fmt: skip
    with served(build_api(module_store, None, FakeClock(unix_ns=NOW_UNIX_NS))) as at_url:
        yield at_url


def rows_of(tab, name: str) -> list[list[str]]:
    rows = tab.get_by_role("region", name=name).locator("tbody tr")
    return [rows.nth(n).locator("th, td").all_inner_texts() for n in range(rows.count())]


def test_why_slow_shows_the_attribution_of_the_api(tab, url):
    """Each stage's means among the slow and the middle ones; the sentences; what stands out."""
    shown(tab, url, view="why")
    answer = asked(url, "/attribution", since="1h", measure="e2e")
    shown_rows = rows_of(tab, "Stages of the slow ones and of those in the middle")
    assert [row[0] for row in shown_rows] == [s["stage"] for s in answer["stages"]]
    for row, stage in zip(shown_rows, answer["stages"], strict=True):
        assert row[2] == seconds(stage["slow_ns"])
    for line in answer["reading"]:
        tab.get_by_text(line, exact=True).first.wait_for()
    out = [(s["dimension"], s["value"]) for s in answer["slices"] if s["stands_out"]]
    assert [
        (r[0], r[1]) for r in rows_of(tab, "What is more or less frequent among the slow ones")
    ] == out
    assert ("model", "slow") in out
    tab.get_by_role("link", name="By TTFT instead").click()
    tab.wait_for_url("**measure=ttft*")


def test_why_slow_shows_path_interference_and_cache(tab, url):
    """The path's steps with their time; what the cache saved; no prefill held anybody up."""
    shown(tab, url, view="why")
    path = asked(url, "/path", since="1h")["overall"]
    found = {row[0]: row for row in rows_of(tab, "Steps on the critical path")}
    for step in path["steps"]:
        row = found[
            step["stage"]
            if step["name"] in ("", step["stage"])
            else f"{step['stage']}: {step['name']}"
        ]
        assert row[1:3] == [str(step["requests"]), str(step["runs"])]
    cache = asked(url, "/cache", since="1h")["overall"]
    assert [row[:3] for row in rows_of(tab, "Prefix cache")] == [
        [m["model"], str(m["hits"]), f"{m['cached_tokens']:,}"] for m in cache["models"]
    ]
    for answer in ("/interference", "/cache", "/path"):
        for line in asked(url, answer, since="1h")["reading"]:
            tab.get_by_text(line, exact=True).first.wait_for()


def test_goodput_follows_the_limits_in_the_url(tab, url):
    """Five requests wait five seconds: a limit of 1 s on TTFT misses them, in the queue."""
    shown(tab, url, view="goodput", ttft="1s")
    answer = asked(url, "/goodput", since="1h", ttft="1s")["overall"]
    assert (answer["good"], answer["missed"]) == (55, 5)
    assert f"{answer['good_share'] * 100:.1f} %" in tab.locator("[data-test=goodput]").inner_text()
    assert rows_of(tab, "Misses by the stage that broke the limit") == [
        ["TTFT", "queue", "5", "100.0 %"]
    ]
    tab.get_by_label("TTFT at most").fill("10s")
    tab.get_by_role("button", name="Apply").press("Enter")
    tab.wait_for_url("**ttft=10s*")
    tab.get_by_text("No request that ended well broke a limit.").wait_for()


def test_throughput_has_a_line_for_each_concurrency(tab, url):
    """As many as the API answers, with its tokens per second."""
    shown(tab, url, view="goodput")
    levels = asked(url, "/throughput", since="1h")["overall"]["levels"]
    found = rows_of(tab, "At each concurrency")
    assert [row[1] for row in found] == [f"{level['tokens_per_s']:.1f}" for level in levels]
    assert len(found) >= 1


def test_the_overview_says_the_goodput(tab, url):
    """Under the limits that are assumed, which it names, and leads to where they are changed."""
    shown(tab, url)
    share = asked(url, "/goodput", since="1h", ttft="1s", tpot="100ms")["overall"]["good_share"]
    line = tab.locator("[data-test=goodput]")
    assert f"TTFT 1s, TPOT 100ms: {share * 100:.1f} %" in line.inner_text()
    line.get_by_role("link").click()
    tab.get_by_label("TTFT at most").wait_for()


def test_a_trace_shows_what_held_it_piece_by_piece(tab, url):
    """The pieces of its critical path divide its end-to-end time."""
    trace = f"{7:032x}"
    shown(tab, url, view="trace", id=trace)
    path = asked(url, f"/traces/{trace}/path")["requests"][0]
    found = rows_of(tab, f"What held {path['name']}, piece by piece: {seconds(path['e2e_ns'])}")
    assert [row[1] for row in found] == [s["stage"] for s in path["segments"]]
    assert sum(s["ns"] for s in path["segments"]) == path["e2e_ns"]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("view", ["why", "goodput"])
def test_the_analyses_have_no_accessibility_violation(browser, url, size, view, tmp_path):
    """axe's rules with everything there, wide and narrow."""
    from axe_playwright_python.sync_playwright import Axe

    context = browser.new_context(viewport=SIZES[size], bypass_csp=True)
    tab = context.new_page()
    shown(tab, url, view=view)
    tab.screenshot(path=tmp_path / f"{view}.png", full_page=True)
    violations = Axe().run(tab).response["violations"]
    width = tab.evaluate("document.documentElement.scrollWidth")
    context.close()
    assert [(v["id"], [n["html"][:120] for n in v["nodes"]][:3]) for v in violations] == []
    assert width <= SIZES[size]["width"]
