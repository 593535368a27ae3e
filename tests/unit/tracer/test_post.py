"""One POST: what is taken, what is refused, and where it never goes."""

from __future__ import annotations

import gzip
import ssl
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import trustme

from tracer.post import Poster, Verdict


class Host:
    """Answers each request as told and keeps what it was asked."""

    def __init__(self, code: int = 200, headers: dict[str, str] | None = None, body: bytes = b"") -> None:
        self.asked: list[tuple[str, dict[str, str], bytes]] = []
        host = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                told = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                host.asked.append((f"{self.command} {self.path}", dict(self.headers), told))
                self.send_response(code)
                for name, value in (headers or {}).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST  # noqa: N815

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/v1/traces"


@contextmanager
def host(*args, tls: ssl.SSLContext | None = None, **kwargs):
    one = Host(*args, **kwargs)
    if tls is not None:
        one.server.socket = tls.wrap_socket(one.server.socket, server_side=True)
    threading.Thread(target=one.server.serve_forever, daemon=True).start()
    try:
        yield one
    finally:
        one.server.shutdown()
        one.server.server_close()


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirect_is_a_refusal_and_no_key_goes_to_another_host(code):
    """Followed, a POST would become a GET: answered 200, and the spans gone."""
    with host() as other, host(code, {"Location": other.url}) as one:
        reply = Poster({"authorization": "Bearer CANARY"}).post(one.url, b"spans", 5)
    assert (reply.verdict, reply.detail) == (Verdict.REFUSED, f"HTTP {code}")
    assert other.asked == []


def test_a_page_of_html_is_no_receipt():
    """A web application that answers 200 to anything has not taken the spans."""
    with host(200, {"Content-Type": "text/html; charset=utf-8"}, b"<html>") as one:
        reply = Poster({}).post(one.url, b"spans", 5)
    assert reply.verdict is Verdict.REFUSED
    assert "no OTLP receiver" in reply.detail


def test_a_loopback_address_is_not_asked_through_a_proxy(monkeypatch):
    """``http_proxy`` of a company's network would refuse it; another host does go through it."""
    with host() as proxy, host() as one:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        poster = Poster({})
        assert poster.post(one.url, b"spans", 5).verdict is Verdict.TAKEN
        assert poster.post("http://collector.invalid/v1/traces", b"far", 5).verdict is Verdict.TAKEN
    assert [what for what, _, _ in one.asked] == ["POST /v1/traces"]
    assert [what for what, _, _ in proxy.asked] == ["POST http://collector.invalid/v1/traces"]


def test_a_compressed_body_says_so():
    """gzip, and the receiver is told."""
    with host() as one:
        assert Poster({}, compressed=True).post(one.url, b"spans" * 100, 5).verdict is Verdict.TAKEN
    [(_, headers, body)] = one.asked
    assert headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(body) == b"spans" * 100


def test_tls_is_checked_against_the_given_authority_and_shows_our_own_certificate():
    """Without the authority it is not sent; with it, and with the client's certificate, it is."""
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(server)
    server.verify_mode = ssl.CERT_REQUIRED
    ours = ssl.create_default_context()
    authority.configure_trust(ours)
    authority.issue_cert("client@test").configure_cert(ours)
    with host(tls=server) as one:
        url = one.url.replace("http:", "https:")
        assert Poster({}).post(url, b"spans", 5).verdict is Verdict.RETRY
        assert Poster({}, ours).post(url, b"spans", 5).verdict is Verdict.TAKEN
    assert [body for _, _, body in one.asked] == [b"spans"]


def test_what_cannot_be_sent_at_all_is_refused_and_does_not_raise():
    """The sending thread would end with it, and all later spans would wait for ever."""
    assert Poster({"x": None}).post("http://127.0.0.1:9", b"", 1).verdict is Verdict.REFUSED  # type: ignore[dict-item]
