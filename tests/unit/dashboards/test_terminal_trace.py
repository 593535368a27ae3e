"""A trace and lists of requests on terminals of several widths."""

from __future__ import annotations

import io

import pytest
from rich.cells import cell_len

from dashboards.filters import Filters
from dashboards.queries.requests import requests
from dashboards.queries.trace import trace
from dashboards.terminal.console import make_console
from dashboards.terminal.requests import render_requests
from dashboards.terminal.trace import render_trace
from tracer import semconv

MS = 1_000_000
ID = "ab" * 16
HOSTILE = "chat [red]\x1b[2J\u202e[/red]\n模型"


def text_of(render, found, width=100, encoding="utf-8"):
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    render(found, make_console(file, width))
    file.flush()
    return raw.getvalue().decode(encoding)


@pytest.fixture(scope="module")
def stored(module_store):
    """One request: 10 ms of prompt, 30 of queue, 60 of decode, with hostile texts."""
    module_store.requests(
        {
            "TraceId": ID,
            "SpanId": "r",
            "prompt": 10 * MS,
            "HandoffNs": 2 * MS,
            "queue": 30 * MS,
            "decode": 60 * MS + 1,
            "PreemptedNs": 5 * MS,
            "Preemptions": 1,
            "FirstChunkNs": 20 * MS,
            "FirstTokenNs": 40 * MS,
            "FirstAnswerNs": 40 * MS,
            "InputTokens": 1200,
            "CachedTokens": 512,
            "InFlight": 3,
            "Running": 2,
            "Warm": False,
            "ColdReason": "compile",
            "Status": "error",
            "ErrorType": "bad\x1b[0m",
            "HttpStatus": 500,
            "Repairs": ["last_token_before_first"],
            "SourceDetail": "usage,engine_span",
            "Tags": {"t\x1b": "[bold]"},
            "Model": HOSTILE,
        }
    )
    at = {"TraceId": ID}
    module_store.spans(
        {**at, "SpanId": "r", "ParentSpanId": "far", "SpanName": "POST", "duration": 100 * MS + 1},
        {
            **at,
            "SpanId": "c",
            "ParentSpanId": "r",
            "SpanName": HOSTILE,
            "start": 8 * MS,
            "duration": 92 * MS,
            "StatusCode": "Error",
        },
        {
            **at,
            "SpanId": "d",
            "ParentSpanId": "c",
            "SpanName": "decode",
            "start": 40 * MS,
            "duration": 60 * MS + 1,
            "SpanAttributes": {semconv.STAGE: "decode"},
            "Events.Timestamp": ["2026-01-01 12:00:00.070000000"],
            "Events.Name": ["preempted"],
            "Events.Attributes": [{}],
        },
    )
    return module_store


@pytest.mark.parametrize("width", [80, 100, 160])
def test_every_line_fits_and_nothing_is_obeyed(stored, width):
    """Names and attributes are hostile input: shown spelled out, cut, and aligned."""
    text = text_of(render_trace, trace(stored, ID), width)
    assert max(cell_len(line) for line in text.splitlines()) <= width
    assert all(one.isprintable() for line in text.split("\n") for one in line)
    assert "!chat [red]\\x1b" in text
    assert "t\\x1b=[bold]" in text
    assert "error, bad\\x1b[0m (HTTP 500)" in text


@pytest.mark.parametrize("width", [80, 100, 160])
def test_bars_stand_where_their_time_is(stored, width):
    """A bar begins and ends at its share of the time axis; marks lie on it."""
    lines = text_of(render_trace, trace(stored, ID), width).splitlines()
    root = next(line for line in lines if line.startswith("^POST"))
    axis = root.index("━")
    cells = root.count("━")
    decode = next(line for line in lines if line.strip().startswith("decode"))
    assert abs(decode.index("█") - axis - 0.4 * cells) <= 1
    assert decode.rindex("█") == axis + cells - 1
    assert abs(decode.index("P") - axis - 0.7 * cells) <= 1
    chunk = next(line for line in lines if "first chunk" in line)
    token = next(line for line in lines if "first token/answer" in line)
    assert abs(chunk.index("▼") - axis - 0.2 * cells) <= 1
    assert token.index("▼") == decode.index("█")
    assert decode.split()[-2:] == ["40.000", "60.000"]
    assert "^ its parent is not stored here" in "\n".join(lines)


