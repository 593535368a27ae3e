"""Section G: keys are never recorded, and content is not where it was not asked for."""

from __future__ import annotations

import base64
import json
import logging
import time
from typing import NamedTuple

import aiohttp
import pytest
from opentelemetry import trace as otel

import tracer
from tests.support.otlp_peer import otlp_peer
from tests.support.plain_server import plain_server
from tests.support.programs import run
from tracer import semconv
from tracer.asgi import StagelensMiddleware
from tracer.clock import SystemClock
from tracer.sdk.processor import draft_of
from tracer.sdk.secrets import scrub, scrub_text
from tracer.testing import recording

BASIC = base64.b64encode(b"u:CANARY5").decode()
HEADERS = {
    "Authorization": "Bearer sk-CANARY1", "x-api-key": "CANARY2", "api-key": "CANARY3",
    "Cookie": "s=CANARY4", "Proxy-Authorization": f"Basic {BASIC}",
}  # fmt: skip
QUERY = "?api_key=CANARY6"


def clean(text: str) -> bool:
    return "CANARY" not in text and BASIC not in text


async def test_64_a_request_with_keys_leaves_none_in_its_span_and_they_are_passed_on(caplog):
    """Through the middleware with content on: the application still gets the real headers."""
    got: dict[bytes, bytes] = {}

    async def app(scope, receive, send):
        got.update(scope["headers"])
        body = b'{"error": "Incorrect API key provided: sk-CANARY1"}'
        await send({"type": "http.response.start", "status": 401, "headers": [(b"x-api-key", b"CANARY2")]})
        await send({"type": "http.response.body", "body": body, "more_body": False})

    with recording(SystemClock(), capture_content=True) as seen, caplog.at_level(logging.DEBUG, "stagelens"):
        async with plain_server(StagelensMiddleware(app)) as url, aiohttp.ClientSession() as client:
            async with client.get(url + "/v1" + QUERY, headers=HEADERS) as answer:
                assert answer.status == 401
    assert {got[name.lower().encode()].decode() for name in HEADERS} == set(HEADERS.values())
    [span] = seen.spans
    assert span.attributes[semconv.HTTP_RESPONSE_STATUS_CODE] == 401
    assert clean(span.to_json())
    assert all(clean(r.getMessage()) for r in caplog.records if r.name.startswith("stagelens"))


class Login(NamedTuple):
    """Fields have names, although it is a tuple."""

    api_key: str
    n: int


CALLS = [
    {"headers": HEADERS},
    {"headers": list(HEADERS.items())},
    {"request": {"deep": [{"headers": {k.lower(): v for k, v in HEADERS.items()}}]}},
    {"api_key": "CANARY2", "openai_api_key": "CANARY2", "password": "CANARY", "client_secret": "CANARY"},
    {"url": f"https://h/v1{QUERY}&k=1"},
    {"url": "postgres://u:CANARY5@db/x"},
    {"text": f"curl -H 'Authorization: Bearer sk-CANARY1' -H 'x-api-key: CANARY2' h{QUERY}"},
    {"text": "curl -H 'Cookie: s=CANARY4; t=CANARY4' h"},
    {"text": json.dumps({"headers": HEADERS, "api_key": "CANARY3"})},
    {"text": f"Proxy-Authorization: Basic {BASIC}"},
    {"text": "Client(api_key='CANARY3', authorization=\"Bearer CANARY1\")"},
    {"text": "Incorrect API key provided: sk-CANARY1."},
    {"raw": b"Authorization: Bearer sk-CANARY1"},
    {"url": "https://h/x?token=CANARY&a=1", "signed": "https://h/x?a=1&sig=CANARY", "map": "https://h?key=CANARY"},
    {"form": "api_key%3DCANARY2%26a", "body": "<apiKey>CANARY</apiKey>"},
    {"page": '<input name="password" value="CANARY">'},
    {"pwd": "CANARY", "basic_auth": ["u", "CANARY"], "Ocp-Apim-Subscription-Key": "CANARY"},
    {"pem": "-----BEGIN RSA PRIVATE KEY-----\nCANARY\n-----END RSA PRIVATE KEY-----"},
    {"text": "github_pat_CANARY1 and SHOUTED_API_KEY=CANARY"},
]


