"""Values that raise, are huge, or hold keys: no value costs its span, and none holds its caller up."""

from __future__ import annotations

import collections
import gc
import json
import weakref
from dataclasses import dataclass

import pytest
from opentelemetry import trace as otel
from opentelemetry.sdk.trace import TracerProvider

import tracer
from tracer import semconv
from tracer.sdk.processor import draft_of
from tracer.sdk.secrets import HIDDEN, scrub, scrub_text, without_secrets
from tracer.sdk.sizes import MOST_PARTS, size_of
from tracer.testing import recording


class _Raises:
    @property
    def __class__(self):
        raise RuntimeError("lazy")


class _Kind(type):
    def __eq__(cls, other):
        raise RuntimeError("compared")

    __hash__ = None


class _Unhashable(metaclass=_Kind):
    pass


ODD = [
    lambda: 10**5000, lambda: -(10**5000), lambda: [10**5000], _Raises, lambda: [_Raises()],
    _Unhashable, lambda: {(1, 2): "x"},
]  # fmt: skip


@pytest.mark.parametrize("make", ODD)
@pytest.mark.parametrize("kind", [tracer.tool, tracer.trace, tracer.retrieval, tracer.llm])
@pytest.mark.parametrize("content", [False, True])
def test_no_argument_or_result_costs_the_span(make, kind, content):
    """Huge numbers, and classes that raise when they are looked at."""
    value = make()
    with recording(capture_content=content) as seen:
        assert kind(lambda given: given)(value) is value
        assert otel.get_current_span() is otel.INVALID_SPAN
    assert len(seen.spans) == 1


def test_a_document_s_id_and_score_may_be_numbers_that_nothing_holds():
    """They are left out; the other document stays."""
    with recording() as seen:
        tracer.retrieval(lambda: [{"id": 10**5000, "score": 10**400}, {"id": "b", "score": 1}])()
    told = seen.spans[0].attributes[semconv.GEN_AI_RETRIEVAL_DOCUMENTS]
    assert json.loads(told) == [{"id": "b", "score": 1.0}]


def test_ids_of_documents_hold_no_keys():
    """Nor do they where content is off."""
    ids = ["https://u:CANARY1@h/d?api_key=CANARY2", "sk-CANARYabcdef", "plain", "two\nlines"]
    with recording() as seen:
        tracer.retrieval(lambda: [{"id": one, "score": 1} for one in ids])()
    told = seen.spans[0].attributes[semconv.GEN_AI_RETRIEVAL_DOCUMENTS]
    assert "CANARY" not in told
    assert [one["id"] for one in json.loads(told)][2:] == ids[2:]


def test_lists_of_another_instrumentation_hold_no_keys():
    """As its texts do."""
    told = without_secrets({"urls": ("https://u:CANARY@h/", "ok")})
    assert told == {"urls": [f"https://{HIDDEN}@h/", "ok"]}


def test_names_of_another_instrumentation_s_spans_and_events_hold_no_keys():
    """Ours are the program's own words."""
    provider = TracerProvider()
    span = provider.get_tracer("another").start_span("GET https://u:CANARY@h/")
    span.add_event("api_key=CANARY")
    span.end()
    draft = draft_of(span, ours=False, hide=True)
    assert "CANARY" not in draft.name + draft.events[0][0]


def test_decorated_functions_are_not_kept_alive():
    """Closures go with what holds them."""

    class Big:
        pass

    def made(held):
        return tracer.tool(lambda n: (held, n) is None)

    held = [Big() for _ in range(10)]
    seen = [weakref.ref(one) for one in held]
    with recording():
        for one in held:
            made(one)(1)
    del held, one
    gc.collect()
    assert not any(one() for one in seen)


def test_a_search_s_default_is_its_top_k():
    """Where the call gave none."""
    with recording() as seen:
        search = tracer.retrieval("docs")(lambda query, k=5: [query, k][:0])
        search("q")
        search("q", 7)
    assert [s.attributes[semconv.GEN_AI_REQUEST_TOP_K] for s in seen.spans] == [5.0, 7.0]


@dataclass
class _Rows:
    rows: list


MANY = list(range(MOST_PARTS + 1))
BIG = [collections.deque(MANY), _Rows(MANY), dict.fromkeys(MANY).keys(), dict.fromkeys(map(str, MANY), 1)]


@pytest.mark.parametrize("value", BIG, ids=map(str, range(len(BIG))))
def test_what_has_many_parts_is_not_written_out_whatever_its_kind(value):
    """It has no size, and its content is what it begins with or its kind."""
    assert size_of(value) is None
    with recording(capture_content=True, content_limit=50) as seen:
        tracer.tool(lambda: value)()
    assert len(seen.spans[0].attributes[semconv.GEN_AI_TOOL_RESULT]) <= 50
    assert seen.spans[0].attributes[semconv.CUT]


def test_bare_names_of_keys_are_found_in_texts_and_at_any_depth():
    """In JSON, in a repr, and below what is looked through."""
    deep: object = {"token": "CANARY"}
    for _ in range(12):
        deep = [deep]
    texts = ['{"token": "CANARY"}', "K(token='CANARY', n=1)", "pwd=CANARY"]
    texts.append(json.dumps(json.dumps({"key": "CANARY"})))
    assert "CANARY" not in str([scrub(deep), *map(scrub_text, texts)])
    assert scrub_text("the key: a token") == "the key: a token"
    assert "n=1" in scrub_text(texts[1])


def test_sizes_of_arguments_are_those_of_the_parameters_alone():
    """Unhashable callables, ``cls`` as a second name, and methods whose object has another name."""

    @dataclass
    class Callable:
        n: int = 1

        def __call__(self, text):
            return 1

    class Owner:
        @tracer.tool
        def look(this, text):  # noqa: N805
            return 1

    with recording() as seen:
        tracer.tool(Callable())("x" * 100)
        tracer.tool(lambda text, cls: (text, cls))("a", "b" * 100)
        Owner().look("x" * 100)
    sizes = [s.attributes[semconv.ARGUMENTS_SIZE] for s in seen.spans]
    assert sizes == [len(json.dumps(told)) for told in (
        {"text": "x" * 100}, {"text": "a", "cls": "b" * 100}, {"text": "x" * 100})]  # fmt: skip
    assert size_of({(1, 2): "x" * 1000}) > 1000


def test_an_outcome_outlives_its_reason_and_refuses_what_no_number_holds():
    """A reason that was cut says so; one whose redaction failed is hidden."""
    with recording(content_limit=10) as seen:
        tracer.outcome("1" * 32, success=True, reason="x" * 50)
        with pytest.raises(ValueError, match="finite"):
            tracer.outcome("1" * 32, success=True, score=10**400)
    assert list(seen.spans[0].attributes[semconv.CUT]) == [f"{semconv.OUTCOME_REASON}=50"]
    with recording(redact=lambda _n, _t: 1 / 0) as seen:
        assert tracer.outcome("1" * 32, success=False, reason="x")
    assert seen.spans[0].attributes[semconv.OUTCOME_REASON] == HIDDEN
