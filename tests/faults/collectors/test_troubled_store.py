"""Stores that are slow, busy, lose their replies; clocks that jump; senders that repeat themselves."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
import uvicorn

from collectors.app import Receiver
from collectors.counts import Counts
from collectors.normalise.normaliser import Normaliser
from collectors.normalise.settings import NormaliseSettings
from collectors.normalise.tables import Tables
from collectors.receive.http import OtlpHttp
from collectors.settings import CollectorSettings
from collectors.spool.spool import Spool
from collectors.write.spooled import SpooledWriter
from tests.support.clock import FakeClock
from tests.support.otlp import request, span
from tests.unit.collectors.scripted_store import BUSY, LOST, OK, ScriptedStore, until

DAY_NS = 86_400 * 10**9
PROTOBUF = {"content-type": "application/x-protobuf"}
SEED = int(os.environ.get("STAGELENS_TEST_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)


class Slow(ScriptedStore):
    """Takes a while for each insert."""

    def insert(self, table, columns, rows, token):
        time.sleep(0.05)
        super().insert(table, columns, rows, token)


@contextmanager
def served(store: ScriptedStore, folder: Path, clock: FakeClock) -> Iterator[tuple[httpx.Client, Receiver]]:
    """The receiver over a spool, on a real socket, before a store that does as it is told."""
    options = CollectorSettings(batch_interval_s=0.01)
    spool = Spool(folder / "spool", 1 << 20, "interval")
    counts = Counts()
    writer = SpooledWriter(store, options, counts, clock, spool, first_pause_s=0.002)
    idle = Normaliser(Tables(SimpleNamespace(database="none")), clock, NormaliseSettings(enabled=False))
    receiver = Receiver(OtlpHttp(options, writer, counts, clock), writer, counts, idle)
    server = uvicorn.Server(
        uvicorn.Config(receiver.app, port=0, lifespan="off", log_config=None, access_log=False)
    )

    async def run() -> None:
        await receiver.start()
        await server.serve()
        await receiver.stop(5)

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    try:
        until(lambda: server.started)
        port = server.servers[0].sockets[0].getsockname()[1]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=PROTOBUF, timeout=30) as client:
            yield client, receiver
    finally:
        server.should_exit = True
        thread.join(20)


def ids(store: ScriptedStore) -> list[str]:
    return sorted(str(row[2]) for row in store.rows)


def send_all(client: httpx.Client, bodies: list[bytes]) -> None:
    """As a sender must: 503 means the same again."""
    for one in bodies:
        while (answer := client.post("/v1/traces", content=one)).status_code == 503:
            time.sleep(0.01)
        assert answer.status_code == 200


def bodies(clock: FakeClock, numbers: range) -> list[bytes]:
    return [request(span(n + 1, clock.unix_ns())).SerializeToString() for n in numbers]


@pytest.mark.parametrize(
    "store",
    [
        lambda _: Slow(),
        lambda choose: ScriptedStore([choose.choice([OK, BUSY, LOST]) for _ in range(200)]),
        lambda _: ScriptedStore([BUSY] * 8),
    ],
    ids=["slow", "mixed", "down for a while"],
)
def test_a_troubled_store_loses_and_doubles_nothing(
    tmp_path, store: Callable[[random.Random], ScriptedStore]
):
    """Slow inserts, refused ones, lost replies: each acknowledged span is stored once."""
    sys.stdout.write(f"STAGELENS_TEST_SEED={SEED}\n")
    made, clock = store(random.Random(SEED)), FakeClock()
    with served(made, tmp_path, clock) as (client, receiver):
        send_all(client, bodies(clock, range(120)))
        until(lambda: not receiver.counts()["spans"]["in_flight"], 30)
        now = receiver.counts()["spans"]
    assert ids(made) == [f"{n + 1:016x}" for n in range(120)]
    assert (now["received"], now["written"], now["refused"]) == (120, 120, {})


def test_a_clock_that_jumps_loses_nothing(tmp_path):
    """The wall clock goes two days back and twenty forward while senders go on; retries go on, too."""
    made, clock = ScriptedStore([BUSY, OK] * 60), FakeClock()
    with served(made, tmp_path, clock) as (client, receiver):
        for n, jump in enumerate((0, -2 * DAY_NS, 20 * DAY_NS, -18 * DAY_NS)):
            clock.unix += jump
            send_all(client, bodies(clock, range(n * 10, n * 10 + 10)))
        until(lambda: not receiver.counts()["spans"]["in_flight"], 30)
        now = receiver.counts()["spans"]
    assert len(set(ids(made))) == len(ids(made)) == 40
    assert (now["received"], now["written"], now["refused"]) == (40, 40, {})


def test_a_sender_that_repeats_itself_is_stored_once(tmp_path):
    """Every body three times, some at the same moment: one copy, and the same answer."""
    made, clock = ScriptedStore(), FakeClock()
    with served(made, tmp_path, clock) as (client, receiver):
        sent = bodies(clock, range(30))
        mixed = list(itertools.chain.from_iterable(zip(sent, sent, sent, strict=True)))
        threads = [threading.Thread(target=send_all, args=(client, mixed)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        until(lambda: not receiver.counts()["spans"]["in_flight"], 30)
        now = receiver.counts()["spans"]
    assert ids(made) == [f"{n + 1:016x}" for n in range(30)]
    assert (now["received"], now["written"]) == (30, 30)
