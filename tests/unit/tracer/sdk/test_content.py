"""Sizes of arguments and results, and what is read of documents."""

from __future__ import annotations

import json
import tracemalloc
import uuid
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracer
from tracer import semconv
from tracer.clock import Anchor, SystemClock
from tracer.sdk.arguments import Arguments
from tracer.sdk.runtime import Runtime, active, install
from tracer.sdk.sizes import EXACT, MOST_PARTS, size_of, text_of
from tracer.testing import recording

SCALARS = st.one_of(st.integers(), st.text(max_size=20), st.booleans(), st.floats(), st.none())


@given(st.dictionaries(st.one_of(st.text(max_size=8), st.integers()), SCALARS, max_size=4))
def test_a_size_is_the_length_of_the_text_however_it_was_found(values):
    """Small plain arguments are not encoded to be measured."""
    assert size_of(values) == len(text_of(values))


@given(st.lists(st.one_of(st.integers(), st.text(), st.booleans(), st.floats(), st.none()), max_size=3))
def test_a_tool_s_arguments_are_as_long_as_their_json(values):
    """Whether they are given by place or by name, and are plain or not; so are a method's."""

    def call(a=None, bb=None, c=None): ...

    def method(self, a=None, bb=None, c=None): ...

    named = dict(zip(("a", "bb", "c"), values, strict=False))
    expected = len(text_of(named))
    assert Arguments(call).size(tuple(values), {}) == expected
    assert Arguments(call).size((), named) == expected
    assert Arguments(method).size((object(), *values), {}) == expected


def test_a_long_value_is_measured_without_writing_it_out():
    """A hundred texts of a megabyte: their lengths are added up, which takes no copy of them."""
    long = ["x" * 1_000_000] * 100
    assert 100_000_000 <= size_of(long) <= 100_001_000
    assert size_of(["x" * (EXACT // 2)]) == EXACT // 2 + 4
    assert (size_of(b"x" * 10), size_of("é" * 10)) == (10, 10)


def test_what_has_too_many_parts_or_hides_them_has_no_size():
    """A million numbers, an array, a list that holds itself: none, and no time is spent on it."""
    itself: list[object] = []
    itself.append(itself)
    many = list(range(MOST_PARTS + 1))
    for value in (many, {"x": many}, np.zeros(3), {"x": np.zeros(3)}, itself):
        assert size_of(value) is None

    @tracer.tool
    def look(x):
        return x

    with recording() as seen:
        look(many)
    assert not {semconv.ARGUMENTS_SIZE, semconv.RESULT_SIZE} & set(seen.spans[0].attributes)


def documents_of(found: object) -> list[dict[str, object]]:
    with recording() as seen:
        tracer.retrieval(lambda _query: found)("q")
    told = seen.spans[0].attributes.get(semconv.GEN_AI_RETRIEVAL_DOCUMENTS, "[]")
    assert "NaN" not in told
    return json.loads(told)


def test_ids_and_scores_are_read_in_the_kinds_that_libraries_give():
    """numpy's numbers of FAISS and sentence-transformers, UUIDs, Elasticsearch's names, pairs."""
    one = uuid.UUID(int=7)
    assert documents_of([
        {"id": np.int64(3), "score": np.float32(0.5)},
        SimpleNamespace(id=one, score=1),
        {"_id": "e", "_score": 2.5},
        (np.int64(4), np.float32(0.25)),
        ({"id": "p"}, 0.75),
        ("a text is no id", 0.5),
    ]) == [
        {"id": 3, "score": 0.5}, {"id": str(one), "score": 1.0}, {"id": "e", "score": 2.5},
        {"id": 4, "score": 0.25}, {"id": "p", "score": 0.75}, {"score": 0.5},
    ]  # fmt: skip


def test_a_score_that_is_no_number_is_none():
    """NaN, infinity, a truth value, a text: not stored."""
    for wrong in (float("nan"), float("inf"), True, "high", None):
        assert documents_of([{"id": "a", "score": wrong}]) == [{"id": "a"}]


@pytest.mark.parametrize("wrong", [lambda *_: None, lambda *_: 5, lambda *_: 1 / 0])
def test_a_redaction_that_gives_no_text_hides_it_and_loses_no_span(wrong, caplog):
    """For arguments, queries, results and streams."""
    @tracer.tool
    def look(x: str) -> str:
        return x

    @tracer.trace
    def stream():
        yield "CANARY"

    with recording(capture_content=True) as seen:
        inner, clock = active(), SystemClock()
        counted = Runtime(inner.tracer, clock, Anchor.take(clock), True, wrong, 100, None, 0.0)
        before = install(counted)
        look("CANARY")
        list(stream())
        install(before)
    assert [s.name for s in seen.spans] == ["execute_tool look", "stream"]
    assert seen.spans[0].attributes[semconv.GEN_AI_TOOL_ARGUMENTS] == "[hidden]"
    assert counted.failures == 3
    assert "CANARY" not in caplog.text + "".join(s.to_json() for s in seen.spans)


@pytest.mark.parametrize("most", [10**400, True, "5", None])
def test_a_top_k_that_is_no_usual_number_is_left_out(most):
    """And loses no span."""
    with recording() as seen:
        tracer.retrieval(top_k=most)(lambda _query: [])("q")
    assert semconv.GEN_AI_REQUEST_TOP_K not in seen.spans[0].attributes


MAKES = [lambda text: text * 200, lambda text: [text] * 200, lambda text: {"t": [text] * 200}]


@pytest.mark.parametrize("make", MAKES)
def test_a_long_result_is_recorded_without_being_written_out(make):
    """200 MB with content on: the beginning, what it was cut from, and no copy of the rest."""
    result = make("x" * 1_000_000)
    tool = tracer.tool("look")(lambda: result)
    with recording(capture_content=True, content_limit=50) as seen:
        tracemalloc.start()
        tool()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    told = seen.spans[0].attributes
    assert len(told[semconv.GEN_AI_TOOL_RESULT]) == 50
    [cut] = told[semconv.CUT]
    assert int(cut.rpartition("=")[2]) >= 200_000_000
    assert peak < 5_000_000


def test_a_redaction_may_call_what_is_traced_itself():
    """Its spans are made; their content is not given to it again, and so on for ever."""

    @tracer.tool
    def known(name: str) -> str:
        return "*"

    @tracer.tool
    def look(x: str) -> str:
        return x

    hook = lambda _name, text: text.replace("CANARY", known("CANARY"))  # noqa: E731
    with recording(capture_content=True, redact=hook) as seen:
        look("CANARY")
    assert [span.name for span in seen.spans] == ["execute_tool known"] * 2 + ["execute_tool look"]
    assert seen.spans[2].attributes[semconv.GEN_AI_TOOL_RESULT] == "*"
    assert "CANARY" not in "".join(span.to_json() for span in seen.spans)
