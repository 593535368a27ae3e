"""The receiver on a real socket, writing to the real embedded store."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import httpx
import uvicorn
from google.protobuf.message import Message

from collectors.app import Receiver, build_receiver
from collectors.receive.access import Tokens
from collectors.receive.grpc_server import OtlpGrpc
from collectors.settings import CollectorSettings
from collectors.store.client import Store
from collectors.store.migrate import migrate
from tests.support.clock import FakeClock
from tracer.clock import Clock

NOW = 1_767_268_800_000_000_000  # 2026-01-01T12:00:00Z
SECOND = 10**9
DAY = 86_400 * SECOND
PROTOBUF = {"content-type": "application/x-protobuf"}
JSON = {"content-type": "application/json"}


@dataclass
class LiveReceiver:
    """``url`` takes OTLP/HTTP; ``rows`` waits until what was taken is written."""

    url: str
    port: int
    receiver: Receiver
    store: Store
    client: httpx.Client
    grpc: str = ""

    def post(self, body: bytes | Message, path: str = "/v1/traces", **headers: str) -> httpx.Response:
        """Send ``body``, protobuf unless ``content_type`` says something else."""
        content = body.SerializeToString() if isinstance(body, Message) else body
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.post(path, content=content, headers={**PROTOBUF, **named})

    def post_json(self, tree: object, path: str = "/v1/traces") -> httpx.Response:
        return self.client.post(path, json=tree, headers=JSON)

    def settle(self, within_s: float = 20) -> dict[str, dict[str, object]]:
        """The counts, once nothing is in flight."""
        ends = time.monotonic() + within_s
        while any(c["in_flight"] for c in self.receiver.counts().values()):
            assert time.monotonic() < ends, self.receiver.counts()
            time.sleep(0.005)
        return self.receiver.counts()

    def rows(self, sql: str) -> list[dict[str, object]]:
        """``sql`` with ``{db}`` set, after everything is written."""
        self.settle()
        return self.store.query(sql.replace("{db}", self.store.database), {})

    def spans(self, trace: int) -> list[dict[str, object]]:
        """The stored spans of one trace, by span id."""
        return self.rows(
            "SELECT *, toUnixTimestamp64Nano(Timestamp) AS StartNs FROM {db}.otel_traces "
            f"WHERE TraceId = '{trace:032x}' ORDER BY SpanId"
        )


@contextmanager
def own_database(engine: Store) -> Iterator[Store]:
    """A database with the whole schema in the one embedded engine, gone afterwards."""
    name = f"live{uuid.uuid4().hex[:12]}"
    engine.command(f"CREATE DATABASE {name}")
    made = Store(engine._client, replace(engine.url, database=name), engine.settings, None)
    migrate(made)
    yield made
    engine.command(f"DROP DATABASE {name}")


@contextmanager
def live_receiver(
    to: Store,
    tokens: Tokens | None = None,
    verify: object = True,
    clock: Clock | None = None,
    **settings: object,
) -> Iterator[LiveReceiver]:
    """Serve a receiver on free ports of loopback; its clock stands at ``NOW`` unless given."""
    made = CollectorSettings(**{"batch_interval_s": 0.02, **settings})  # type: ignore[arg-type]
    receiver = build_receiver(made, to, clock or FakeClock(unix_ns=NOW), tokens=tokens)
    server = uvicorn.Server(
        uvicorn.Config(
            receiver.app, port=0, lifespan="off", log_config=None, access_log=False,
            **made.tls.uvicorn_options(),
        )
    )  # fmt: skip
    ports: list[int] = []

    async def run() -> None:
        grpc = OtlpGrpc(receiver.app, made.max_body_bytes, tokens, made.tls)
        ports.append(grpc.listen("127.0.0.1", 0))
        await receiver.start()
        await grpc.start()
        await server.serve()
        await grpc.stop(1)
        await receiver.stop(5)

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.005)
        port = server.servers[0].sockets[0].getsockname()[1]
        url = f"{'https' if made.tls.certfile else 'http'}://127.0.0.1:{port}"
        with httpx.Client(base_url=url, timeout=30, verify=verify) as client:  # type: ignore[arg-type]
            yield LiveReceiver(url, port, receiver, to, client, f"127.0.0.1:{ports[0]}")
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()
