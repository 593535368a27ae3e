"""A collector inside this process, without ports: what `ingest` uses when none runs."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

from stagelens.errors import UserError

TRY_S = 60.0
WRITE_S = 3600.0
"""How long the store may take for what was taken in; the rest waits in the spool."""


class DirectCollector:
    """Opens the store and its spool; ``close`` writes what was taken.

    Raises (when made):
        StoreError: another process owns the store, or it cannot be opened.
    """

    def __init__(self, store_url: str, config_file: Path | None) -> None:
        from collectors.app import build_receiver
        from collectors.settings import GaugeSettings
        from collectors.store.client import open_store
        from collectors.store.migrate import migrate
        from collectors.store.url import StoreUrl
        from stagelens.paths import spool_folder
        from stagelens.settings import load_config
        from tracer.clock import SystemClock

        url = StoreUrl.parse(store_url)
        settings = load_config(config_file, {}).collect.model_copy(
            update={"gauges": GaugeSettings(gpu=False), "rollup_check_s": None}
        )
        self._store = open_store(url, settings.store)
        try:
            migrate(self._store)
            folder = settings.spool.folder or spool_folder(url)
            self._receiver = build_receiver(settings, self._store, SystemClock(), folder)
        except BaseException:
            self._store.close()
            raise
        self._runner = asyncio.Runner()
        self._runner.run(self._receiver.start())

    def send(self, path: str, kind: str, body: bytes) -> bytes:
        """The answer's body; a full spool is waited for."""
        for _ in range(int(TRY_S)):
            status, answer = self._runner.run(self._ask(path, kind, body))
            if status == 200:
                return answer
            if status != 503:
                raise UserError(f"a request was refused with {status}")
            self._runner.run(asyncio.sleep(1))
        raise UserError("the store does not take what was sent: see the log above")

    async def _ask(self, path: str, kind: str, body: bytes) -> tuple[int, bytes]:
        told: list[MutableMapping[str, Any]] = []
        headers = [(b"content-type", kind.encode()), (b"content-length", b"%d" % len(body))]

        async def receive() -> MutableMapping[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: MutableMapping[str, Any]) -> None:
            told.append(message)

        scope = {"type": "http", "method": "POST", "path": path, "headers": headers}
        await self._receiver.app(scope, receive, send)
        return told[0]["status"], b"".join(m.get("body", b"") for m in told[1:])

    def close(self) -> int:
        """How many items still wait in the spool; the next collector writes them."""
        try:
            self._runner.run(self._receiver.stop(WRITE_S))
            counts = self._receiver.counts().values()
            return sum(int(str(one["in_flight"])) for one in counts)
        finally:
            self._runner.close()
            self._store.close()
