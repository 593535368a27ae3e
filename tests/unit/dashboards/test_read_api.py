"""The HTTP API and its client, over a real socket."""

from __future__ import annotations

import socket
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import uvicorn

from dashboards import api
from dashboards.api import build_api
from dashboards.client import CollectorClient
from dashboards.errors import (
    AmbiguousError,
    BadValueError,
    NotStoredError,
    UnavailableError,
)
from dashboards.filters import Filters, parse_filters
from dashboards.models.goodput import Limits
from dashboards.models.report import Report
from dashboards.prices import Price, Prices
from dashboards.queries.base import QueryLimits
from dashboards.source import StoreSource
from tests.support.clock import FakeClock

BASE = 1_767_268_800_000_000_000
ID = "ab" * 16
COUNTS = {"spans": {"received": 9, "written": 6, "refused": {"bad_id": 2}, "in_flight": 1}}
CLOCK = FakeClock(unix_ns=BASE + 3600 * 10**9)


class Running:
    """A uvicorn server in a thread, on a free port of loopback."""

    def __init__(self, app):
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        config = uvicorn.Config(app, log_level="critical", lifespan="off", ws="none")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.should_exit = True
        self._thread.join(10)
        self._socket.close()

    def get(self, path):
        """Status, content type and body of an answer, whatever its status."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=10) as reply:
                return reply.status, reply.headers["content-type"], reply.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers["content-type"], error.read().decode()


@pytest.fixture(scope="module")
def filled(module_store):
    """Two requests and two traces."""
    module_store.requests(
        {"TraceId": ID, "SpanId": "r", "decode": 30, "Model": "a b&c", "Tags": {"t": "x=y"}},
        {"start": 5, "decode": 50, "Model": "b", "Warm": True},
    )
    module_store.spans({"TraceId": ID, "SpanId": "r", "SpanName": "root", "duration": 30})
    module_store.spans({"TraceId": ID[:8] + "cd" * 12, "SpanId": "s", "duration": 30})
    return module_store


@pytest.fixture(scope="module")
def served(filled):
    """The API over them."""
    with Running(build_api(filled, lambda: COUNTS, clock=CLOCK)) as running:
        yield running


def test_the_client_gets_what_the_store_answers(served, filled):
    """Over HTTP and in process the same question has the same answer, to the last field."""
    here, there = StoreSource(filled, CLOCK, lambda: COUNTS), CollectorClient(served.url)
    filters = parse_filters(
        now_unix_ns=CLOCK.unix_ns(),
        since="2h",
        model=["a b&c", "b"],
        warm="exclude",
        tags=["t=x=y"],
    )
    assert there.report(filters, ["model", "tag:t"]) == here.report(filters, ["model", "tag:t"])
    assert there.report(filters).overall.counts.total == 1
    assert there.trace(ID) == here.trace(ID)
    assert there.requests(Filters(), sort="e2e", limit=1) == here.requests(
        Filters(), sort="e2e", limit=1
    )
    assert there.status() == here.status()
    assert there.health().status == "ok"


def test_errors_keep_their_kind_and_sentence_over_http(served, filled):
    """A mistake is told in the same words whichever way the question went."""
    here, there = StoreSource(filled, CLOCK), CollectorClient(served.url)
    for question, kind in (
        (lambda source: source.trace("ffff"), NotStoredError),
        (lambda source: source.trace("abab"), AmbiguousError),
        (lambda source: source.trace("../../etc"), BadValueError),
        (lambda source: source.report(Filters(), ["modle"]), BadValueError),
        (lambda source: source.requests(Filters(), limit=0), BadValueError),
    ):
        texts = []
        for source in (here, there):
            with pytest.raises(kind) as caught:
                question(source)
            texts.append(str(caught.value))
        assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("path", "code", "words"),
    [
        ("/api/v1/report?since=soon", 400, "since 'soon' is not a time"),
        ("/api/v1/report?by=model,modle", 400, "by 'modle' is not a dimension"),
        ("/api/v1/report?warm=yes", 400, "warm 'yes' is not known"),
        ("/api/v1/report?sinse=1h", 400, "parameter 'sinse' is not known here"),
        ("/api/v1/requests?limit=many", 400, "parameter 'limit' cannot be used"),
        ("/api/v1/requests?limit=100000", 400, "give 1 to 1000"),
        ("/api/v1/traces/zz", 400, "is not one"),
        ("/api/v1/traces/ffff?x=1", 400, "parameter 'x' is not known here"),
        ("/api/v1/traces/ffff", 404, "no trace 'ffff' is stored"),
        ("/api/v1/nothing", 404, '"error":"not_found"'),
        ("/api/v1/traces/abab", 409, "begins several traces"),
    ],
)
def test_a_bad_question_is_answered_with_a_sentence(served, path, code, words):
    """No parameter is passed over, and each error is JSON with one sentence."""
    got, kind, body = served.get(path)
    assert got == code
    assert kind == "application/json"
    assert words in body
    assert "Traceback" not in body


def test_the_answer_is_the_models_own_json(served):
    """The document is the same as `--format json` prints, described by OpenAPI."""
    code, kind, body = served.get("/api/v1/report?by=model&by=warm&since=2h")
    assert (code, kind) == (200, "application/json")
    found = Report.model_validate_json(body)
    assert found.model_dump_json() == body
    assert found.by == ("model", "warm")
    assert found.made_at_unix_ns == CLOCK.unix_ns()
    assert found.losses.collector["spans"].refused == {"bad_id": 2}
    assert '"/api/v1/report"' in served.get("/api/v1/openapi.json")[2]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_nothing_can_be_changed(served, method):
    """The API only reads."""
    request = urllib.request.Request(f"{served.url}/api/v1/report", method=method, data=b"")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=10)
    assert caught.value.code == 405
    caught.value.close()


def test_a_store_that_is_gone_is_told(store):
    """Health and questions answer 503 with a sentence when the store does not answer."""
    store.database = "nothing_here"
    with Running(build_api(store, None)) as running:
        code, _, body = running.get("/api/v1/report")
        assert code == 503
        assert "start a collector on this store once" in body
        with pytest.raises(UnavailableError, match="start a collector on this store once"):
            CollectorClient(running.url).report(Filters())


def test_limits_reach_the_store(store):
    """The API passes its limits on to every query."""
    store.requests({}, {}, {})
    with Running(build_api(store, None, limits=QueryLimits(max_result_rows=2))) as running:
        assert "more than 2 rows" in running.get("/api/v1/requests")[2]


class HeldStore:
    """A store that answers only when it is let go."""

    database = "d"

    def __init__(self):
        self.asked = threading.Event()
        self.let_go = threading.Event()

    def query(self, sql, _params):
        if "SELECT 1" not in sql:
            self.asked.set()
            assert self.let_go.wait(10)
        return [{"requests": 0, "spans": 0, "steps": 0, "first": 0, "last": 0}]


def test_a_slow_question_does_not_hold_up_the_others(monkeypatch):
    """Handlers run beside the event loop; beyond so many at once a question is turned away."""
    monkeypatch.setattr(api, "MOST_AT_ONCE", 1)
    monkeypatch.setattr(api, "LONGEST_WAIT_S", 0.0)
    held = HeldStore()
    with Running(build_api(held, None)) as running:
        answers = []
        first = threading.Thread(target=lambda: answers.append(running.get("/api/v1/status")))
        first.start()
        assert held.asked.wait(10)
        assert running.get("/api/v1/health")[0] == 200
        code, _, body = running.get("/api/v1/status")
        assert code == 503
        assert "too many questions" in body
        held.let_go.set()
        first.join(10)
        assert answers[0][0] == 200


class Stranger(BaseHTTPRequestHandler):
    """Another server, which answers 200 with a page, or FastAPI's 404."""

    def do_GET(self):
        page = b"<html>hi</html>" if "report" in self.path else b'{"detail":"Not Found"}'
        self.send_response(200 if "report" in self.path else 404)
        self.send_header("content-length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_):
        """Say nothing."""


def test_another_server_is_not_taken_for_a_collector():
    """An address that is not the API is told, with the port to try."""
    server = HTTPServer(("127.0.0.1", 0), Stranger)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        client = CollectorClient(f"http://127.0.0.1:{server.server_port}/")
        for question in (lambda: client.report(Filters()), client.status):
            with pytest.raises(UnavailableError, match="is not the API of a Stagelens collector"):
                question()
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()


def test_a_question_too_long_for_a_request_is_told_before_it_is_sent():
    """A price table of a thousand models: the sentence, and not that the collector is another."""
    table = Prices(models={f"model-{n}": Price(input_per_million=1) for n in range(2000)})
    with pytest.raises(BadValueError, match="a long price table in the collector's own settings"):
        CollectorClient("http://127.0.0.1:9").goodput(Filters(), Limits(e2e_ns=1), [], table)


def test_nobody_there_is_one_sentence(monkeypatch):
    """A refused connection says what to start; a web proxy of the machine is not asked."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(UnavailableError) as caught:
        CollectorClient(f"http://127.0.0.1:{port}").status()
    assert f"no collector answers at http://127.0.0.1:{port}" in str(caught.value)
    assert "stagelens collect" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_collector_that_hangs_is_given_up():
    """No answer within the time is told with the time."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = CollectorClient(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.1)
        with pytest.raises(UnavailableError, match=r"did not answer within 0\.1 s"):
            client.status()


@pytest.mark.parametrize(
    "url", ["", "localhost:8090", "ftp://x", "http://", "http://x:99999", "file:///etc/passwd"]
)
def test_a_wrong_address_is_told(url):
    """Only http and https addresses with a host are taken."""
    with pytest.raises(BadValueError, match="write it as http://HOST:PORT"):
        CollectorClient(url)
