"""Real instrumentations of other projects, as an application installs them, become requests."""

from __future__ import annotations

import gc
import importlib
import time
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from collectors.normalise.normaliser import Normaliser
from collectors.normalise.settings import NormaliseSettings
from collectors.normalise.tables import Tables
from collectors.store.client import StoreSettings
from tests.fake_llm.dialects import DONE, sse, whole
from tests.fake_llm.server import Pause, Reply, Step, fake_llm
from tests.support.clock import FakeClock
from tests.unit.collectors.live_receiver import LiveReceiver, live_receiver, own_database
from tracer.clock import SystemClock

NEVER = NormaliseSettings(enabled=False, quiet_s=0)
DIALECTS = {
    "openinference": ("openinference.instrumentation.openai", "openinference"),
    "openllmetry": ("opentelemetry.instrumentation.openai", "gen_ai"),  # since it took their names
}


@pytest.fixture(scope="module")
def live(engine) -> Iterator[LiveReceiver]:
    with own_database(engine) as store, live_receiver(
        store, clock=SystemClock(), normalise=NEVER, store=StoreSettings(ttl_days=30)
    ) as made:
        yield made


@pytest.fixture(params=sorted(DIALECTS))
def instrumented(request: pytest.FixtureRequest, live: LiveReceiver) -> Iterator[tuple[str, Any]]:
    """The words that its spans use and a tracer, while the openai client is instrumented."""
    module, dialect = DIALECTS[request.param]
    instrumentor = importlib.import_module(module).OpenAIInstrumentor()
    provider = TracerProvider(resource=Resource({"service.name": f"app-{dialect}"}))
    provider.add_span_processor(
        SimpleSpanProcessor(OTLPSpanExporter(endpoint=f"{live.url}/v1/traces"))
    )
    instrumentor.instrument(tracer_provider=provider)
    yield dialect, provider.get_tracer("app")
    instrumentor.uninstrument()
    provider.shutdown()
    gc.collect()  # what the instrumentations leave to it must not be collected in another's code


SET_NS = 10_000_000


def answer(stream: bool) -> Reply:
    """Five tokens, the first at 0.2 s and then one each 0.05 s, without a role chunk before."""
    if not stream:
        return whole({"role": "assistant", "content": "five"})
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    steps: list[Step] = []
    for n in range(5):
        choice = {"index": 0, "delta": {"role": "assistant", "content": "t "}, "finish_reason": None}
        steps += [Pause(0.2 + n * 0.05), sse({**head, "choices": [choice]})]
    steps.append(sse({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}))
    usage = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
    return Reply([*steps, sse({**head, "choices": [], "usage": usage}), DONE])


def row_of(live: LiveReceiver, trace_id: int) -> dict[str, object]:
    live.settle()
    Normaliser(Tables(live.store), FakeClock(), NEVER).look()
    (row,) = live.rows(f"SELECT * FROM {{db}}.requests WHERE TraceId = '{trace_id:032x}'")
    return row


@pytest.mark.parametrize("stream", [True, False])
async def test_a_call_of_the_openai_client_below_a_task_is_a_request(live, instrumented, stream):
    """Model, tokens and, where it was streamed, the first token of a scripted 0.2 s."""
    name, tracer = instrumented
    options = {"stream_options": {"include_usage": True}} if stream else {}
    async with (
        fake_llm(answer(stream)) as fake,
        openai.AsyncOpenAI(base_url=f"{fake.url}/v1", api_key="sk-CANARY") as client,
    ):
        began = seen = time.monotonic_ns()
        with tracer.start_as_current_span("task") as task:
            got = await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "CANARY-prompt"}],
                stream=stream, **options,
            )  # fmt: skip
            if stream:
                await anext(got)
                seen = time.monotonic_ns() - began
                assert [chunk async for chunk in got]
    row = row_of(live, task.get_span_context().trace_id)
    assert name in str(row["SourceDetail"])
    wanted = {"Model": "m", "Operation": "chat", "Status": "ok", "OutputTokens": 5 if stream else 4,
              "ServiceName": f"app-{name}", "Source": "client"}  # fmt: skip
    assert {key: row[key] for key in wanted} == wanted
    assert "CANARY" not in str(row)
    assert row["E2ENs"] == sum(int(str(v)) for k, v in row.items() if k in STAGES)
    if stream:
        # Their spans are of the wall clock, which a host may set by some milliseconds meanwhile.
        assert 0.2e9 - SET_NS <= int(str(row["FirstTokenNs"])) <= seen + SET_NS
        assert int(str(row["DecodeNs"])) > 0


STAGES = ("PromptNs", "RetrievalNs", "QueueNs", "PrefillNs", "DecodeNs", "ToolNs", "DeliverNs",
          "UnattributedNs")  # fmt: skip
