"""Documents in a database of their own, served as the collector serves them."""

from __future__ import annotations

import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import uvicorn
from fastapi import FastAPI

from collectors.documents.http import add_documents
from collectors.documents.table import DocumentTable
from collectors.store.client import Store
from collectors.store.migrate import migrate
from dashboards.access import TokenGate
from tests.conftest import FOREVER
from tracer.clock import SystemClock


@contextmanager
def fresh_table(engine: Store) -> Iterator[DocumentTable]:
    """An empty documents table in a database of its own."""
    name = f"d{uuid.uuid4().hex[:12]}"
    engine.command(f"CREATE DATABASE {name}")
    store = Store(engine._client, replace(engine.url, database=name), FOREVER, None)
    migrate(store)
    yield DocumentTable(store, SystemClock())
    engine.command(f"DROP DATABASE {name}")


@contextmanager
def served(table: DocumentTable, token: str | None = None) -> Iterator[str]:
    """The URL of an API over ``table``, which asks for ``token``, if any."""
    app = FastAPI()
    if token is not None:
        app.add_middleware(TokenGate, token=token)
    add_documents(app, table)
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
