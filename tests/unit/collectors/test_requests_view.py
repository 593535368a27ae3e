"""A root span's record lands in the typed row, column by column."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collectors.receive.rows import TRACE_COLUMNS, TimeWindow, trace_batch
from tests.support.otlp import request, span
from tracer import semconv
from tracer.stages import Stage

INSTANT = 1_767_268_800_000_000_001
RECORD: dict[str, object] = {
    semconv.RECORD_VERSION: 1, semconv.HTTP_ROUTE: "/v1/chat/completions",
    semconv.HTTP_RESPONSE_STATUS_CODE: 200, semconv.ERROR_TYPE: "E", semconv.STATUS: "ok",
    semconv.OPERATION: "chat", semconv.MODEL: "m", semconv.STREAM: True, semconv.CHOICES: 2,
    semconv.FINISH_REASON: "stop", semconv.E2E_NS: sum(range(100, 108)), semconv.HANDOFF_NS: 5,
    semconv.PREEMPTED_NS: 6, semconv.PREEMPTIONS: 1, semconv.FIRST_CHUNK_NS: 7,
    semconv.FIRST_TOKEN_NS: 8, semconv.FIRST_ANSWER_NS: 9, semconv.TPOT_NS: 1.5,
    semconv.ITL_NS: "3,4,5", semconv.ITL_KIND: "token", semconv.INPUT_TOKENS: 11,
    semconv.OUTPUT_TOKENS: 12, semconv.CACHED_TOKENS: 13, semconv.REASONING_TOKENS: 14,
    semconv.IN_FLIGHT: 15, semconv.RUNNING: 16, semconv.WAITING: 17, semconv.WARM: False,
    semconv.COLD_REASON: "startup", semconv.SOURCE: "engine", semconv.REPAIRS: ["a:b", "c"],
    semconv.TAG_PREFIX + "team": "search", semconv.TAG_PREFIX + "a.b": "x",
    **{semconv.stage_ns(stage): 100 + i for i, stage in enumerate(Stage)},
    semconv.stage_count(Stage.PREFILL): 2, semconv.stage_count(Stage.DECODE): 1,
}  # fmt: skip


def stored(store, attributes: dict[str, object], token: str = "t") -> dict[str, object]:
    batch = trace_batch(request(span(1, INSTANT, attributes)), TimeWindow(1, 2**62))
    store.insert("otel_traces", TRACE_COLUMNS, batch.rows["otel_traces"], token)
    rows = store.query(f"SELECT * FROM {store.database}.requests", {})
    assert len(rows) == 1
    return rows[0]


def test_every_attribute_of_the_record_has_its_column(store):
    """The whole record, with the right types."""
    row = stored(store, RECORD)
    expected = {
        "TraceId": f"{1:032x}", "SpanId": f"{1:016x}", "ServiceName": "svc",
        "ServiceInstance": "i1", "Model": "m", "Operation": "chat",
        "Route": "/v1/chat/completions", "HttpStatus": 200, "Status": "ok", "ErrorType": "E",
        "FinishReason": "stop", "Stream": True, "Choices": 2, "E2ENs": 828, "PromptNs": 100,
        "RetrievalNs": 101, "QueueNs": 102, "PrefillNs": 103, "DecodeNs": 104, "ToolNs": 105,
        "DeliverNs": 106, "UnattributedNs": 107, "HandoffNs": 5, "PreemptedNs": 6,
        "StageCounts": {"prefill": 2, "decode": 1}, "FirstChunkNs": 7, "FirstTokenNs": 8,
        "FirstAnswerNs": 9, "TpotNs": 1.5, "ItlNs": [3, 4, 5], "ItlKind": "token",
        "InputTokens": 11, "OutputTokens": 12, "CachedTokens": 13, "ReasoningTokens": 14,
        "Preemptions": 1, "InFlight": 15, "Running": 16, "Waiting": 17, "Warm": False,
        "ColdReason": "startup", "Source": "engine", "Repairs": ["a:b", "c"],
        "Tags": {"team": "search", "a.b": "x"}, "Cost": None,
    }  # fmt: skip
    assert {name: row[name] for name in expected} == expected


def test_what_is_missing_is_null_and_a_span_without_a_record_makes_no_row(store):
    """No data is NULL, never 0; other spans stay out of the requests."""
    batch = trace_batch(request(span(2, INSTANT, {"x": "y"})), TimeWindow(1, 2**62))
    store.insert("otel_traces", TRACE_COLUMNS, batch.rows["otel_traces"], "other")
    row = stored(store, {semconv.RECORD_VERSION: 1})
    for name in ("FirstTokenNs", "TpotNs", "InputTokens", "OutputTokens", "CachedTokens",
                 "Running", "Waiting", "Warm"):  # fmt: skip
        assert row[name] is None
    assert row["ItlNs"] == []
    assert row["Tags"] == {}


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from([k for k in RECORD if k != semconv.RECORD_VERSION]),
                       st.text(max_size=12) | st.floats() | st.integers(), max_size=8))  # fmt: skip
def test_a_hostile_senders_garbage_cannot_stop_the_insert(store, garbage):
    """Any text or number in any attribute: the span and its row are stored all the same."""
    store.command(f"TRUNCATE TABLE {store.database}.requests")
    finite = {k: v for k, v in garbage.items() if not (isinstance(v, int) and abs(v) >= 2**63)}
    row = stored(store, {**finite, semconv.RECORD_VERSION: 1}, token=uuid.uuid4().hex)
    assert row["TpotNs"] is None or row["TpotNs"] == row["TpotNs"]


SPAN_NS = 1_000_000  # of tests.support.otlp.span
MOST = 10 * 365 * 86_400 * 10**9


@pytest.mark.parametrize("told", [
    {semconv.E2E_NS: 10_000},
    {semconv.stage_ns(Stage.QUEUE): 50_000_000_000},
    {semconv.stage_ns(Stage.QUEUE): str(2**64 - 1), semconv.stage_ns(Stage.DECODE): 207},
    {semconv.stage_ns(Stage.TOOL): "x"},
    {semconv.stage_ns(Stage.TOOL): -105},
])  # fmt: skip
def test_a_record_whose_stages_do_not_add_up_keeps_its_time_undivided_and_says_so(store, told):
    """Too much, too little, a sum beyond 64 bits, a word, a negative one."""
    row = stored(store, {**RECORD, **told})
    whole = told.get(semconv.E2E_NS, 828)
    assert (row["E2ENs"], row["UnattributedNs"]) == (whole, whole)
    assert {row[name] for name in ("PromptNs", "RetrievalNs", "QueueNs", "PrefillNs", "DecodeNs",
                                   "ToolNs", "DeliverNs", "HandoffNs", "PreemptedNs")} == {0}  # fmt: skip
    assert row["Repairs"] == ["a:b", "c", "stages_do_not_add_up:undivided"]


@pytest.mark.parametrize(("told", "lost"), [
    ({semconv.TPOT_NS: 1e308}, "TpotNs"),
    ({semconv.TPOT_NS: -1.0}, "TpotNs"),
    ({semconv.TPOT_NS: float("nan")}, "TpotNs"),
    ({semconv.FIRST_TOKEN_NS: 829}, "FirstTokenNs"),
    ({semconv.FIRST_CHUNK_NS: str(2**64 - 1)}, "FirstChunkNs"),
    ({semconv.FIRST_ANSWER_NS: -1}, "FirstAnswerNs"),
    ({"stagelens.cost": float("inf")}, "Cost"),
    ({"stagelens.cost": -0.5}, "Cost"),
])  # fmt: skip
def test_a_figure_that_cannot_be_is_no_data_and_costs_the_others_nothing(store, told, lost):
    row = stored(store, {**RECORD, "stagelens.cost": 0.5, **told})
    assert row[lost] is None
    whole = {"TpotNs": 1.5, "FirstChunkNs": 7, "FirstTokenNs": 8, "FirstAnswerNs": 9, "Cost": 0.5}
    del whole[lost]
    assert {name: row[name] for name in whole} == whole
    assert row["Repairs"] == ["a:b", "c"]


@pytest.mark.parametrize("told", ["", "x", -1, MOST + 1, str(2**64 - 1)])
def test_an_end_to_end_time_that_cannot_be_is_the_spans_own(store, told):
    row = stored(store, {semconv.RECORD_VERSION: 1, semconv.E2E_NS: told, semconv.ITL_NS: f"3,{2**64 - 1}"})
    assert row["E2ENs"] == row["UnattributedNs"] == SPAN_NS
    assert row["ItlNs"] == [3]
