"""Kill -9 under load: nothing acknowledged is lost, nothing is there twice."""

from __future__ import annotations

import itertools
import os
import random
import signal
import sys
import threading
import time

import httpx

from tests.faults.collectors.live_collector import Collector, stored
from tests.support.otlp import request, span
from tracer.clock import SystemClock

KILLS = int(os.environ.get("STAGELENS_TEST_KILLS", "4"))
"""50 is the full form: STAGELENS_TEST_KILLS=50."""
SEED = int(os.environ.get("STAGELENS_TEST_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
PROTOBUF = {"content-type": "application/x-protobuf"}
BODY_SPANS = 20


def body(number: int) -> bytes:
    at = SystemClock().unix_ns()
    spans = (span(number * BODY_SPANS + n + 1, at) for n in range(BODY_SPANS))
    odd = number % 7 == 0  # an attribute in an attribute: such a body is read in Python
    return request(*spans, nested=[["a"]] if odd else "a").SerializeToString()


class Sender:
    """Sends new bodies until its collector is gone; keeps those without an answer."""

    def __init__(self) -> None:
        self.numbers = itertools.count()
        self.acknowledged: list[bytes] = []
        self.open: list[bytes] = []

    def send_until_gone(self, url: str) -> None:
        with httpx.Client(base_url=url, headers=PROTOBUF, timeout=30) as client:
            again = self.open + self.acknowledged[-5:]  # a sender that missed the answers
            self.open = []
            for one in itertools.chain(again, map(body, self.numbers)):
                try:
                    client.post("/v1/traces", content=one).raise_for_status()
                except httpx.HTTPError:
                    if one not in self.acknowledged:
                        self.open.append(one)
                    return
                if one not in self.acknowledged:
                    self.acknowledged.append(one)


def test_a_killed_collector_loses_no_acknowledged_span_and_doubles_none(tmp_path):
    """Killed at random points while it takes and writes; senders send again what had no answer."""
    sys.stdout.write(f"STAGELENS_TEST_SEED={SEED}\n")
    choose = random.Random(SEED)
    sender = Sender()
    for _ in range(KILLS):
        collector = Collector(tmp_path)
        thread = threading.Thread(target=sender.send_until_gone, args=(collector.otlp,))
        thread.start()
        time.sleep(choose.uniform(0.05, 1.0))
        collector.end(signal.SIGKILL)
        thread.join()
    collector = Collector(tmp_path)
    with httpx.Client(base_url=collector.otlp, headers=PROTOBUF, timeout=30) as client:
        for one in sender.open:
            assert client.post("/v1/traces", content=one).status_code == 200
    now = collector.settle()
    collector.end()
    spans = BODY_SPANS * (len(sender.acknowledged) + len(sender.open))
    total, different = stored(collector.store_url)
    assert (total, different) == (spans, spans)
    assert (now["received"], now["written"], now["refused"]) == (spans, spans, {})
