"""OTLP/HTTP over a real socket: what is taken, what is refused, and what is said about it."""

from __future__ import annotations

import gzip
import json
import resource
import socket
import zlib
from collections.abc import Iterator

import pytest
from google.rpc.status_pb2 import Status

from tests.unit.collectors.live_receiver import LiveReceiver, live_receiver, own_database
from tests.unit.collectors.spans import fresh, json_request, json_span, one, rejected

LIMIT = 1 << 20


@pytest.fixture(scope="module")
def live(engine) -> Iterator[LiveReceiver]:
    """One receiver for all tests here; each uses a trace id of its own."""
    with own_database(engine) as store, live_receiver(store, max_body_bytes=LIMIT) as made:
        yield made


def test_protobuf_and_json_are_taken_and_answered_in_kind(live):
    """The response has the request's content type; success leaves partial_success unset."""
    trace = next(fresh)
    answer = live.post(one(trace))
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"] == "application/x-protobuf"
    answer = live.post_json(json_request(json_span(trace, 2)))
    assert (answer.status_code, answer.json()) == (200, {})
    assert answer.headers["content-type"] == "application/json"
    answer = live.post(
        json.dumps(json_request(json_span(trace, 3))).encode(),
        content_type="Application/JSON; charset=utf-8",
    )
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert [row["SpanName"] for row in live.spans(trace)] == ["span 1", "s", "s"]


@pytest.mark.parametrize("path", ["/v1/traces", "/v1/logs", "/v1/metrics"])
@pytest.mark.parametrize("kind", ["application/x-protobuf", "application/json"])
@pytest.mark.parametrize("encoding", ["", "gzip"])
def test_an_empty_request_is_a_success(live, path, kind, encoding):
    """Nothing to store is nothing wrong."""
    answer = live.post(b"", path, content_type=kind, content_encoding=encoding)
    assert (answer.status_code, answer.content) == (200, b"{}" if "json" in kind else b"")


@pytest.mark.parametrize("json_wanted", [False, True])
def test_gzip_and_deflate_are_taken_and_a_cut_body_is_told(live, json_wanted):
    """Compressed protobuf and JSON are stored; a truncated body is 400, not 500 (faults 71)."""
    trace = next(fresh)
    kind = "application/json" if json_wanted else "application/x-protobuf"

    def body(n: int) -> bytes:
        if not json_wanted:
            return one(trace, n).SerializeToString()
        return json.dumps(json_request(json_span(trace, n))).encode()

    halves = gzip.compress(body(3)[:20]) + gzip.compress(body(3)[20:])
    for encoding, packed in (("gzip", gzip.compress(body(1))), ("deflate", zlib.compress(body(2))),
                             ("GZIP", halves), ("identity", body(4))):  # fmt: skip
        answer = live.post(packed, content_type=kind, content_encoding=encoding)
        assert (answer.status_code, rejected(answer)) == (200, 0)
    assert [int(row["SpanId"], 16) for row in live.spans(trace)] == [1, 2, 3, 4]
    for cut in (gzip.compress(body(5))[:-9], b"\x1f\x8b", b"not gzip", gzip.compress(body(5)) + b"x"):
        answer = live.post(cut, content_type=kind, content_encoding="gzip")
        assert answer.status_code == 400
        assert b"gzip" in answer.content


@pytest.mark.parametrize(
    ("headers", "status"),
    [({"content_encoding": "br"}, 415), ({"content_encoding": "gzip, gzip"}, 415),
     ({"content_type": "text/plain"}, 415), ({"content_type": ""}, 415)],
)  # fmt: skip
def test_unknown_encodings_and_types_are_refused_with_the_known_ones(live, headers, status):
    """415 says what may be sent instead, in a google.rpc.Status."""
    answer = live.post(one(next(fresh)), **headers)
    assert answer.status_code == status
    assert "gzip" in Status.FromString(answer.content).message or "json" in answer.text


