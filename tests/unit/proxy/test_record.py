"""Marks become a record, and the record becomes spans that add up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.request.call import EngineCall
from proxy.request.live import LiveRequest
from proxy.request.record import Arrival, RequestRecord, RequestStatus
from proxy.request.spans import drafts, span_count
from tests.support.clock import CountingIds
from tracer import semconv
from tracer.clock import Anchor
from tracer.stages import Stage

S = 1_000_000_000
ANCHOR = Anchor(0, 0)


def ns(seconds: float) -> int:
    return round(seconds * S)


def live(**more: object) -> LiveRequest:
    made = LiveRequest(
        trace_id=1, span_id=1000, parent_span_id=None, method="POST", path="/v1/chat/completions",
        start_mono_ns=0, arrival=Arrival(3, 2, 1, True), anchor=ANCHOR, tags={"team": "a"}, operation="chat",
        route="/v1/chat/completions", http_status=200,
    )  # fmt: skip
    for name, value in more.items():
        setattr(made, name, value)
    return made


def chat_call() -> EngineCall:
    """handed 1.7, engine has it 1.8, scheduled 2.0, tokens 2.2, 2.3, 2.5."""
    call = EngineCall("id", "chat", ns(1.7), model="m", input_tokens=7)
    call.note_queued(ns(1.8))
    call.note_scheduled(ns(2.0))
    for at in (2.2, 2.3, 2.5):
        call.note_output(0, 1, ns(at))
    call.finished = True
    call.finish_reasons[0] = "stop"
    call.ended_mono_ns = ns(2.5)
    return call


def finished(request: LiveRequest, mono_ns: int) -> RequestRecord:
    request.end(mono_ns)
    return request.record("engine")


def times(record: RequestRecord) -> dict[str, float]:
    return {str(s): t / S for s, t in record.partition.exclusive_ns.items() if t}


def test_the_time_before_the_engine_is_its_own_stage():
    """Parse and template until 1.8 s are prompt, not hidden before an engine span (faults 26)."""
    request = live(stream=True, done_mono_ns=ns(2.6), calls=[chat_call()])
    request.clocks.note(b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n', ns(2.21), 1)
    record = finished(request, ns(9))
    assert times(record) == {
        "prompt": 1.8, "queue": 0.2, "prefill": 0.2, "decode": 0.3, "deliver": 0.1,
    }  # fmt: skip
    assert record.e2e_ns == ns(2.6)
    assert record.handoff_ns == ns(0.1)
    assert record.tpot_ns == ns(0.15)
    assert record.itl_ns == [ns(0.1), ns(0.2)]
    root = dict(drafts(record, Anchor(0, 0), CountingIds())[0].attributes)
    assert root[semconv.FIRST_TOKEN_NS] == ns(2.21)
    assert root[semconv.stage_ns(Stage.PROMPT)] == ns(1.8)
    assert root[semconv.OUTPUT_TOKENS] == 3
    assert semconv.CACHED_TOKENS not in root


def test_one_token_has_no_tpot_and_non_streamed_has_no_ttft():
    """Nothing is divided by zero, and no end time poses as a first token (faults 14, 17)."""
    call = EngineCall("id", "chat", 0)
    call.note_queued(0)
    call.note_scheduled(1)
    call.note_output(0, 1, ns(0.2))
    call.finished = True
    record = finished(live(done_mono_ns=ns(0.3), calls=[call]), 0)
    root = dict(drafts(record, Anchor(0, 0), CountingIds())[0].attributes)
    for name in (semconv.TPOT_NS, semconv.FIRST_TOKEN_NS, semconv.FIRST_CHUNK_NS, semconv.ITL_NS):
        assert name not in root
    assert record.status is RequestStatus.OK


def test_every_ending_has_one_status():
    """Finished, failed, left by the client, cut by the server: each is told apart."""

    def outcome(**more: object) -> tuple[str, str]:
        record = finished(live(**more), ns(1))
        return str(record.status), record.error_type

    assert outcome(done_mono_ns=5) == ("ok", "")
    assert outcome(done_mono_ns=5, http_status=404) == ("error", "404")
    assert outcome(done_mono_ns=5, http_status=400, error_body_type="BadRequestError") == (
        "error", "BadRequestError",
    )  # fmt: skip
    assert outcome(disconnected_mono_ns=5) == ("cancelled", "client_disconnect")
    assert outcome(cancelled_by="shutdown") == ("cancelled", "shutdown")
    assert outcome(failure="timeout", done_mono_ns=5) == ("error", "timeout")
    assert outcome() == ("error", "response_incomplete")
    assert outcome(disconnected_mono_ns=9, done_mono_ns=5) == ("ok", "")


def test_an_invalid_request_is_prompt_and_deliver():
    """A 400 spent its time in validation; no model call is invented for it."""
    record = finished(live(http_status=400, response_mono_ns=40, done_mono_ns=50), 60)
    assert record.partition.exclusive_ns[Stage.PROMPT] == 40
    assert record.partition.exclusive_ns[Stage.DELIVER] == 10
    assert [d.name for d in drafts(record, Anchor(0, 0), CountingIds())] == [
        "POST /v1/chat/completions", "prompt", "deliver",
    ]  # fmt: skip


def test_a_cancelled_decode_does_not_pose_as_delivery():
    """After the last token of an unfinished answer the time is nobody's."""
    call = chat_call()
    call.finished = False
    record = finished(live(disconnected_mono_ns=ns(2.9), calls=[call]), ns(3.0))
    assert times(record)["unattributed"] == 0.5
    assert "deliver" not in times(record)


