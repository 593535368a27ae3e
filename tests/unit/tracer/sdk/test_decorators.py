"""What the decorators record, and what they leave as it was."""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracer
from tracer import semconv
from tracer.sdk.runtime import active
from tracer.stages import Stage
from tracer.testing import FakeClock, recording, spans_as_tree

S = 1_000_000_000


def stages_of(span) -> dict[str, int]:
    told = {s: span.attributes[semconv.stage_ns(s)] for s in Stage}
    return {str(s): ns for s, ns in told.items() if ns}


def test_a_task_has_its_stages_and_they_add_up():
    """Retrieval .6 s, prompt .1, a stream with .4 s to its first item and 1 s of items, a tool .3."""
    clock = FakeClock()

    @tracer.retrieval(data_source="docs")
    def search(query: str, k: int = 5):
        clock.forward(0.6)
        return [{"id": "a", "score": 0.9, "text": "CANARY"}, {"id": "b"}]

    @tracer.tool
    def weather(city: str) -> str:
        clock.forward(0.3)
        return "sun"

    @tracer.llm("m")
    def model(prompt: str):
        clock.forward(0.4)
        for n in range(3):
            yield n
            clock.forward(0.5 if n < 2 else 0)

    @tracer.trace("answer")
    def answer(question: str):
        search(question, k=2)
        with tracer.stage("prompt"):
            clock.forward(0.1)
        weather("Rome")
        yield from model(question)

    with recording(clock) as seen:
        assert list(answer("q")) == [0, 1, 2]
    assert spans_as_tree(seen.spans) == {
        "answer": {"retrieval docs": {}, "prompt": {}, "execute_tool weather": {}, "chat m": {}}
    }
    root = seen.named("answer").attributes
    assert stages_of(seen.named("answer")) == {
        "prompt": S // 10, "retrieval": 6 * S // 10, "decode": S, "tool": 3 * S // 10,
        "unattributed": 4 * S // 10,
    }  # fmt: skip
    assert root[semconv.E2E_NS] == 24 * S // 10
    assert root[semconv.FIRST_TOKEN_NS] == 14 * S // 10
    assert (root[semconv.SOURCE], root[semconv.STATUS]) == ("app", "ok")
    call = seen.named("chat m").attributes
    assert (call[semconv.ITEMS], call[semconv.FIRST_ITEM_NS]) == (3, 4 * S // 10)
    assert call[semconv.ITL_NS] == f"{S // 2},{S // 2}"
    found = seen.named("retrieval docs").attributes
    assert (found[semconv.DOCUMENT_COUNT], found[semconv.GEN_AI_REQUEST_TOP_K]) == (2, 2.0)
    assert json.loads(found[semconv.GEN_AI_RETRIEVAL_DOCUMENTS]) == [{"id": "a", "score": 0.9}, {"id": "b"}]
    assert "CANARY" not in "".join(s.to_json() for s in seen.spans)


def plain(x: int) -> int:
    """Doubles."""
    return 2 * x


class Thing:
    """One of each kind of method."""

    @tracer.tool
    def method(self, x: int) -> int:
        return 2 * x

    @classmethod
    def made(cls, x: int) -> int:
        return 2 * x

    made = tracer.tool(made)

    @tracer.tool
    @staticmethod
    def static(x: int) -> int:
        return 2 * x

    def __call__(self, x: int) -> int:
        return 2 * x


@pytest.mark.parametrize(
    "call",
    [tracer.tool(plain), Thing().method, Thing.made, Thing.static, tracer.tool(Thing()),
     tracer.tool(functools.partial(plain)), tracer.tool("named")(plain)],
)  # fmt: skip
def test_every_kind_of_callable_works_with_and_without_recording(call):
    """The result is the same; one span each when it is recorded, none when it is not."""
    assert active() is None
    assert call(4) == 8
    with recording() as seen:
        assert call(4) == 8
    assert len(seen.spans) == 1
    assert seen.spans[0].attributes[semconv.ARGUMENTS_SIZE] == len('{"x": 4}')


def test_names_docs_and_signatures_are_kept():
    """A framework that looks at a function sees the function."""
    made = tracer.retrieval(plain)
    assert (made.__name__, made.__doc__) == ("plain", "Doubles.")
    assert inspect.signature(made) == inspect.signature(plain)


async def test_coroutines_and_asynchronous_streams_are_recorded_to_their_end():
    """A task that awaits a tool and gives a stream."""

    @tracer.tool
    async def look() -> int:
        await asyncio.sleep(0)
        return 1

    @tracer.trace
    async def answer():
        await look()
        yield "a"
        yield "b"

    with recording() as seen:
        assert [item async for item in answer()] == ["a", "b"]
    assert spans_as_tree(seen.spans) == {"answer": {"execute_tool look": {}}}


def test_a_streams_span_is_not_current_while_its_consumer_works():
    """The consumer's own spans are its own; the generator's are the generator's (faults 50)."""

    @tracer.llm("outer")
    def outer():
        with tracer.stage("inside"):
            pass
        yield 1
        yield from inner()

    @tracer.llm("inner")
    def inner():
        yield 2

    with recording() as seen, tracer.trace("task"):
        for _ in outer():
            with tracer.stage("consumer"):
                pass
    assert spans_as_tree(seen.spans) == {
        "task": {"chat outer": {"inside": {}, "chat inner": {}}, "consumer": {}, "consumer#2": {}}
    }


@pytest.mark.parametrize("how", ["break", "close", "gc", "error", "exhaust", "throw"])
def test_a_streams_span_ends_once_however_the_stream_ends(how):
    """An early end is no error (faults 43); an exception is; garbage collection ends it too (40)."""

    @tracer.llm("m")
    def model():
        yield 1
        if how == "error":
            raise ValueError("CANARY")
        yield 2

    with recording() as seen:
        stream = model()
        next(stream)
        if how == "close":
            stream.close()
            stream.close()
        elif how == "throw":
            with pytest.raises(KeyError):
                stream.throw(KeyError("x"))
        elif how in ("error", "exhaust"):
            try:
                list(stream)
            except ValueError:
                pass
        del stream
        gc.collect()
    [span] = seen.spans
    expected = {"error": "ValueError", "throw": "KeyError"}.get(how)
    assert span.attributes.get(semconv.ERROR_TYPE) == expected
    assert span.status.is_ok is (expected is None)
    assert "CANARY" not in span.to_json()


async def test_a_cancelled_task_ends_its_span_without_an_error_status():
    """Cancelling is told apart from failing."""

    @tracer.trace
    async def answer() -> None:
        await asyncio.Event().wait()

    with recording() as seen:
        task = asyncio.create_task(answer())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    [span] = seen.spans
    assert span.attributes[semconv.STATUS] == "cancelled"
    assert span.status.is_ok


async def test_an_asynchronous_stream_closed_in_another_task_ends_its_span():
    """No token of another context is ever given back (faults 47)."""

    @tracer.llm("m")
    async def model():
        yield 1
        yield 2

    with recording() as seen:
        stream = model()
        assert await anext(stream) == 1
        await asyncio.create_task(stream.aclose())
    assert len(seen.spans) == 1


def test_threads_keep_the_callers_span():
    """A pool of ours and a thread of its own; three tools below one task (faults 49)."""

    @tracer.tool
    def look() -> None:
        return

    with recording() as seen, tracer.trace("task"):
        with tracer.ThreadPoolExecutor(2) as pool:
            for one in [pool.submit(look), pool.submit(look)]:
                one.result()
        tracer.run_in_thread(look).join()
    assert {s.parent.span_id for s in seen.spans if s.parent} == {seen.named("task").context.span_id}
    assert seen.named("task").attributes[semconv.stage_count(Stage.TOOL)] == 3


def test_content_is_recorded_only_where_asked_redacted_and_cut_at_a_character():
    """Off by default; on, it goes through the hook and says what was cut."""

    @tracer.tool
    def shout(text: str) -> str:
        return text

    with recording() as seen:
        shout("CANARY")
    assert "CANARY" not in seen.spans[0].to_json()
    hide = lambda _name, text: text.replace("CANARY", "*")  # noqa: E731
    with recording(capture_content=True, redact=hide, content_limit=4) as seen:
        shout("CANARYéüöä")
    told = seen.spans[0].attributes
    assert told[semconv.GEN_AI_TOOL_RESULT] == "*éüö"
    assert told[semconv.CUT] == (
        f"{semconv.GEN_AI_TOOL_ARGUMENTS}=17", f"{semconv.GEN_AI_TOOL_RESULT}=5",
    )  # fmt: skip


class Odd:
    """Nothing can be had of it."""

    def __repr__(self) -> str:
        raise RuntimeError("no text of me")


VALUES = st.recursive(
    st.none() | st.integers() | st.text() | st.builds(Odd) | st.builds(object),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(VALUES)
def test_no_value_can_make_a_decorated_call_raise(value):
    """Arguments and results of any kind, with content captured."""
    same = tracer.tool(lambda x: x)
    found = tracer.retrieval(lambda query: [query])
    with recording(capture_content=True):
        assert same(value) is value
        assert found(value)[0] is value


def test_headers_carry_the_current_span():
    """``traceparent`` of the span that is current, and nothing outside one."""
    with recording() as seen, tracer.trace("task"):
        headers = tracer.inject({})
    trace_id = seen.named("task").context.trace_id
    assert headers["traceparent"].startswith(f"00-{trace_id:032x}-")