class Client:
    """An object whose text tells its key, as dataclasses' do."""

    def __repr__(self) -> str:
        return "Client(base='http://h', api_key='CANARY3')"


@pytest.mark.parametrize("call", [*CALLS, {"client": Client()}], ids=range(len(CALLS) + 1))
@pytest.mark.parametrize("decorator", [tracer.tool, tracer.retrieval, tracer.llm])
def test_64_arguments_and_results_with_keys_are_recorded_without_them(decorator, call):
    """Content is on: by the names of fields at any depth, and by the shapes that keys have."""

    @decorator
    def function(**given: object) -> object:
        return [given]

    @decorator
    def stream(**given: object):
        yield json.dumps(given, default=str)

    with recording(capture_content=True) as seen:
        function(**call)
        list(stream(**call))
    assert all(clean(s.to_json()) for s in seen.spans), seen.spans[0].to_json()


def test_64_a_tuple_with_named_fields_is_read_by_their_names():
    """Written as a list it would have lost them."""
    with recording(capture_content=True) as seen:
        tracer.tool("login")(lambda given: given)({"at": Login("CANARY", 1)})
    assert clean(seen.spans[0].to_json())


LONG = ["a" * 100_000, "authorization" * 8_000, 'api_key="' * 10_000, "sk-" * 30_000, "api_key={" * 10_000]


@pytest.mark.parametrize("text", LONG)
def test_64_a_long_text_without_a_space_is_looked_through_in_time(text):
    """A dump in hexadecimal, 100 KB: no second of the caller's, where it took an hour."""
    began = time.thread_time()
    scrub_text(text)
    assert time.thread_time() - began < 5


def test_64_what_is_no_key_stays():
    """Token counts, keyword arguments and words that only sound like keys."""
    kept = {
        "max_tokens": 5, "total_tokens": 7, "keywords": ["a"], "query": "how do tokens work", "n": None,
        "monkey": "see", "author": "me", "skill": "sk", "tokenizer": "bpe",
    }  # fmt: skip
    assert scrub(kept) == kept
    text = "a basic idea; the skeleton key; tokens: 5; risk-averse people; bearer of news"
    assert scrub_text(text) == text


def test_65_with_content_off_no_text_of_it_is_recorded_anywhere(caplog):
    """Errors, queries, streams and stages: attributes, events, status, links, name, logs, resource."""

    @tracer.tool
    def fails(text: str) -> None:
        raise ValueError(f"bad: {text}")

    @tracer.retrieval(data_source="docs")
    def search(query: str):
        return [{"id": "a", "score": 0.5, "text": query}]

    @tracer.llm("m")
    def model(prompt: str):
        yield prompt
        raise RuntimeError(f"upstream 400: {prompt}")

    @tracer.trace("task")
    def task(text: str) -> None:
        search(text)
        for _ in model(text):
            pass

    with recording() as seen, caplog.at_level(logging.DEBUG, "stagelens"):
        with pytest.raises(ValueError, match="CANARY"):
            fails("CANARY")
        with pytest.raises(RuntimeError, match="CANARY"):
            task("CANARY")
        with pytest.raises(KeyError), tracer.stage("part"):
            raise KeyError("CANARY")
    assert len(seen.spans) == 5
    for span in seen.spans:
        assert clean(span.to_json())
        assert not span.status.description
        assert span.events == ()
    kinds = {s.attributes[semconv.ERROR_TYPE] for s in seen.spans if not s.status.is_ok}
    assert kinds == {"ValueError", "RuntimeError", "KeyError"}
    assert caplog.text == ""