def test_spans_form_one_tree_with_true_times():
    """Root, prompt, chat with its stages, deliver: parents right, times from the marks."""
    record = finished(live(done_mono_ns=ns(2.6), calls=[chat_call()], parent_span_id=99), 0)
    made = drafts(record, Anchor(0, 0), CountingIds())
    assert len(made) == span_count(record)
    by_id = {d.span_id: d.name for d in made}
    tree = [(d.name, by_id.get(d.parent_id or 0), d.start_unix_ns / S, d.end_unix_ns / S)
            for d in made]  # fmt: skip
    assert tree == [
        ("POST /v1/chat/completions", None, 0, 2.6),
        ("prompt", "POST /v1/chat/completions", 0, 1.8),
        ("chat m", "POST /v1/chat/completions", 1.7, 2.5),
        ("queue", "chat m", 1.8, 2.0),
        ("prefill", "chat m", 2.0, 2.2),
        ("decode", "chat m", 2.2, 2.5),
        ("deliver", "POST /v1/chat/completions", 2.5, 2.6),
    ]
    assert made[0].parent_id == 99


def test_a_preemption_is_an_event_of_the_stage_it_interrupts():
    """Preempted and resumed lie on decode, and their time on the root."""
    call = chat_call()
    call.note_preempted(ns(2.31))
    call.note_scheduled(ns(2.4))
    record = finished(live(done_mono_ns=ns(2.6), calls=[call]), 0)
    made = {d.name: d for d in drafts(record, Anchor(0, 0), CountingIds())}
    assert [(n, at / S) for n, at, _ in made["decode"].events] == [
        ("preempted", 2.31), ("resumed", 2.4),
    ]  # fmt: skip
    assert made["POST /v1/chat/completions"].attributes[semconv.PREEMPTED_NS] == ns(0.09)


def test_the_longest_stalls_are_events_of_decode():
    """A gap of twice the usual one or more is told, with its length, where it began."""
    call = chat_call()
    for at in (2.6, 2.7, 3.7, 3.8):
        call.note_output(0, 1, ns(at))
    record = finished(live(done_mono_ns=ns(4), calls=[call]), 0)
    decode = next(d for d in drafts(record, Anchor(0, 0), CountingIds()) if d.name == "decode")
    assert [(n, at / S, a[semconv.STALL_NS] / S) for n, at, a in decode.events] == [
        ("stall", 2.3, 0.2), ("stall", 2.7, 1.0),
    ]  # fmt: skip


