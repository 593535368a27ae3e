"""OpenTelemetry's standard variables, where an argument was left out."""

from __future__ import annotations

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import trustme
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.unit.tracer.sdk.test_configure import run
from tests.unit.tracer.test_export import Peer
from tracer import semconv
from tracer.sdk import environment
from tracer.sdk.environment import METRICS, TRACES, export_settings

OTLP = "OTEL_EXPORTER_OTLP_"


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    import os

    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def peer():
    one = Peer()
    yield one
    one.server.shutdown()
    one.server.server_close()


def urls_of(endpoint: str | None = None) -> tuple[str, str]:
    made = export_settings(endpoint, None, None)
    return made.url(TRACES), made.url(METRICS)


BASE = "http://127.0.0.1:4318"
ENDPOINTS = [
    ({}, None, (BASE + TRACES, BASE + METRICS)),
    ({"ENDPOINT": "http://c:1/base/"}, None, ("http://c:1/base" + TRACES, "http://c:1/base" + METRICS)),
    ({"ENDPOINT": " http://c:1 "}, "http://d:2", ("http://d:2" + TRACES, "http://d:2" + METRICS)),
    ({"TRACES_ENDPOINT": "http://t:3/own"}, None, ("http://t:3/own", "")),
    ({"TRACES_ENDPOINT": "http://t:3/v1/traces"}, None, ("http://t:3" + TRACES, "http://t:3" + METRICS)),
    ({"TRACES_ENDPOINT": "http://t:3/own", "ENDPOINT": "http://c:1"}, None,
     ("http://t:3/own", "http://c:1" + METRICS)),
    ({"TRACES_ENDPOINT": "http://t:3/own", "METRICS_ENDPOINT": "http://m:4/m"}, None,
     ("http://t:3/own", "http://m:4/m")),
    ({"TRACES_ENDPOINT": "http://t:3/own"}, "http://d:2", ("http://d:2" + TRACES, "http://d:2" + METRICS)),
    ({}, "http://d:2/v1/traces/", ("http://d:2" + TRACES, "http://d:2" + METRICS)),
    ({}, "http://[::1]:2", ("http://[::1]:2" + TRACES, "http://[::1]:2" + METRICS)),
]  # fmt: skip


@pytest.mark.parametrize(("variables", "endpoint", "urls"), ENDPOINTS)
def test_where_spans_and_counts_go(variables, endpoint, urls, monkeypatch):
    """The traces' own URL is used as it is, the general one is a base; an argument goes first."""
    for name, value in variables.items():
        monkeypatch.setenv(OTLP + name, value)
    assert urls_of(endpoint) == urls


@pytest.mark.parametrize("wrong", ["c:4318", "grpc://c:4317", "http://", "http://c:port", "http://u:CANARY@c:port"])
def test_an_endpoint_that_is_no_url_is_one_sentence_without_its_key(wrong):
    """By argument or variable."""
    with pytest.raises(ValueError, match="is not a URL: give http://HOST:PORT") as told:
        export_settings(wrong, None, None)
    assert "CANARY" not in str(told.value)


def test_a_user_in_the_endpoint_is_a_header_and_in_no_text(monkeypatch):
    """What is logged of an endpoint holds no password and no query."""
    made = export_settings("http://user:CAN%2FARY@c:1/x?api_key=CANARY", None, None)
    assert made.url(TRACES) == "http://c:1/x" + TRACES
    assert made.headers == {"authorization": "Basic dXNlcjpDQU4vQVJZ"}
    assert "CANARY" not in repr(made.endpoint)
    made = export_settings("http://user:a@c:1", {"Authorization": "Bearer b"}, None)
    assert made.headers == {"Authorization": "Bearer b"}