def test_the_stages_are_exact_to_the_nanosecond(stored):
    """The partition is printed in whole nanoseconds with its sum."""
    text = text_of(render_trace, trace(stored, ID), 80)
    assert "60,000,001" in text
    assert "sum 100,000,001 ns, E2E 100,000,001 ns: the stages add up to it exactly" in text


def test_a_broken_sum_is_told(store):
    """A foreign record that does not add up is not passed over."""
    store.requests({"TraceId": ID, "decode": 5, "E2ENs": 9})
    store.spans({"TraceId": ID, "SpanId": "r", "duration": 9})
    assert "the stages are off by -4 ns" in text_of(render_trace, trace(store, ID))


def test_the_facts_of_the_request_are_all_there(stored):
    """Tokens, arrival, warmth, preemptions and repairs; what is not known says so."""
    text = " ".join(text_of(render_trace, trace(stored, ID)).split())
    for words in (
        "first chunk 20.0 ms, TTFT 40.0 ms, first answer 40.0 ms, E2E 100 ms",
        "input 1,200 (cached 512), output unknown (reasoning unknown)",
        "3 others in flight; in the engine 2 running, unknown waiting; cold (compile)",
        "TPOT no data; no gaps between tokens known",
        "preemptions 1",
        "last_token_before_first",
        "finish reason stop",
        "told by engine (usage, engine_span)",
    ):
        assert words in text


def test_where_a_retrievals_time_went_is_told(store):
    """Its embedding, its search and its reranking, as its span has them; what is no number is not."""
    store.requests({"TraceId": ID, "retrieval": 9, "E2ENs": 9})
    told = {semconv.EMBED_NS: "2000000", semconv.SEARCH_NS: "30000000", semconv.DOCUMENTS: "3"}
    at = {"TraceId": ID, "ParentSpanId": "r"}
    store.spans(
        {"TraceId": ID, "SpanId": "r", "duration": 9},
        {**at, "SpanId": "a", "SpanName": "retrieval docs", "SpanAttributes": told},
        {**at, "SpanId": "b", "SpanName": "retrieval b", "SpanAttributes": {semconv.RERANK_NS: "x"}},
    )
    text = " ".join(text_of(render_trace, trace(store, ID)).split())
    assert "retrieval docs: embed 2.00 ms, search 30.0 ms, 3 documents" in text
    assert "rerank" not in text


def test_a_trace_without_a_record_has_its_spans(store):
    """Another system's trace is shown as a waterfall alone."""
    store.spans({"TraceId": ID, "SpanId": "r", "duration": 0}, {"TraceId": ID, "SpanId": "s"})
    text = text_of(render_trace, trace(store, ID))
    assert "No span here carries a request's record" in text


def test_a_clock_behind_does_not_break_the_axis(store):
    """A child that begins before its root is drawn, with its negative offset."""
    store.spans(
        {"TraceId": ID, "SpanId": "r", "SpanName": "root", "start": 50 * MS, "duration": 50 * MS},
        {"TraceId": ID, "SpanId": "s", "ParentSpanId": "r", "SpanName": "early", "duration": MS},
    )
    lines = text_of(render_trace, trace(store, ID)).splitlines()
    early = next(line for line in lines if line.strip().startswith("early"))
    root = next(line for line in lines if line.startswith("root"))
    assert early.index("━") < root.index("━")
    assert "-50.000" in early


def test_ascii_is_enough(stored):
    """A console without Unicode gets bars and marks it can show."""
    text = text_of(render_trace, trace(stored, ID), 80, "ascii")
    assert "====" in text
    assert "####" in text


@pytest.mark.parametrize("width", [80, 100, 160])
def test_a_list_of_requests_fits(stored, width):
    """Ids are cut where they must be, and still find the trace."""
    text = text_of(render_requests, requests(stored, Filters()), width)
    assert max(cell_len(line) for line in text.splitlines()) <= width
    row = next(line for line in text.splitlines() if "abab" in line)
    assert "…" not in text
    assert "decode 60%" in row
    assert "error" in row
    assert "1 of 1 request, by start" in text
    assert (
        trace(stored, next(word for word in row.split() if word.startswith("abab"))).trace_id == ID
    )
