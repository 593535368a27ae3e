"""The contestants: each set up as its documentation says, with spans that go nowhere.

All record the same call: a function of one number. Content is off for all of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider

Call = Callable[[int], object]
SetUp = tuple[Call, dict[str, Call], Call | None]
TURNS, ROUNDS, CALLS = 20, 3, 1_000
"""Of each call: turns with the others, rounds in a turn, calls in a round."""
PLAIN, WITHOUT = "plain call", "@llm not configured"
CONTESTANTS = ("stagelens", "logfire", "traceloop-sdk", "openlit")


class Nowhere(SpanProcessor):
    """Takes each ended span and does nothing."""

    def on_end(self, span: ReadableSpan) -> None:
        """Nothing."""


class Watching(Nowhere):
    """Is told of each span's start as well, so that its attributes must be there by then."""

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing."""


def work(x: int) -> int:
    return x


def raw_span(provider: TracerProvider) -> Call:
    """What one writes by hand: a current span with two attributes."""
    tracer = provider.get_tracer("bare")

    def call(x: int) -> int:
        with tracer.start_as_current_span("work") as span:
            span.set_attribute("gen_ai.operation.name", "chat")
            span.set_attribute("gen_ai.request.model", "m")
            return work(x)

    return call


def nowhere(end: SpanProcessor | None = None) -> TracerProvider:
    provider = TracerProvider()
    provider.add_span_processor(end or Nowhere())
    return provider


def set_up(name: str) -> SetUp:
    """The raw span, the contestant's calls, and for ours a call that is not configured."""
    return {
        "stagelens": _ours, "logfire": _logfire, "traceloop-sdk": _traceloop, "openlit": _openlit,
    }[name]()  # fmt: skip


def _ours() -> SetUp:
    import tracer
    from tracer.clock import Anchor, SystemClock
    from tracer.export import SCOPE, OtlpExporter
    from tracer.export_settings import ExportSettings, SpanGroup
    from tracer.sdk import runtime
    from tracer.sdk.processor import ExportProcessor
    from tracer.sdk.providers import SpanIds

    class NoExporter(OtlpExporter):
        """Takes what the processor hands over and does nothing with it."""

        def __init__(self) -> None:
            super().__init__(ExportSettings("http://127.0.0.1:9"), Resource({}), SystemClock())

        def put_spans(self, group: SpanGroup) -> None:
            """Nothing."""

    def runtime_of(provider: TracerProvider) -> runtime.Runtime:
        clock = SystemClock()
        made = runtime.Runtime(
            provider.get_tracer(SCOPE), clock, Anchor.take(clock), False, None, 8192, None, 0.0
        )
        made.late = ExportProcessor(NoExporter(), made, provider)
        provider.add_span_processor(made.late)
        return made

    own = runtime_of(TracerProvider(id_generator=SpanIds()))
    joined, watched = runtime_of(nowhere()), runtime_of(nowhere(Watching()))
    beside = raw_span(nowhere(Watching()))
    llm, tool, trace = tracer.llm("m")(work), tracer.tool(work), tracer.trace(work)

    return raw_span(nowhere()), {
        "@stage": _Installed(own, tracer.stage("part")(work)),
        "@llm": _Installed(own, llm),
        "@tool": _Installed(own, tool),
        "@trace (whole record)": _Installed(own, trace),
        "@llm, joined to another SDK": _Installed(joined, llm),
        "@tool, joined to another SDK": _Installed(joined, tool),
        "@trace, joined to another SDK": _Installed(joined, trace),
        "@tool, joined, starts watched": _Installed(watched, tool, beside),
        "@trace, joined, starts watched": _Installed(watched, trace, beside),
    }, _Installed(None, llm)


class _Installed:
    """A call with a handle of the process in place; None: not configured.

    ``beside``: the raw span to compare it with, where that has other processors than most.
    """

    def __init__(self, handle: object, call: Call, beside: Call | None = None) -> None:
        self.handle, self.call, self.beside = handle, call, beside

    def __call__(self, x: int) -> object:
        return self.call(x)


def beside(call: Call) -> Call | None:
    """The raw span with the same processors, where most have others."""
    return call.beside if isinstance(call, _Installed) else None


def ready(call: Call) -> Call:
    """The call itself, to be timed: what it needs is in place."""
    if not isinstance(call, _Installed):
        return call
    from tracer.sdk import runtime

    runtime.install(call.handle)  # type: ignore[arg-type]
    return call.call


def _logfire() -> SetUp:
    import logfire

    logfire.configure(
        send_to_logfire=False, console=False, inspect_arguments=False,
        additional_span_processors=[Nowhere()],
    )  # fmt: skip
    made = logfire.instrument("work", extract_args=False)(work)
    return raw_span(nowhere()), {"logfire.instrument": made}, None


def _traceloop() -> SetUp:
    os.environ.update(TRACELOOP_TRACE_CONTENT="false", TRACELOOP_TELEMETRY="false")
    from traceloop.sdk import Traceloop
    from traceloop.sdk.decorators import task

    Traceloop.init(app_name="bench", processor=Nowhere(), instruments=set(), telemetry_enabled=False)
    made = task(name="work")(work)
    return raw_span(nowhere()), {"traceloop @task": made}, None


def _openlit() -> SetUp:
    import openlit
    from opentelemetry import trace

    provider = nowhere()
    trace.set_tracer_provider(provider)  # it joins the one that is there
    openlit.init(disable_metrics=True, disable_events=True, capture_message_content=False)
    made = openlit.trace(work)
    return raw_span(provider), {"openlit.trace": made}, None
