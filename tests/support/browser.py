"""A real Chromium over a real server, for tests of what a page shows."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import threading
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import uvicorn

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync"]  # fmt: skip
SIZES = {"wide": {"width": 1280, "height": 900}, "narrow": {"width": 420, "height": 900}}
S = 1_000_000_000


@contextlib.contextmanager
def served(app: Any) -> Iterator[str]:
    """The address of ``app`` on a free port, until the end."""
    sock = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off", ws="none"))
    thread = threading.Thread(target=server.run, args=([sock],))
    thread.start()
    try:
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
        sock.close()


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        one = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield one
        one.close()


@contextlib.contextmanager
def clean_tab(browser: Any, **context: Any) -> Iterator[Any]:
    """A page whose console stays free of errors, or the test fails: the policy was not broken."""
    made = browser.new_context(viewport=SIZES["wide"], **{"timezone_id": "Europe/Rome", **context})
    one = made.new_page()
    problems: list[str] = []
    one.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
    one.on("pageerror", lambda e: problems.append(str(e)))
    yield one
    made.close()
    expected = ("400 (Bad Request)", "401 (Unauthorized)", "404 (Not Found)")
    assert [p for p in problems if not any(text in p for text in expected)] == []


def shown(tab: Any, url: str, **query: str) -> None:
    """Open a view and wait until all of it is there."""
    tab.goto(f"{url}/?{urlencode(query)}" if query else url)
    tab.wait_for_selector("main:not([aria-busy])")


def asked(url: str, path: str, **query: str) -> Any:
    with urllib.request.urlopen(f"{url}/api/v1{path}?{urlencode(query)}") as answer:
        return json.load(answer)


def seconds(ns: float) -> str:
    """As the page writes times below a minute."""
    if ns >= S:
        return f"{ns / 1e9:.2f} s"
    if ns >= 1e6:
        return f"{ns / 1e6:.1f} ms"
    return f"{ns:.0f} ns" if 1 <= ns < 1000 else f"{ns / 1e3:.0f} µs"


def interval(low: int | None, high: int | None) -> str:
    """As the page writes an interval: the unit once where both bounds have the same."""
    first, last = ("?" if ns is None else seconds(ns) for ns in (low, high))
    same = first.partition(" ")[2] == last.partition(" ")[2]
    told = f"{first.partition(' ')[0] if same else first} – {last}"
    return told.replace(" ", "\u00a0").replace("–\u00a0", "– ")
