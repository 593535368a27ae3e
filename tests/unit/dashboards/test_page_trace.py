"""One request in the page: waterfall, clocks, step lane, GPU lane, by mouse and by keyboard."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from dashboards.api import build_api
from tests.support.browser import SIZES, asked, seconds, served, shown
from tests.support.clock import FakeClock
from tests.unit.dashboards.conftest import NOW_UNIX_NS, HandStore

MS = 1_000_000
ID, OTHER, BARE = "ab" * 16, "cd" * 16, "ee" * 16
HOSTILE = "<script>document.title='taken'</script>"


def phase(trace: str, stage: str, start: int, duration: int) -> dict[str, object]:
    return {
        "TraceId": trace, "SpanId": f"{trace[:4]}{stage}", "ParentSpanId": "r", "SpanName": stage,
        "start": start * MS, "duration": duration * MS, "SpanAttributes": {"stagelens.stage": stage},
        "ResourceAttributes": {"service.instance.id": "a"},
    }  # fmt: skip


@pytest.fixture(scope="module")
def url(module_store: HandStore) -> Iterator[str]:
    """A request in twenty engine steps, another one in its batch, and a bare one."""
    module_store.requests(
        {"TraceId": ID, "SpanId": "r", "queue": 20 * MS, "prefill": 40 * MS, "decode": 140 * MS,
         "FirstChunkNs": 55 * MS, "FirstTokenNs": 60 * MS,
         "FirstAnswerNs": 90 * MS, "Tags": {"tenant": HOSTILE},
         "SourceDetail": "usage,engine_span"},
    )  # fmt: skip
    module_store.spans(
        {"TraceId": ID, "SpanId": "r", "SpanName": "POST /v1", "duration": 200 * MS},
        phase(ID, "queue", 0, 20), phase(ID, "prefill", 20, 40), phase(ID, "decode", 60, 140),
        phase(OTHER, "prefill", 100, 10), phase(OTHER, "decode", 110, 50),
        {"TraceId": BARE, "SpanId": "r", "SpanName": "upstream", "duration": 9 * MS},
    )  # fmt: skip
    module_store.steps(*(
        {"start": n * 10 * MS, "duration": 10 * MS, "DecodeTokens": 1 + n % 3, "DecodeRequests": 1 + n % 3,
         "PrefillTokens": 256 if n in {2, 3, 10} else 0, "PrefillRequests": int(n in {2, 3, 10}),
         "Running": 2, "Waiting": 1, "KvCacheUsage": n / 40}
        for n in range(20)
    ))  # fmt: skip
    module_store.gauges("hw.gpu.utilization", {0: 0.25, 100 * MS: 0.75}, MetricUnit="1",
                        Attributes={"hw.type": "gpu", "gpu": HOSTILE})  # fmt: skip
    with served(build_api(module_store, None, FakeClock(unix_ns=NOW_UNIX_NS))) as at:
        yield at


def test_the_clocks_stand_beside_the_spans(tab, url):
    """First chunk, token and answer with the API's times, as marks and as words."""
    shown(tab, url, view="trace", id=ID)
    record = asked(url, f"/traces/{ID}")["requests"][0]
    said = tab.locator("[data-test=clocks] .said").inner_text()
    for name, key in (
        ("first chunk", "first_chunk_ns"),
        ("first token", "ttft_ns"),
        ("first answer", "first_answer_ns"),
    ):
        assert f"{name} {seconds(record[key])}" in said
    assert tab.locator("[data-test=clocks] .track rect").count() == 3


def facts_of(tab) -> dict[str, str]:
    """What stands below the stages of the trace's last record, by name."""
    facts = tab.locator("dl.facts").last
    return dict(
        zip(facts.locator("dt").all_inner_texts(), facts.locator("dd").all_inner_texts(), strict=True)
    )


