"""What decorating leaves as it was, and what a result may be."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import gc
import inspect
import pickle
import subprocess
import sys
import textwrap
import xmlrpc.client
from unittest.mock import MagicMock

import pytest

import tracer
from tracer import semconv
from tracer.clock import SystemClock
from tracer.testing import recording


@tracer.stage("numbers")
def numbers(n: int):
    """Counts."""
    yield from range(n)


@tracer.trace
async def letters():
    yield "a"


class Made:
    @tracer.stage("numbers")
    def numbers(self, n: int):
        yield from range(n)


def test_generator_functions_are_still_told_to_be():
    """pytest's fixtures, Gradio and LangChain ask; as functions and as methods."""
    assert inspect.isgeneratorfunction(numbers)
    assert inspect.isasyncgenfunction(letters)
    assert inspect.isgeneratorfunction(Made.numbers)
    assert inspect.isgeneratorfunction(Made().numbers)
    assert str(inspect.signature(Made().numbers)) == "(n: 'int')"
    assert (numbers.__name__, numbers.__doc__) == ("numbers", "Counts.")
    assert list(Made().numbers(3)) == list(numbers(3)) == [0, 1, 2]
    assert pickle.loads(pickle.dumps(numbers)) is numbers
    assert copy.deepcopy(numbers) is numbers


def test_a_decorated_fixture_of_pytest_gives_what_it_yields(tmp_path):
    """And is finished after the test."""
    (tmp_path / "test_it.py").write_text(textwrap.dedent("""
        import pytest, tracer
        over = []
        @pytest.fixture
        @tracer.stage("base")
        def base():
            yield 7
            over.append(1)
        def test_it(base): assert base == 7
        def test_over(): assert over == [1]
    """))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True, text=True, check=False, timeout=100, cwd=tmp_path,
        env={**__import__("os").environ, "PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip
    assert "2 passed" in done.stdout, done.stdout


def test_a_context_manager_of_a_decorated_generator_works():
    """The error is raised inside, and the span has it."""
    with recording() as seen:
        with contextlib.suppress(KeyError), contextlib.contextmanager(numbers)(1) as first:
            assert first == 0
            raise KeyError
    assert seen.named("numbers").attributes[semconv.ERROR_TYPE] == "KeyError"


def test_a_cached_function_keeps_its_cache():
    """``cache_info`` and ``cache_clear`` belong to its users."""
    cached = tracer.tool(functools.lru_cache(lambda x: x))
    assert cached(1) == cached(1) == 1
    assert cached.cache_info().hits == 1
    cached.cache_clear()
    assert cached.cache_info().hits == 0


@pytest.mark.parametrize("make", [MagicMock, lambda: xmlrpc.client.ServerProxy("http://127.0.0.1:9")])
def test_a_result_that_has_every_attribute_is_a_plain_one(make):
    """Mocks and remote proxies: one span, ended at once, and nothing is asked of them."""

    @tracer.tool("look")
    def look():
        return make()

    with recording() as seen:
        kept = look()
        assert len(seen.spans) == 1
    assert "body_iterator" not in vars(kept)


async def test_a_task_that_is_given_is_watched_to_its_end_and_stays_itself():
    """A function that starts one: the span's length is the task's, and its errors are its own."""

    async def work(what: str) -> int:
        await asyncio.sleep(0.05)
        if what == "fail":
            raise ValueError("CANARY")
        return 3

    @tracer.tool
    def start(what: str) -> asyncio.Task[int]:
        return asyncio.create_task(work(what), name=what)

    with recording(SystemClock()) as seen:
        good, bad, left = start("good"), start("fail"), start("left")
        left.cancel()
        assert (good.get_name(), await good) == ("good", 3)
        with pytest.raises(ValueError, match="CANARY"):
            await bad
        with contextlib.suppress(asyncio.CancelledError):
            await left
        await asyncio.sleep(0)
    assert sorted(s.attributes.get(semconv.ERROR_TYPE, "") for s in seen.spans) == ["", "", "ValueError"]
    worked = [s for s in seen.spans if semconv.RESULT_SIZE in s.attributes or not s.status.is_ok]
    assert [s.end_time - s.start_time >= 40_000_000 for s in worked] == [True, True]


async def test_an_error_nobody_asked_for_is_still_told_by_asyncio():
    """Watching a task does not count as having seen its error."""
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: told.append(what["message"]))

    async def fail() -> None:
        raise ValueError

    @tracer.tool
    def start() -> None:
        asyncio.create_task(fail())  # noqa: RUF006

    @tracer.tool
    def given() -> asyncio.Task[None]:
        return asyncio.create_task(fail())

    with recording():
        start()
        given()
        await asyncio.sleep(0.01)
    gc.collect()
    assert told == ["Task exception was never retrieved"] * 2


@pytest.mark.parametrize("given", [5, property(lambda _: 1), functools.partialmethod(print), [1]])
def test_what_cannot_be_decorated_is_refused_in_one_sentence(given):
    """At the decoration, and not as something else at the call."""
    for decorator in (tracer.tool, tracer.trace, tracer.retrieval, tracer.llm):
        with pytest.raises(TypeError, match="cannot be decorated: decorate a function"):
            decorator(given)


def test_a_stages_name_is_a_text():
    """A span with another name could not be sent."""
    with pytest.raises(TypeError, match="not int"):
        tracer.stage(5)  # type: ignore[arg-type]


def test_a_stream_is_not_copied_as_a_generator_is_not():
    """The copy's end would be the stream's."""
    with recording():
        stream = numbers(2)
        with pytest.raises(TypeError, match="cannot be copied"):
            copy.copy(stream)
        assert list(stream) == [0, 1]


class Cancelled(BaseException):
    """As trio has it."""


class Mine(asyncio.CancelledError):
    """An application's own kind."""


@pytest.mark.parametrize(
    ("problem", "status"),
    [(Cancelled(), "cancelled"), (Mine(), "cancelled"), (StopIteration(), "ok"), (SystemExit(0), "ok"),
     (SystemExit(2), "error"), (OSError(), "error")],
)  # fmt: skip
def test_cancelling_and_ending_are_told_apart_from_failing(problem, status):
    """Of asyncio, trio and gevent; an iterator's end is none of both."""

    @tracer.trace("task")
    def work():
        raise problem

    with recording() as seen:
        with pytest.raises(type(problem)):
            work()
    assert seen.named("task").attributes[semconv.STATUS] == status
    assert seen.named("task").status.is_ok is (status != "error")