def test_headers_compression_and_limits_are_read(monkeypatch):
    """The traces' own before the general one; milliseconds and seconds as the SDK has them."""
    for name, value in {
        OTLP + "HEADERS": "a=1", OTLP + "TRACES_HEADERS": "authorization=Bearer%20x,b=2",
        OTLP + "COMPRESSION": "none", OTLP + "TRACES_COMPRESSION": "gzip",
        OTLP + "TIMEOUT": "7", "OTEL_BSP_MAX_QUEUE_SIZE": "99", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "9",
        "OTEL_BSP_SCHEDULE_DELAY": "1500", "OTEL_BSP_EXPORT_TIMEOUT": "2000",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    made = export_settings(None, None, None)
    assert made.headers == {"authorization": "Bearer x", "b": "2"}
    assert (made.compressed, made.post_timeout_s, made.queue_items, made.batch_items) == (True, 7.0, 99, 9)
    assert (made.interval_s, made.give_up_s) == (1.5, 2.0)
    made = export_settings(None, {"c": "3"}, 5)
    assert (made.headers, made.queue_items) == ({"c": "3"}, 5)


@pytest.mark.parametrize("wrong", ["x", "-1", "0", "nan", "inf"])
def test_a_number_that_cannot_be_meant_is_told_and_left_out(wrong, monkeypatch, caplog):
    """As the standard has it: the usual value is used."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", wrong)
    assert export_settings(None, None, None).interval_s == 0.5
    assert "OTEL_BSP_SCHEDULE_DELAY" in caplog.text


def test_what_is_not_spoken_here_is_told(monkeypatch, caplog):
    """gRPC, other compressions, other exporters: the log says what is used."""
    monkeypatch.setenv(OTLP + "PROTOCOL", "grpc")
    monkeypatch.setenv(OTLP + "COMPRESSION", "brotli")
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "zipkin")
    assert not export_settings(None, None, None).compressed
    assert environment.exporters() == {"otlp"}
    for told in ("PROTOCOL: 'grpc'", "COMPRESSION: 'brotli'", "OTEL_TRACES_EXPORTER: 'zipkin'"):
        assert told in caplog.text


@pytest.mark.parametrize(
    ("told", "means"),
    [("", {"otlp"}), ("none", set()), ("console", {"console"}), ("otlp, console", {"otlp", "console"})],
)
def test_the_exporters_that_are_asked_for(told, means, monkeypatch):
    """None of them where it says ``none``."""
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", told)
    assert environment.exporters() == means


@pytest.mark.parametrize("value", [None, "a\nb", "\u65e5", b"x"])
def test_a_header_that_cannot_be_sent_is_one_sentence_without_its_value(value):
    """At set-up, and not on the sending thread."""
    with pytest.raises(ValueError, match="'x-token' cannot be sent"):
        export_settings(None, {"x-token": value}, None)


def test_certificates_are_read_and_one_that_cannot_be_is_an_error(monkeypatch, tmp_path):
    """Nothing would arrive with the wrong one."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("me@test").private_key_and_cert_chain_pem.write_to_path(tmp_path / "own.pem")
    monkeypatch.setenv(OTLP + "CERTIFICATE", str(tmp_path / "ca.pem"))
    monkeypatch.setenv(OTLP + "CLIENT_CERTIFICATE", str(tmp_path / "own.pem"))
    made = export_settings("https://c:1", None, None)
    assert made.tls is not None
    assert len(made.tls.get_ca_certs()) == 1
    monkeypatch.setenv(OTLP + "TRACES_CERTIFICATE", str(tmp_path / "none.pem"))
    with pytest.raises(ValueError, match="CERTIFICATE"):
        export_settings("https://c:1", None, None)


def test_a_span_goes_as_the_variables_say():
    """A URL of its own, gzip and headers, over a real socket; the base takes nothing."""
    heard = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            heard.append((self.path, self.headers["X-A"], gzip.decompress(body)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    at = f"http://127.0.0.1:{server.server_address[1]}/in"
    run("tracer.configure()\nlook()", OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=at,
        OTEL_EXPORTER_OTLP_COMPRESSION="gzip", OTEL_EXPORTER_OTLP_HEADERS="x-a=1",
        OTEL_SERVICE_NAME="shop", OTEL_RESOURCE_ATTRIBUTES="team=a")  # fmt: skip
    server.shutdown()
    server.server_close()
    [(path, header, body)] = heard
    [sent] = ExportTraceServiceRequest.FromString(body).resource_spans
    told = {one.key: one.value.string_value for one in sent.resource.attributes}
    assert (path, header) == ("/in", "1")
    assert (told["service.name"], told["team"]) == ("shop", "a")


def test_none_records_nothing_of_our_own_and_leaves_a_joined_sdk_its_spans(peer):
    """``OTEL_TRACES_EXPORTER=none``: nobody is sent to; the provider that was there still sees them."""
    out = run("tracer.configure()\nlook()\nprint(active())", OTEL_TRACES_EXPORTER="none",
              OTEL_EXPORTER_OTLP_ENDPOINT=peer.url)  # fmt: skip
    assert out.strip() == "None"
    out = run(
        """
        from opentelemetry import trace as otel
        from opentelemetry.sdk.trace import TracerProvider, SpanProcessor
        class Theirs(SpanProcessor):
            def on_end(self, span): print("theirs", span.attributes["gen_ai.tool.name"])
        provider = TracerProvider()
        provider.add_span_processor(Theirs())
        otel.set_tracer_provider(provider)
        tracer.configure()
        look()
        print(tracer.flush(1), tracer.shutdown())
        """,
        OTEL_TRACES_EXPORTER="none", OTEL_EXPORTER_OTLP_ENDPOINT=peer.url,
    )  # fmt: skip
    assert out.split("\n")[:2] == ["theirs look", "True True"]
    assert peer.spans() == []


def test_console_shows_whole_spans_beside_what_is_sent(peer):
    """``otlp,console``: both have the tool's attributes."""
    out = run("tracer.configure()\nlook()\nprint(tracer.flush(5))", OTEL_TRACES_EXPORTER="otlp,console",
              OTEL_EXPORTER_OTLP_ENDPOINT=peer.url)  # fmt: skip
    assert '"gen_ai.tool.name": "look"' in out
    assert f'"{semconv.RESULT_SIZE}": 1' in out
    assert peer.spans() == ["execute_tool look"]


@pytest.mark.parametrize(
    ("sampler", "argument", "sent"),
    [("always_off", "", 0), ("traceidratio", "0", 0), ("parentbased_traceidratio", "1.0", 1)],
)
def test_the_samplers_variables_decide(sampler, argument, sent, peer):
    """As the SDK reads them."""
    run("tracer.configure(endpoint=os.environ['AT'])\nlook()", AT=peer.url,
        OTEL_TRACES_SAMPLER=sampler, OTEL_TRACES_SAMPLER_ARG=argument)  # fmt: skip
    assert len(peer.spans()) == sent


@pytest.mark.parametrize(
    ("variable", "value"),
    [("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "3"), ("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "3"),
     ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "2")],
)  # fmt: skip
def test_the_limits_of_attributes_hold_for_ours_too(variable, value, peer):
    """Also for those that are joined to a span only when it is sent."""
    run("tracer.configure(endpoint=os.environ['AT'])\nlook()", AT=peer.url, **{variable: value})
    [body] = peer.bodies["/v1/traces"]
    [sent] = ExportTraceServiceRequest.FromString(body).resource_spans
    attributes = sent.scope_spans[0].spans[0].attributes
    if "COUNT" in variable:
        assert len(attributes) == 2
    else:
        assert {len(a.value.string_value) for a in attributes if a.value.string_value} == {3}


def test_the_propagators_variable_decides_what_goes_out():
    """``OTEL_PROPAGATORS=baggage``: no ``traceparent``."""
    code = (
        "tracer.configure(endpoint='http://127.0.0.1:9', flush_s=0.1)\n"
        "with tracer.stage('a'):\n    print(tracer.inject({}))"
    )
    assert run(code, OTEL_PROPAGATORS="baggage").strip() == "{}"
    assert "traceparent" in run(code)