def test_the_record_is_told_whole(tab, url, module_store):
    """What `stagelens trace` prints of it stands in the page too."""
    module_store.requests({"TraceId": "f1" * 16, "SpanId": "r", "decode": MS, "Model": "small", "Choices": 3,
                           "HttpStatus": 504, "Status": "error", "ErrorType": "timeout",
                           "FinishReason": "length", "InputTokens": 1, "OutputTokens": 2,
                           "CachedTokens": 0, "ReasoningTokens": 1234,
                           "ServiceName": "gate", "ServiceInstance": "b7", "Cost": 0.00125})  # fmt: skip
    module_store.spans({"TraceId": "f1" * 16, "SpanId": "r", "duration": MS})
    shown(tab, url, view="trace", id="f1" * 16)
    told = facts_of(tab)
    assert {
        "model": "small", "operation": "chat", "route": "/v1/chat/completions",
        "answer": "streamed, 3 choices",
        "status": "error, timeout", "finish reason": "length", "HTTP status": "504",
        "tokens in / out / cached / reasoning": "1 / 2 / 0 / 1,234", "service": "gate",
        "service instance": "b7", "cost": "0.00125",
    }.items() <= told.items()  # fmt: skip


def test_what_a_record_does_not_tell_is_no_data(tab, url, module_store):
    """Neither an empty place nor a 0."""
    module_store.requests({"TraceId": "f2" * 16, "SpanId": "r", "decode": MS, "Model": "", "Operation": "",
                           "Route": "", "HttpStatus": 0, "FinishReason": "", "Stream": False,
                           "ServiceInstance": ""})  # fmt: skip
    module_store.spans({"TraceId": "f2" * 16, "SpanId": "r", "duration": MS})
    shown(tab, url, view="trace", id="f2" * 16)
    told = facts_of(tab)
    assert {
        "model": "no data", "operation": "no model call", "route": "no data",
        "answer": "not streamed, 1 choice",
        "finish reason": "no data", "HTTP status": "no response", "service instance": "no data",
        "cost": "no data",
        "tokens in / out / cached / reasoning": "no data / no data / no data / no data",
    }.items() <= told.items()  # fmt: skip
    assert "" not in told.values()


def test_the_record_says_what_its_figures_rest_on(tab, url):
    """The source and each of its details, as the API has them."""
    shown(tab, url, view="trace", id=ID)
    record = asked(url, f"/traces/{ID}")["requests"][0]
    said = tab.locator("dt", has_text="times told by").locator("+ dd").inner_text()
    assert said == ", ".join([record["source"], *record["source_detail"]])
    assert said == "engine, usage, engine_span"


def test_the_step_lane_says_what_the_api_says(tab, url):
    """Every step in the table, with its tokens and the stage that this request was in."""
    shown(tab, url, view="trace", id=ID)
    steps = asked(url, f"/traces/{ID}/engine")["steps"]
    assert tab.locator("[data-test=steps] .lane .s-decode").count() == len(steps) == 20
    assert tab.locator("[data-test=steps]").bounding_box()["height"] < 120
    tab.get_by_text("All steps as a table").click()
    rows = tab.get_by_role("region", name="Engine steps").locator("tbody tr")
    expect(rows).to_have_count(20)  # made when the browser tells of the opening
    for n, step in enumerate(steps):
        cells = rows.nth(n).locator("td").all_inner_texts()
        assert cells[0] == seconds(step["offset_ns"]) or n == 0
        assert cells[2:6] == [
            str(step[k])
            for k in ("prefill_tokens", "prefill_requests", "decode_tokens", "decode_requests")
        ]
        assert cells[-1] == ", ".join(step["stages"])