def test_a_bomb_is_stopped_at_the_limit(live):
    """A body of 200 kB that inflates to 200 MB is 413, and memory stays bounded (faults 71)."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    zeros = bytes(1 << 20)
    bomb = b"".join(packer.compress(zeros) for _ in range(200)) + packer.flush()
    assert len(bomb) <= LIMIT
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for kind in ("application/x-protobuf", "application/json"):
        answer = live.post(bomb, content_encoding="gzip", content_type=kind)
        assert answer.status_code == 413
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # KiB


def exchange(live: LiveReceiver, *parts: bytes) -> bytes:
    """Send raw bytes on a connection of its own; what came back until it was quiet."""
    with socket.create_connection(("127.0.0.1", live.port), 10) as sock:
        for part in parts:
            sock.sendall(part)
        return sock.recv(4096)


def test_a_length_over_the_limit_is_refused_before_the_body_comes(live):
    """Content-Length alone is enough for 413; nothing has to be sent."""
    head = (
        b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\n"
        b"Content-Length: %d\r\n\r\n" % (LIMIT + 1)
    )
    assert exchange(live, head).startswith(b"HTTP/1.1 413 ")


def test_a_chunked_body_over_the_limit_is_refused(live):
    """Without a length the bytes are counted as they come."""
    chunk = bytes(64 << 10)
    answer = live.client.post(
        "/v1/traces",
        content=(chunk for _ in range(LIMIT // len(chunk) + 1)),
        headers={"content-type": "application/x-protobuf"},
    )
    assert answer.status_code == 413
    assert live.post(one(next(fresh))).status_code == 200


def test_a_client_that_leaves_in_the_middle_leaves_nothing(live):
    """Half a body is neither stored nor counted, and the next request works."""
    before = live.settle()
    head = b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\n"
    with socket.create_connection(("127.0.0.1", live.port), 10) as sock:
        sock.sendall(head + b"Content-Length: 100\r\n\r\nhalf")
    assert live.settle() == before
    assert live.post(one(next(fresh))).status_code == 200


def test_other_paths_and_methods_are_told_the_right_ones(live):
    """404 names the paths, 405 the method, also in its Allow header."""
    answer = live.post_json({}, "/v1/other")
    assert (answer.status_code, answer.json()["code"]) == (404, 404)
    assert "/v1/traces" in answer.json()["message"]
    answer = live.client.get("/v1/traces")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert live.post(b"", "/v1/traces/").status_code == 200


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b"null", b'{"resourceSpans": 7}', b'{"resourceSpans": [7]}', b"\xff",
             b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"startTimeUnixNano": 1e400}]}]}]}x',
             b'{"resourceSpans": [{"scopeSpans": {}}]}', b"[" * 100_000, b'{"a":' * 100_000]
)  # fmt: skip
def test_json_that_is_no_request_is_400_with_a_reason(live, body):
    """Malformed data is the sender's fault: never 5xx, which would be sent again."""
    answer = live.post(body, content_type="application/json")
    assert answer.status_code == 400
    assert answer.json()["message"]


@pytest.mark.parametrize("body", [b"\xff", b"\x0a\x05abc", b"{}", b"\x0a" + b"\xff" * 10])
def test_bytes_that_are_no_protobuf_are_400(live, body):
    """A reason in a google.rpc.Status."""
    answer = live.post(body)
    assert answer.status_code == 400
    assert "protobuf" in Status.FromString(answer.content).message


def test_a_body_that_is_sent_again_is_answered_alike_and_stored_once(live):
    """A sender that gave up waiting sends the same bytes: no copy, no second count (faults 79)."""
    trace = next(fresh)
    body = one(trace).SerializeToString()
    before = live.settle()["spans"]["received"]
    answers = [live.post(body) for _ in range(4)]
    assert [a.status_code for a in answers] == [200] * 4
    assert len({a.content for a in answers}) == 1
    assert [row["SpanName"] for row in live.spans(trace)] == ["span 1"]
    assert live.settle()["spans"]["received"] == before + 1
