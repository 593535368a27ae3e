"""A token before the figures: who is let in, and that it is never told again."""

from __future__ import annotations

import logging
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from dashboards.api import build_api
from dashboards.client import CollectorClient
from dashboards.errors import BadValueError, UnauthorizedError
from dashboards.filters import Filters
from dashboards.settings import ApiSettings, read_token
from tests.support.browser import served

TOKEN = "0123456789abcdef-token"


@pytest.fixture(scope="module")
def url(module_store):
    """The API with a token, over an empty store."""
    with served(build_api(module_store, None, token=TOKEN)) as at:
        yield at


def status(url: str, *headers: tuple[str, str]) -> int:
    request = urllib.request.Request(url)
    for name, value in headers:
        request.add_header(name, value)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code


@pytest.mark.parametrize("path", [
    "/api/v1/report", "/api/v1/openapi.json", "/api/v1/status", "/api/v1/traces/abab", "/api/v1/nothing",
    "/api/v1/report/", "/api//v1/report", "/API/v1/report", "/api/v1/health/../report", "/docs",
])  # fmt: skip
@pytest.mark.parametrize("given", [
    None, "Bearer", "Bearer ", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", TOKEN,
    "Bearer \xe9",
])  # fmt: skip
def test_nothing_is_told_without_the_token(url, path, given):
    """Whatever the path looks like and whatever was sent in its place."""
    headers = () if given is None else (("Authorization", given),)
    assert status(url + path, *headers) == 401


def test_with_the_token_the_api_answers_and_without_it_the_page_and_health_do(url):
    """The page has to be there to ask for it, and health says no figure."""
    assert status(f"{url}/api/v1/report", ("Authorization", f"Bearer {TOKEN}")) == 200
    assert status(f"{url}/api/v1/report", ("Authorization", f"bearer {TOKEN}")) == 200
    for path in ("/", "/web/app.js", "/web/plotly.min.js", "/api/v1/health"):
        assert status(url + path) == 200


def test_the_client_brings_it_and_says_what_is_missing(url, caplog):
    """One sentence without it; no log line and no error holds it."""
    caplog.set_level(logging.DEBUG)
    assert CollectorClient(url, token=TOKEN).report(Filters()).overall.counts.total == 0
    with pytest.raises(UnauthorizedError, match="STAGELENS_API_TOKEN") as caught:
        CollectorClient(url, token=TOKEN[::-1]).report(Filters())
    assert TOKEN[::-1] not in str(caught.value)
    assert TOKEN not in caplog.text


def test_the_client_sends_it_nowhere_else():
    """A server that redirects to another address does not get the token sent there."""
    seen: list[str | None] = []

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path == "/api/v1/status":
                self.send_response(302)
                self.send_header("location", "/elsewhere")
                self.end_headers()
                return
            seen.append(self.headers["authorization"])
            self.send_response(404)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Elsewhere)
    Thread(target=server.serve_forever, daemon=True).start()
    with pytest.raises(Exception, match="not the API"):
        CollectorClient(f"http://127.0.0.1:{server.server_port}", token=TOKEN).status()
    server.shutdown()
    server.server_close()
    assert seen == [None]


def test_the_token_comes_from_the_environment_before_the_file(tmp_path, monkeypatch):
    """Neither: none is asked for."""
    monkeypatch.delenv("STAGELENS_API_TOKEN", raising=False)
    assert read_token(ApiSettings()) is None
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    assert read_token(ApiSettings(token_file=file)) == TOKEN
    monkeypatch.setenv("STAGELENS_API_TOKEN", "another-token-of-the-environment")
    assert read_token(ApiSettings(token_file=file)) == "another-token-of-the-environment"


@pytest.mark.parametrize(
    "held", ["", "short", "with a space in the middle", "zwölf-zeichen-und-mehr"]
)
def test_a_token_that_cannot_be_one_is_refused_unquoted(tmp_path, monkeypatch, held):
    """Short, with spaces, not ASCII: the sentence says how to make one and not what was there."""
    monkeypatch.delenv("STAGELENS_API_TOKEN", raising=False)
    file = tmp_path / "token"
    file.write_text(held, encoding="utf-8")
    with pytest.raises(BadValueError, match="16 or more") as caught:
        read_token(ApiSettings(token_file=file))
    assert not held or held not in str(caught.value)
    with pytest.raises(BadValueError, match="cannot be read"):
        read_token(ApiSettings(token_file=tmp_path / "none"))