@given(st.data())
def test_records_of_any_marks_add_up(data):
    """However a request ended and whatever stamps there are, stages sum to E2E and spans are whole."""
    stamp = st.one_of(st.none(), st.integers(0, 1000))
    calls = []
    for _ in range(data.draw(st.integers(0, 3))):
        call = EngineCall("id", "chat", data.draw(st.integers(0, 1000)))
        call.queued_mono_ns, call.scheduled_mono_ns = data.draw(stamp), data.draw(stamp)
        for _ in range(data.draw(st.integers(0, 3))):
            call.note_output(
                data.draw(st.integers(0, 1)), data.draw(st.integers(0, 2)),
                data.draw(st.integers(0, 1000)),
            )  # fmt: skip
        call.finished = data.draw(st.booleans())
        call.ended_mono_ns = data.draw(stamp)
        calls.append(call)
    request = live(
        calls=calls, response_mono_ns=data.draw(stamp), done_mono_ns=data.draw(stamp),
        stream=data.draw(st.booleans()),
    )  # fmt: skip
    record = finished(request, data.draw(st.integers(0, 1000)))
    assert record.partition.total_ns == record.e2e_ns
    made = drafts(record, Anchor(0, 0), CountingIds())
    assert len(made) == span_count(record)
    assert all(d.end_unix_ns >= d.start_unix_ns for d in made)


def test_an_engine_call_ends_as_the_client_was_told():
    """The engine says stop where the server makes tool calls of the text; streamed or not."""
    end = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}\n\n'
    streamed = live(stream=True, done_mono_ns=ns(2.6), calls=[chat_call()])
    streamed.clocks.note(end, ns(2.55), 3)
    whole = live(done_mono_ns=ns(2.6), calls=[chat_call()])
    whole.read_whole(b'{"choices":[{"index":0,"message":{},"finish_reason":"tool_calls"}]}')
    for request in (streamed, whole):
        root, *rest = drafts(finished(request, ns(9)), ANCHOR, CountingIds())
        assert root.attributes[semconv.FINISH_REASON] == "tool_calls"
        assert ["tool_calls"] in [
            s.attributes.get(semconv.GEN_AI_RESPONSE_FINISH_REASONS) for s in rest
        ]


def test_a_search_of_many_calls_has_the_tokens_that_its_answer_tells():
    """Three prompts, two sequences each: each prompt once, all choices, the answer's own tokens."""
    calls = [chat_call() for _ in range(4)]
    for call in calls:
        call.internal = True
    request = live(done_mono_ns=ns(2.6), calls=calls)
    choices = ",".join(f'{{"index":{n},"text":"x","finish_reason":"length"}}' for n in range(6))
    usage = b'"usage":{"prompt_tokens":10,"completion_tokens":24,"total_tokens":34}'
    request.read_whole(b'{"choices":[%s],%s}' % (choices.encode(), usage))
    root = drafts(finished(request, ns(9)), ANCHOR, CountingIds())[0].attributes
    assert (root[semconv.INPUT_TOKENS], root[semconv.OUTPUT_TOKENS]) == (10, 24)
    assert root[semconv.CHOICES] == 6


@given(st.floats(0, 20))
def test_no_span_of_a_request_ends_after_it(ended_s):
    """Whenever the engine's call is over, its span is not longer than the request."""
    call = chat_call()
    call.finished, call.ended_mono_ns = False, ns(ended_s)
    record = finished(live(done_mono_ns=ns(2.6), calls=[call]), ns(9))
    root, *rest = drafts(record, ANCHOR, CountingIds())
    assert max(s.end_unix_ns for s in rest) <= root.end_unix_ns
