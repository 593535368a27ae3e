"""Beside another's processors and samplers: each sees the attributes when it looks."""

from __future__ import annotations

import pytest
from opentelemetry import trace as otel
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider, sampling
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import tracer
from tests.support.otlp_peer import otlp_peer
from tests.unit.tracer.sdk.test_configure import run
from tracer import semconv
from tracer.clock import Anchor, SystemClock
from tracer.export import SCOPE, OtlpExporter
from tracer.export_settings import ExportSettings
from tracer.sdk.attributes import When
from tracer.sdk.processor import ExportProcessor
from tracer.sdk.runtime import Runtime, install
from tracer.testing import FakeClock, recording


@tracer.tool
def look(where: str) -> str:
    return where


@tracer.trace
def task() -> str:
    return look("x")


@pytest.fixture
def joined():
    """Set up beside a provider; gives what makes it."""
    installed = []

    def join(provider: TracerProvider, at: str = "http://127.0.0.1:9") -> ExportProcessor:
        clock = SystemClock()
        exporter = OtlpExporter(ExportSettings(at), provider.resource, clock)
        made = Runtime(
            provider.get_tracer(SCOPE), clock, Anchor.take(clock), False, None, 8192, exporter, 0.1
        )
        made.late = processor = ExportProcessor(exporter, made, provider)
        provider.add_span_processor(processor)
        exporter.start()
        installed.append((install(made), exporter))
        return processor

    yield join
    for before, exporter in reversed(installed):
        install(before)
        exporter.close(2)


class Looks(SpanProcessor):
    """Notes a span's attributes at its start and at its end."""

    def __init__(self) -> None:
        self.started: list[dict] = []
        self.ended: dict[str, dict] = {}

    def on_start(self, span, parent_context=None) -> None:
        self.started.append(dict(span.attributes))

    def on_end(self, span) -> None:
        self.ended[span.name] = dict(span.attributes)


class ByAttributes(sampling.Sampler):
    """Takes tools only."""

    def should_sample(self, parent_context, trace_id, name, kind=None, attributes=None, *_, **__):
        told = (attributes or {}).get(semconv.GEN_AI_TOOL_NAME)
        decision = sampling.Decision.RECORD_AND_SAMPLE if told else sampling.Decision.DROP
        return sampling.SamplingResult(decision, attributes)

    def get_description(self) -> str:
        return "by attributes"


def test_a_processor_that_is_told_of_starts_finds_the_attributes_there(joined):
    """And the whole of them at the end."""
    theirs, provider = Looks(), TracerProvider()
    provider.add_span_processor(theirs)
    assert joined(provider).when() is When.AT_START
    look("x")
    assert theirs.started[0][semconv.GEN_AI_TOOL_NAME] == "look"
    assert theirs.ended["execute_tool look"][semconv.RESULT_SIZE] == 1


def test_a_processor_that_exports_has_all_of_them_at_the_end(joined):
    """OpenTelemetry's own ones: attributes are written once, before the end, in the same step."""
    shown, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(shown))
    assert joined(provider).when() is When.AT_END
    task()
    tool, root = shown.get_finished_spans()
    assert tool.attributes[semconv.GEN_AI_TOOL_NAME] == "look"
    assert (tool.attributes[semconv.ARGUMENTS_SIZE], tool.attributes[semconv.RESULT_SIZE]) == (
        14,
        1,
    )
    assert root.attributes[semconv.E2E_NS] >= root.attributes[semconv.stage_ns("tool")] > 0


@pytest.mark.parametrize("root", [True, False])
def test_a_sampler_that_asks_for_attributes_is_given_them(root, joined):
    """Also where it is the root's one of a sampler that goes by parents."""
    sampler = sampling.ParentBased(ByAttributes()) if root else ByAttributes()
    shown, provider = InMemorySpanExporter(), TracerProvider(sampler=sampler)
    provider.add_span_processor(SimpleSpanProcessor(shown))
    assert joined(provider).when() is When.BEFORE_START
    look("x")
    with tracer.stage("not a tool"):
        pass
    assert [span.name for span in shown.get_finished_spans()] == ["execute_tool look"]


def test_a_processor_that_comes_later_sees_the_spans_that_are_open(joined):
    """Added in the middle of a task."""
    theirs, provider = Looks(), TracerProvider()
    assert joined(provider).when() is When.NEVER
    with tracer.trace("task"):
        provider.add_span_processor(theirs)
        look("x")
    assert theirs.ended["task"][semconv.STATUS] == "ok"
    assert theirs.ended["execute_tool look"][semconv.GEN_AI_TOOL_NAME] == "look"


