"""What the API says of itself, of parameters given twice or too often, and to HEAD."""

from __future__ import annotations

import http.client
import json
from urllib.parse import urlencode, urlsplit

import pytest

from dashboards.api import build_api
from dashboards.filters import MOST_VALUES
from dashboards.routes.parameters import REPEATABLE
from tests.support.browser import S, served
from tests.support.clock import FakeClock
from tests.unit.dashboards.conftest import NOW_UNIX_NS

TOKEN = "0123456789abcdef-token"
ID = "ab" * 16


@pytest.fixture(scope="module")
def filled(module_store):
    """One request with a trace."""
    module_store.requests({"TraceId": ID, "SpanId": "r", "decode": 2 * S, "OutputTokens": 3})
    module_store.spans({"TraceId": ID, "SpanId": "r", "duration": 2 * S})
    return module_store


@pytest.fixture(scope="module")
def url(filled):
    with served(build_api(filled, None, FakeClock(unix_ns=NOW_UNIX_NS))) as where:
        yield where


def answer(url, path, method="GET", **headers):
    """Status, headers by lower-case name, and body."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=10)
    connection.request(method, path, headers=headers)
    reply = connection.getresponse()
    found = reply.status, {k.lower(): v for k, v in reply.getheaders()}, reply.read()
    connection.close()
    return found


def refused(url, path):
    """The sentence of a 400."""
    status, _, body = answer(url, path)
    assert status == 400, body
    told = json.loads(body)
    assert told["error"] == "bad_value"
    return told["detail"]


@pytest.mark.parametrize("path", [
    "report?since=1h&since=2h", "summary?until=1h&until=now", "requests?limit=1&limit=2",
    "requests?sort=e2e&sort=ttft", "series?measure=e2e&measure=e2e", "facets?warm=only&warm=exclude",
    "goodput?ttft=1s&ttft=2s", "compare?a=1&a=2&b=3", "report?exact=true&exact=false",
    "records?run=a&run=b", f"traces/{ID}?x=1&x=2",
])  # fmt: skip
def test_a_parameter_given_twice_is_refused_and_not_halved(url, path):
    """The name, how often, the rule, and which may be repeated: also where both values are one."""
    told = refused(url, f"/api/v1/{path}")
    name = path.partition("?")[2].partition("=")[0]
    assert told.startswith(f"parameter {name!r} is given 2 times and can be given once: keep one")
    assert "only by, change, model, route, status, tag may be repeated" in told


def test_what_may_be_repeated_is_read_whole(url):
    """Each of two models, tags, and names of by; what-if takes two changes."""
    path = "/api/v1/report?model=m&model=x&tag=a=1&tag=b=2&by=model&by=tag:a&since=2h"
    found = json.loads(answer(url, path)[2])
    assert found["filters"]["model"] == ["m", "x"]
    assert found["filters"]["tags"] == {"a": "1", "b": "2"}
    assert found["by"] == ["model", "tag:a"]
    path = "/api/v1/whatif?since=2h&" + urlencode([("change", "decode=-20%"), ("change", "queue=+1ms")])
    assert json.loads(answer(url, path)[2])["changes"] == ["decode=-20%", "queue=+1ms"]
    assert REPEATABLE == ("by", "change", "model", "route", "status", "tag")


@pytest.mark.parametrize("name", ["tag", "model", "route", "status"])
def test_more_values_of_a_filter_than_the_limit_are_refused(url, name):
    """One more than the limit names it; the limit itself is answered, for tags too."""

    def path(n):
        values = (("ok" if name == "status" else f"t{i}=v") for i in range(n))
        return f"/api/v1/report?since=2h&{urlencode([(name, one) for one in values])}"

    told = refused(url, path(MOST_VALUES + 1))
    assert told.startswith(f"{name} is given 101 times: at most 100 at once; ask in several questions")
    assert f"{name} is given 2,000 times" in refused(url, path(2000))
    assert answer(url, path(MOST_VALUES))[0] == 200


@pytest.mark.parametrize("path", [
    "/", "/web/app.js", "/web/nothing.js", "/api/v1/report?since=2h", "/api/v1/health",
    f"/api/v1/traces/{ID}", "/api/v1/traces/ffff", "/api/v1/report?since=soon", "/api/v1/openapi.json",
    "/api/v1/nothing",
])  # fmt: skip
def test_head_is_get_without_the_body(url, path):
    """The same status and headers, whatever is answered."""
    status, headers, body = answer(url, path)
    again, same, empty = answer(url, path, "HEAD")
    assert (again, empty) == (status, b"")
    for one in (headers, same):
        one.pop("date", None)
    assert same == headers
    assert int(same["content-length"]) == len(body)


def test_head_asks_for_the_token_too(filled):
    """A HEAD goes no way around it."""
    with served(build_api(filled, None, token=TOKEN)) as url:
        assert answer(url, "/api/v1/report", "HEAD")[0] == 401
        assert answer(url, "/api/v1/report", "HEAD", authorization=f"Bearer {TOKEN}")[0] == 200


def operations(document):
    return {path: item["get"] for path, item in document["paths"].items()}


def test_the_document_lists_the_answers_that_there_are(url):
    """400 and 503 everywhere, 404 and 409 of one trace, no 422, each error of one model."""
    document = json.loads(answer(url, "/api/v1/openapi.json")[2])
    found = operations(document)
    assert len(found) > 15
    for path, one in found.items():
        told = {"200", "400", "503", "default"} | ({"404", "409"} if "{trace_id}" in path else set())
        assert set(one["responses"]) == told, path
        for code in told - {"200"}:
            schema = one["responses"][code]["content"]["application/json"]["schema"]
            assert schema == {"$ref": "#/components/schemas/Problem"}
    assert set(document["components"]["schemas"]["Problem"]["required"]) == {"error", "detail"}
    assert not {"HTTPValidationError", "ValidationError"} & set(document["components"]["schemas"])
    assert document["components"]["securitySchemes"] == {"token": {"type": "http", "scheme": "bearer"}}
    assert document["security"] == [{}, {"token": []}]


def test_the_document_says_where_a_token_is_needed(filled):
    """401 and the scheme everywhere but for health."""
    with served(build_api(filled, None, token=TOKEN)) as url:
        body = answer(url, "/api/v1/openapi.json", authorization=f"Bearer {TOKEN}")[2]
        document = json.loads(body)
        assert document["security"] == [{"token": []}]
        for path, one in operations(document).items():
            held = path != "/api/v1/health"
            assert ("401" in one["responses"]) is held
            assert (one.get("security") == []) is not held
            assert answer(url, path.replace("{trace_id}", ID))[0] == (401 if held else 200)


def test_a_fault_of_ours_is_an_error_of_the_same_form(filled, monkeypatch):
    """What nobody foresaw: 500 with the sentence, and nothing of the inside."""

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("inside")

    monkeypatch.setattr("dashboards.source.status", broken)
    with served(build_api(filled, None)) as url:
        status, headers, body = answer(url, "/api/v1/status")
    assert (status, headers["content-type"]) == (500, "application/json")
    assert json.loads(body)["error"] == "failed"
    assert b"inside" not in body


def test_an_open_api_answers_by_address_and_by_names_that_are_no_sites(filled):
    hosts = ["127.0.0.1:8090", "localhost", "[::1]:8090", "[fe80::1]", "collector:8090", "a.localhost",
             "LLM.Example.com.:80", "192.168.1.5"]  # fmt: skip
    with served(build_api(filled, None, hosts=("llm.example.com",))) as url:
        for host in hosts:
            assert answer(url, "/api/v1/status", Host=host)[0] == 200, host


def test_a_page_of_another_site_that_took_this_address_reads_nothing(filled):
    """DNS rebinding: the browser takes evil.com for its own site, and it answers with 127.0.0.1."""
    hosts = ["evil.com", "evil.com:8090", "127.0.0.1.evil.com", "x.llm.example.com", "[::1].evil.com",
             "a.b@c"]  # fmt: skip
    with served(build_api(filled, None, hosts=("llm.example.com",))) as url:
        for path in ("/", "/api/v1/status", "/api/v1/health", "/documents/v1?collection=c"):
            for host in hosts:
                status, headers, body = answer(url, path, Host=host)
                assert (status, json.loads(body)["error"]) == (403, "unknown_host"), host
                assert headers["content-type"] == "application/json"