async def test_65_a_route_names_the_span_and_the_path_that_a_user_wrote_does_not():
    """/users/CANARY is GET /users/{name}; a path without a route is only its method."""
    from fastapi import FastAPI

    app = FastAPI()
    app.add_middleware(StagelensMiddleware)

    @app.get("/users/{name}")
    async def user(name: str) -> str:
        return name

    with recording(SystemClock()) as seen:
        async with plain_server(app) as url, aiohttp.ClientSession() as client:
            for path in ("/users/CANARY", "/nothing/CANARY?q=CANARY"):
                async with client.get(url + path):
                    pass
    assert [s.name for s in seen.spans] == ["GET /users/{name}", "GET"]
    assert all(clean(s.to_json()) for s in seen.spans)


def test_65_faults_of_our_own_are_told_without_what_the_application_works_with(caplog):
    """A redaction hook that fails with the text in its message: neither recorded nor logged."""

    def redact(_name: str, text: str) -> str:
        raise ValueError(f"cannot redact {text}")

    @tracer.tool
    def echo(text: str) -> str:
        return text

    with recording(capture_content=True, redact=redact) as seen, caplog.at_level(logging.DEBUG):
        from tracer.sdk.runtime import active

        active().raise_faults = False
        assert echo("CANARY") == "CANARY"
        assert active().failures > 0
    assert clean(seen.spans[0].to_json())
    assert "a span could not be recorded" in caplog.text
    assert clean(caplog.text)


FOREIGN = {
    "input.value": "CANARY", "output.value": "CANARY", "llm.input_messages.0.message.content": "CANARY",
    "gen_ai.prompt.0.content": "CANARY", "gen_ai.completion.0.content": "CANARY",
    "gen_ai.input.messages": "CANARY", "gen_ai.tool.call.arguments": "CANARY",
    "retrieval.documents.0.document.content": "CANARY", "traceloop.entity.input": "CANARY",
    "http.request.header.authorization": "Bearer CANARY", "http.url": f"https://h/{QUERY}",
    "db.statement": "select 'CANARY'", "llm.model_name": "m", "gen_ai.usage.input_tokens": 5,
}  # fmt: skip


@pytest.mark.parametrize("hide", [True, False])
def test_65_spans_of_other_instrumentations_are_sent_without_their_content(hide):
    """Their attributes, and the text of an exception in events and status; the kinds stay."""
    with recording(SystemClock()) as seen:
        foreign = _provider_of(seen).get_tracer("openinference.instrumentation.openai")
        with pytest.raises(ValueError, match="CANARY"):
            with foreign.start_as_current_span("call", attributes=FOREIGN):
                raise ValueError("CANARY")
    sent = draft_of(seen.named("call"), ours=False, hide=hide)
    assert sent.error
    assert sent.attributes["llm.model_name"] == "m"
    assert sent.attributes["gen_ai.usage.input_tokens"] == 5
    assert "http.request.header.authorization" not in sent.attributes
    [(name, _, told)] = sent.events
    assert (name, told["exception.type"]) == ("exception", "ValueError")
    assert clean(repr(sent)) is hide


def _provider_of(seen):
    from opentelemetry.sdk.trace import TracerProvider

    provider = TracerProvider()
    provider.add_span_processor(seen)
    return provider


def test_65_with_the_whole_sdk_nothing_of_it_goes_over_the_wire():
    """Configured as users do, with a foreign span around: the bytes that are sent hold no canary."""
    with otlp_peer() as peer:
        done = run(
            """
            from opentelemetry import trace as otel
            tracer.configure(endpoint=os.environ['AT'])

            @tracer.tool
            def fails(text):
                raise ValueError(f"bad: {text}")

            @tracer.trace("task")
            def task(text):
                with otel.get_tracer("other").start_as_current_span("theirs") as span:
                    span.set_attribute("input.value", text)
                    fails(text)

            try:
                task("CANARY")
            except ValueError:
                pass
            """,
            AT=peer.url,
        )
        assert sorted(peer.names()) == ["execute_tool fails", "task", "theirs"]
        assert b"CANARY" not in peer.raw()
        assert b"ValueError" in peer.raw()
    assert clean(done.stdout + done.stderr)


def test_the_current_span_of_no_test_is_left_over():
    """What these tests open they close."""
    assert not otel.get_current_span().get_span_context().is_valid