def test_both_receive_the_same_attributes(joined):
    """What we send and what the other exporter has."""
    shown, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(shown))
    with otlp_peer() as peer:
        processor = joined(provider, peer.url)
        task()
        assert processor.force_flush(5000)
        sent = {span.name: {a.key for a in span.attributes} for span in peer.spans()}
    assert sent == {span.name: set(span.attributes) for span in shown.get_finished_spans()}


def test_the_own_spans_of_an_exporter_are_not_made():
    """An instrumentation of the HTTP client would send a span for each body, for ever."""
    out = run(
        """
        import urllib.request, http.server, threading
        from opentelemetry import trace as otel
        from opentelemetry.instrumentation.utils import is_http_instrumentation_enabled
        class H(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(200); self.end_headers()
            def log_message(self, *a): pass
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), H)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        opened = urllib.request.OpenerDirector.open
        def traced(self, *a, **k):
            if not is_http_instrumentation_enabled():
                return opened(self, *a, **k)
            with otel.get_tracer("urllib").start_as_current_span("POST"):
                return opened(self, *a, **k)
        urllib.request.OpenerDirector.open = traced
        tracer.configure(endpoint=f"http://127.0.0.1:{server.server_address[1]}")
        look()
        tracer.flush(5)
        urllib.request.urlopen(f"http://127.0.0.1:{server.server_address[1]}", data=b"theirs")
        tracer.shutdown()
        print(tracer.losses()["spans"]["received"])
        """
    )
    assert out.strip() == "2"


def test_spans_of_others_that_nobody_ends_do_not_pile_up(joined):
    """The newest 10,000 are remembered: what comes after still counts in its task."""
    provider = TracerProvider()
    processor, theirs = joined(provider), provider.get_tracer("theirs")
    with tracer.trace("task") as live:
        for _ in range(10_050):
            theirs.start_span("never")
        with theirs.start_as_current_span(
            "found", attributes={semconv.GEN_AI_OPERATION_NAME: "retrieval"}
        ):
            pass
    assert len(processor._tasks) == 9_999
    assert [stage for stage, _, _ in live.task.intervals] == ["retrieval"]


def test_spans_that_begin_after_the_wall_clock_left_are_placed_anew():
    """A laptop that slept for eight hours: the monotonic clock did not count them."""
    clock = FakeClock()
    with recording(clock) as seen:
        task()
        clock.epoch_ns += 8 * 3600 * 10**9
        task()
        clock.epoch_ns -= 500_000  # as much passes between two readings where a thread waits for a core
        task()
    starts = [span.start_time for span in seen.spans if span.name == "task"]
    assert starts[1] - starts[0] == 8 * 3600 * 10**9
    assert starts[2] == starts[1]
    assert all(span.end_time >= span.start_time for span in seen.spans)


@pytest.mark.parametrize("beside", [None, "end", "start"])
def test_what_the_program_says_itself_is_not_written_over(joined, beside):
    provider, seen, memory = TracerProvider(), Looks(), InMemorySpanExporter()
    if beside is not None:
        provider.add_span_processor(seen if beside == "start" else SimpleSpanProcessor(memory))

    @tracer.llm("asked")
    def call() -> dict:
        otel.get_current_span().set_attribute(semconv.GEN_AI_REQUEST_MODEL, "used")
        return {"usage": {"prompt_tokens": 3, "completion_tokens": 1}}

    with otlp_peer() as peer:
        processor = joined(provider, peer.url)
        call()
        assert processor.force_flush(5000)
        [sent] = peer.spans()
    told = {one.key: one.value.string_value for one in sent.attributes}
    assert told[semconv.GEN_AI_REQUEST_MODEL] == "used"
    assert told[semconv.GEN_AI_OPERATION_NAME] == "chat"
    others = [*seen.ended.values(), *(span.attributes for span in memory.get_finished_spans())]
    assert [one[semconv.GEN_AI_REQUEST_MODEL] for one in others] == ["used"] * len(others)


class Raises(SpanProcessor):
    def on_start(self, span, parent_context=None) -> None:
        raise RuntimeError


def test_a_span_whose_start_another_processor_refused_is_kept(joined):
    provider = TracerProvider()
    provider.add_span_processor(Raises())
    with otlp_peer() as peer:
        processor = joined(provider, peer.url)
        assert look("x") == "x"
        assert processor.force_flush(5000)
        assert peer.names() == ["execute_tool look"]


def test_a_span_that_could_not_be_begun_is_counted_as_lost(joined):
    provider = TracerProvider(ByAttributes())
    provider.add_span_processor(Raises())
    joined(provider)
    assert look("x") == "x"
    assert tracer.losses()["spans"]["dropped"] == {"fault": 1}


def test_spans_after_their_provider_was_shut_down_are_counted_as_lost(joined):
    provider = TracerProvider()
    joined(provider)
    provider.shutdown()
    assert look("x") == "x"
    assert tracer.losses()["spans"]["dropped"] == {"closed": 1}
