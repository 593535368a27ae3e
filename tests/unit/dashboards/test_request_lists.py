"""Lists of requests, and what the store holds."""

from __future__ import annotations

import io

import pytest

from dashboards.errors import BadValueError, UnavailableError
from dashboards.filters import Filters
from dashboards.queries.base import QueryLimits, run
from dashboards.queries.requests import requests, slowest
from dashboards.queries.status import check_store, status
from dashboards.source import StoreSource
from dashboards.terminal.console import make_console
from dashboards.terminal.report import render_report
from dashboards.terminal.requests import render_requests
from tests.support.clock import FakeClock

CLOCK = FakeClock()
BASE = 1_767_268_800_000_000_000


def three(store):
    store.requests(
        {"start": 0, "queue": 9, "decode": 1, "FirstTokenNs": 4, "Model": "a"},
        {"start": 5, "decode": 30, "Model": "b", "HttpStatus": 0, "Status": "cancelled"},
        {"start": 9, "decode": 20, "FirstTokenNs": 8, "Model": "a"},
    )


@pytest.mark.parametrize(
    ("sort", "e2e"),
    [("start", [20, 30, 10]), ("end", [30, 20, 10]), ("e2e", [30, 20, 10]), ("ttft", [20, 10, 30])],
)
def test_the_list_is_sorted_as_asked(store, sort, e2e):
    """Latest or slowest first; without a first token last."""
    three(store)
    found = requests(store, Filters(), sort=sort)
    assert [one.e2e_ns for one in found.requests] == e2e


def test_the_list_is_cut_and_tells_the_total(store):
    """`limit` cuts what is shown, not what is counted."""
    three(store)
    found = slowest(store, Filters(model=("a",)), limit=1)
    assert (found.total, found.limit, len(found.requests)) == (2, 1, 1)
    assert found.requests[0].e2e_ns == 20


def test_a_line_tells_the_longest_stage(store):
    """What held the request longest is named."""
    three(store)
    last = requests(store, Filters()).requests[-1]
    assert (last.longest_stage, last.longest_stage_ns, last.start_unix_ns) == ("queue", 9, BASE)
    assert requests(store, Filters()).requests[1].http_status is None


def test_a_request_that_ran_no_stage_has_no_longest_one(store):
    """Refused before any of it: neither "prompt" nor 0, in the answer, a list, and a report's groups."""
    store.requests({"Status": "error"})
    found = requests(store, Filters())
    assert (found.requests[0].longest_stage, found.requests[0].longest_stage_ns) == (None, None)
    file = io.StringIO()
    render_requests(found, make_console(file))
    assert "prompt" not in file.getvalue()
    render_report(StoreSource(store, CLOCK).report(Filters(), ["model"]), make_console(file))
    assert "prompt -" not in file.getvalue()


def test_bad_sorts_and_limits_are_told():
    """Neither reaches the store."""
    with pytest.raises(BadValueError, match="sort 'x; DROP' is not known: it is one of start, e2"):
        requests(None, Filters(), sort="x; DROP")
    for limit in (0, -1, 1001):
        with pytest.raises(BadValueError, match="give 1 to 1000"):
            requests(None, Filters(), limit=limit)


def test_status_counts_what_is_stored(store):
    """Rows, first and last request, beside the collector's own counts."""
    assert status(store, now_unix_ns=1).first_request_unix_ns is None
    three(store)
    counts = {"spans": {"received": 3, "written": 2, "refused": {}, "in_flight": 1}}
    found = status(store, now_unix_ns=1, counts=counts)
    assert (found.requests, found.spans, found.engine_steps) == (3, 0, 0)
    assert (found.first_request_unix_ns, found.last_request_unix_ns) == (BASE, BASE + 9)
    assert found.collector["spans"].in_flight == 1


def test_a_query_that_takes_too_long_says_what_to_do(store):
    """The limit is the server's own, and its error becomes a sentence."""
    with pytest.raises(UnavailableError, match="did not answer within 1 s: choose fewer requests"):
        run(store, "SELECT sleepEachRow(1) FROM numbers(3)", {}, QueryLimits(max_execution_s=1))


def test_an_answer_with_too_many_rows_is_refused_whole(store):
    """No answer is cut in silence."""
    with pytest.raises(UnavailableError, match="more than 10 rows"):
        run(store, "SELECT number FROM numbers(100)", {}, QueryLimits(max_result_rows=10))


def test_other_errors_of_the_store_are_one_sentence_without_its_own_words(store, caplog):
    """The code is told, ClickHouse's text goes to the log alone."""
    with pytest.raises(UnavailableError, match="ClickHouse code 47") as caught:
        run(store, "SELECT nothing_of_that_name", {}, QueryLimits())
    assert "DB::Exception" not in str(caught.value)
    assert "nothing_of_that_name" not in str(caught.value)
    assert "nothing_of_that_name" in caplog.text
    check_store(store)


def test_an_operation_that_no_request_has_is_refused_with_those_there_are(store):
    """A misspelt operation is no empty report; a known or stored one is answered."""
    store.requests({"decode": 1, "Operation": "rerank"})
    source = StoreSource(store, FakeClock(unix_ns=BASE))
    for asked in (source.report, source.requests):
        with pytest.raises(BadValueError, match=r"operation 'chta' is not known.*'rerank'"):
            asked(Filters(operation="chta"))
    assert source.requests(Filters(operation="rerank")).total == 1
    assert source.requests(Filters(operation="embeddings")).total == 0
