"""A WSGI application under gunicorn: set up once in the master, recorded by each worker.

    gunicorn --preload --workers 2 examples.sdk.gunicorn_app:app

``configure`` may be called before the fork: each worker has a sender and ids of its own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator

import tracer

tracer.configure(service_name="gunicorn-app")
Start = Callable[[str, list[tuple[str, str]]], object]


@tracer.retrieval(data_source="pages")
def search(query: str) -> list[dict[str, str]]:
    time.sleep(0.01)
    return [{"id": "a", "text": query}]


@tracer.trace("answer")
def answer(query: str) -> Iterator[bytes]:
    for hit in search(query):
        yield f"{hit['id']} from worker {os.getpid()}\n".encode()


def app(environ: dict[str, str], start: Start) -> Iterable[bytes]:
    start("200 OK", [("Content-Type", "text/plain")])
    return answer(environ.get("QUERY_STRING", ""))