def test_a_step_is_chosen_by_keyboard_and_says_who_shared_it(tab, url):
    """Home and arrows move through the steps, each told to a screen reader; others are links."""
    shown(tab, url, view="trace", id=ID)
    slider = tab.get_by_label("Engine step", exact=True)
    assert slider.input_value() == "2"  # the first of its own prefill
    slider.press("Home")
    assert "step 1 of 20" in slider.get_attribute("aria-valuetext")
    for _ in range(10):
        slider.press("ArrowRight")
    told = tab.locator("[data-test=step]")
    assert "256 tokens of 1 request" in told.inner_text()
    assert slider.get_attribute("aria-valuetext").startswith(
        "step 11 of 20, at 100.0 ms, takes 10.0 ms: 256 prefill tokens"
    )
    told.locator("dd", has_text=OTHER[:8]).first.wait_for()
    told.locator("a").first.press("Enter")
    tab.wait_for_url(f"**id={OTHER}*")


def test_a_click_on_the_lane_chooses_the_step_below_it(tab, url):
    """The one whose middle is nearest."""
    shown(tab, url, view="trace", id=ID)
    lane = tab.locator("[data-test=steps] .lane")
    box = lane.bounding_box()
    lane.click(position={"x": box["width"] * 0.5 + 2, "y": 5})
    assert tab.get_by_label("Engine step", exact=True).input_value() == "10"


def test_who_shared_the_batch_is_a_table(tab, url):
    """As many steps as the API counts."""
    shown(tab, url, view="trace", id=ID)
    sharers = {s["stage"]: s["steps"] for s in asked(url, f"/traces/{ID}/engine")["sharers"]}
    row = tab.get_by_role("region", name="Other requests in the steps of this one").locator(
        "tbody tr"
    )
    assert row.locator("th, td").all_inner_texts() == [
        OTHER[:8],
        str(sharers["prefill"]),
        str(sharers["decode"]),
    ]
    assert sharers == {"prefill": 1, "decode": 5}


def test_the_gpu_lane_shows_each_gauge_and_hostile_names_as_text(tab, url):
    """Its range, in its unit; a GPU's name that holds markup is shown, never made."""
    shown(tab, url, view="trace", id=ID)
    lane = tab.locator("[data-test=gpu]")
    assert lane.locator(".name").inner_text() == f"hw.gpu.utilization gpu={HOSTILE}"
    assert lane.locator(".time").inner_text() == "0.250 to 0.750"
    assert lane.locator("polyline").count() == 1
    tab.locator("dd", has_text="document.title").first.wait_for()
    assert tab.title() == f"Trace {ID} – Stagelens"
    assert tab.locator("main script").count() == 0


def test_lanes_without_data_say_so(tab, url):
    """A request of no engine: both lanes say what is not there."""
    shown(tab, url, view="trace", id=BARE)
    tab.get_by_text("No span of this trace was in an engine that tells its steps.").wait_for()
    tab.goto(f"{url}/?view=trace&id={'12' * 16}")
    tab.get_by_role("alert").get_by_text("no trace").wait_for()


def test_a_span_is_opened_by_keyboard_and_marked_as_chosen(tab, url):
    """Enter on a span's name shows its attributes, and says which one is shown."""
    shown(tab, url, view="trace", id=ID)
    button = tab.get_by_role("button", name="prefill", exact=True)
    button.press("Enter")
    assert button.get_attribute("aria-pressed") == "true"
    facts = tab.locator("[data-test=span]").inner_text()
    assert "stagelens.stage" in facts
    assert "40.0 ms" in facts


@pytest.mark.parametrize("size", SIZES)
def test_the_waterfall_has_no_accessibility_violation(browser, url, size, tmp_path):
    """With a span and all tables open, wide and narrow."""
    from axe_playwright_python.sync_playwright import Axe

    context = browser.new_context(viewport=SIZES[size], bypass_csp=True)
    tab = context.new_page()
    shown(tab, url, view="trace", id=ID)
    tab.get_by_role("button", name="prefill", exact=True).click()
    tab.get_by_text("All steps as a table").click()
    tab.screenshot(path=tmp_path / "trace.png", full_page=True)
    violations = Axe().run(tab).response["violations"]
    width = tab.evaluate("document.documentElement.scrollWidth")
    context.close()
    assert [(v["id"], [n["html"][:120] for n in v["nodes"]][:3]) for v in violations] == []
    assert width <= SIZES[size]["width"]
