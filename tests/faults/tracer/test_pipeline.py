"""Section F: what becomes of spans on their way out of a process."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import subprocess
import sys
import time

import pytest
from opentelemetry.sdk.resources import Resource

from tests.support.otlp_peer import OtlpPeer, otlp_peer
from tests.support.programs import COMMON, run
from tracer import semconv
from tracer.clock import SystemClock
from tracer.export import OtlpExporter
from tracer.export_settings import ExportSettings, SpanGroup
from tracer.spans import SpanDraft


@pytest.fixture
def peer():
    with otlp_peer() as one:
        yield one


@pytest.fixture
def refusing():
    """A port at which nobody listens, for as long as the test runs."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


AWAY = """
    from opentelemetry import trace as otel
    tracer.configure(endpoint=os.environ['AT'], flush_s=2)
    for _ in range(10):
        look()
    took = []
    for _ in range(3):  # a busy machine may be late once
        began = time.monotonic()
        flushed = otel.get_tracer_provider().force_flush(1000)
        took.append(time.monotonic() - began)
    print(flushed, tracer.flush(0.01), min(took) < 1.5)
    began = time.monotonic()
    print(tracer.shutdown(), time.monotonic() - began < 5)
    told = tracer.losses()['spans']
    print(told['received'], sum(told['dropped'].values()), told['in_flight'])
"""


@pytest.mark.parametrize("kind", ["refuses", "never_answers"])
def test_53_flush_and_exit_keep_their_limits_and_tell_the_losses(kind, refusing, peer):
    """``False`` in 1.5 s, gone in 5 s, and 10 of 10 counted as dropped and logged."""
    peer.hold.clear()
    began = time.monotonic()
    done = run(AWAY, AT=refusing if kind == "refuses" else peer.url)
    assert done.stdout.split("\n")[:3] == ["False False True", "False True", "10 10 0"]
    assert "did not reach" in done.stderr
    assert "10" in done.stderr
    assert time.monotonic() - began < 5 + STARTING_S


STARTING_S = 10
"""What importing may take on a busy machine; the limits themselves are measured inside."""


@pytest.mark.parametrize("kind", ["refuses", "never_answers"])
def test_53_sigterm_ends_the_process_within_the_limit_and_tells_the_losses(kind, refusing, peer):
    """With ``flush_on_sigterm`` it dies of the signal still, after saying what it lost."""
    peer.hold.clear()
    program = subprocess.Popen(
        [sys.executable, "-c", COMMON + SIGTERM], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, env={**os.environ, "AT": refusing if kind == "refuses" else peer.url},
    )  # fmt: skip
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    began = time.monotonic()
    program.send_signal(signal.SIGTERM)
    _, said = program.communicate(timeout=30)
    assert time.monotonic() - began < 5
    assert program.returncode == -signal.SIGTERM
    assert re.search(r"did not reach .*10", said)


SIGTERM = """
tracer.configure(endpoint=os.environ['AT'], flush_s=2, flush_on_sigterm=True)
for _ in range(10):
    look()
print("ready", flush=True)
while True:
    time.sleep(0.05)  # a signal just before a long sleep is handled after it
"""


def test_55_nothing_is_sent_on_the_callers_thread(peer):
    """Every look-up and connection is the sender's, with a peer that does not answer for long."""
    peer.hold.clear()
    done = run(
        """
        import threading
        where = set()
        def hook(name, told):
            if name in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname"):
                where.add(threading.current_thread().name)
        sys.addaudithook(hook)
        tracer.configure(endpoint=os.environ['AT'], flush_s=0.2)

        @tracer.trace
        async def request():
            for _ in range(300):
                look()
                await asyncio.sleep(0)

        async def both():
            gaps, over = [], False
            async def watch():
                while not over:
                    began = time.monotonic()
                    await asyncio.sleep(0.001)
                    gaps.append(time.monotonic() - began)
            watching = asyncio.create_task(watch())
            await asyncio.gather(request(), request())
            await asyncio.sleep(1)
            await request()
            over = True
            await watching
            return max(gaps)

        longest = asyncio.run(both())
        print(sorted(where), longest < 0.5)
        """,
        AT=peer.url,
    )
    assert done.stdout.strip() == "['stagelens-export'] True"


def draft(name: str = "s", **more: object) -> SpanGroup:
    made = [SpanDraft(name, 7, None, 10, 20, **more)]  # type: ignore[arg-type]
    return SpanGroup(1, 1, lambda: made)


def exporter(peer: OtlpPeer, **settings: float) -> OtlpExporter:
    made = OtlpExporter(
        ExportSettings(peer.url, **{"interval_s": 0.02, "metrics_every_s": 0.1, **settings}),  # type: ignore[arg-type]
        Resource({}), SystemClock(),
    )  # fmt: skip
    made.start()
    return made


def test_56_a_full_queue_keeps_its_length_counts_the_rest_and_warns_once(peer, caplog):
    """5,000 spans at a stalled peer, queue 2,048: one batch in flight more is kept at most."""
    peer.hold.clear()
    with caplog.at_level(logging.WARNING, "stagelens.export"):
        one = exporter(peer, queue_items=2048)
        one.put_spans(draft("first"))
        give_up = time.monotonic() + 10
        while not peer.asked and time.monotonic() < give_up:
            time.sleep(0.005)
        began = time.perf_counter()
        for _ in range(5000):
            one.put_spans(draft())
        took = time.perf_counter() - began
        peer.hold.set()
        assert one.flush(30)
        one.close(5)
    counts = one.losses()["spans"]
    kept = counts["sent"] - 1
    assert took < 20, "putting waits for nothing"
    assert 2048 <= kept <= 2048 + 256
    assert counts["dropped"] == {"queue_full": 5000 - kept}
    assert peer.sums()[semconv.METRIC_SPANS_DROPPED] == 5000 - kept
    assert len(peer.spans()) == kept + 1
    told = [r for r in caplog.records if "queue_full" in r.getMessage() and "reach" not in r.getMessage()]
    assert len(told) == 1


def test_56_a_fast_peer_loses_nothing_at_the_usual_rate(peer):
    """10,000 spans, each hundred begun while half of the queue is free: none dropped."""
    one = exporter(peer, queue_items=2048)
    until = time.monotonic() + 120
    for n in range(10_000):
        one.put_spans(draft())
        while n % 100 == 99 and one.losses()["spans"]["in_flight"] > 1024:  # a machine may be busy
            assert time.monotonic() < until
            time.sleep(0.01)
    assert one.flush(30)
    assert one.losses()["spans"] == {
        "received": 10_000, "sent": 10_000, "in_flight": 0, "dropped": {},
    }  # fmt: skip
    one.close(5)


SEEDED = """
    import random
    tracer.configure(endpoint='http://127.0.0.1:9', flush_s=0.1)
    random.seed(7)
    for _ in range(1000):
        with tracer.trace("t") as live:
            context = live.span.get_span_context()
            print(context.trace_id, context.span_id)
    print("random", random.random())
"""


def test_58_seeded_programs_do_not_share_ids_and_their_own_numbers_stay():
    """Two processes, the same seed, 1,000 ids each; ``random`` gives what it would without us."""
    import random

    random.seed(7)
    undisturbed = f"random {random.random()}"
    seen: set[str] = set()
    for _ in range(2):
        lines = run(SEEDED).stdout.splitlines()
        assert lines[-1] == undisturbed
        seen.update(n for line in lines[:-1] for n in line.split())
    assert len(seen) == 4000
    assert "0" not in seen


def test_58_joined_sdks_default_ids_are_not_used_for_our_spans():
    """A provider that was there, with the ids that seeding repeats."""
    joined = """
    import random
    from opentelemetry import trace as otel
    from opentelemetry.sdk.trace import TracerProvider
    otel.set_tracer_provider(TracerProvider())
    """ + SEEDED
    seen = [n for _ in range(2) for line in run(joined).stdout.splitlines()[:-1] for n in line.split()]
    assert len(set(seen)) == 4000


def test_58_forked_processes_do_not_share_ids():
    """4 forks after set-up, 1,000 ids each; and the parent's."""
    done = run(
        """
        tracer.configure(endpoint='http://127.0.0.1:9', flush_s=0.1)
        def ids():
            for _ in range(1000):
                with tracer.trace("t") as live:
                    context = live.span.get_span_context()
                    yield f"{context.trace_id} {context.span_id}"
        list(ids())
        for _ in range(4):
            child = os.fork()
            if child == 0:
                sys.stdout.write("\\n".join(ids()) + "\\n")
                sys.stdout.flush()
                os._exit(0)
            os.waitpid(child, 0)
        print("\\n".join(ids()))
        """
    )
    found = [n for line in done.stdout.split("\n") for n in line.split()]
    assert len(found) == len(set(found)) == 10_000


def test_58_a_span_that_is_open_at_a_fork_is_the_parents_alone(peer):
    """The child leaves the block as well; the span arrives once, and the child's own too."""
    run(
        """
        tracer.configure(endpoint=os.environ['AT'])
        with tracer.trace("job"):
            child = os.fork()
            if child == 0:
                look()
        if child:
            os.waitpid(child, 0)
        """,
        AT=peer.url,
    )
    assert sorted(peer.names()) == ["execute_tool look", "job"]
    job, look = sorted(peer.spans(), key=lambda s: s.name == "execute_tool look")
    assert look.parent_span_id == job.span_id


def test_59_long_spans_do_not_cost_the_short_ones(peer):
    """40 prompts of 200 KB and a tiny span, 8 MB: all arrive, in bodies below 4,194,304 bytes."""
    one = exporter(peer)
    for n in range(40):
        one.put_spans(draft(f"long {n}", attributes={"prompt": "x" * 200_000}))
    one.put_spans(draft("tiny"))
    assert one.flush(30)
    one.close(5)
    assert peer.refused == 0
    assert len(peer.names()) == 41
    assert "tiny" in peer.names()
    assert all(len(s.attributes) == 1 for s in peer.spans() if s.name != "tiny")


LONG = "é" * 3_000_000
MANY = {f"k{n}": "ü" * 60_000 for n in range(60)}


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"attributes": {"prompt": LONG}}, "prompt=3000000"),
        ({"events": [(LONG, 5, {})]}, "event name=3000000"),
        ({"events": [("e", 5, {"text": LONG})]}, "event text=3000000"),
        ({"attributes": {"list": [LONG, "b"]}}, "list=3000000"),
        ({"attributes": {LONG: "v"}}, "key=3000000"),
        ({"attributes": {"deep": {"a": [LONG]}}}, "deep=3000000"),
        ({"attributes": MANY}, "k0=60000"),
        ({"links": [(9, 9, {"why": LONG})]}, "link why=3000000"),
    ],
    ids=["attribute", "event_name", "event_attribute", "list", "key", "deep", "many", "link"],
)
def test_59_what_is_too_long_is_cut_at_a_character_and_says_so(peer, more, told):
    """6 MB in one value of any kind, or in many: the span arrives, and so does its neighbour.

    That the message can be read at all shows that no character was cut in two.
    """
    one = exporter(peer)
    one.put_spans(draft("long", **more))
    one.put_spans(draft("tiny"))
    assert one.flush(30)
    one.close(5)
    assert peer.refused == 0
    assert sorted(peer.names()) == ["long", "tiny"]
    [span] = [s for s in peer.spans() if s.name == "long"]
    cut = [a for a in span.attributes if a.key == semconv.CUT]
    assert told in [v.string_value for v in cut[0].value.array_value.values]
    assert span.ByteSize() > 100_000, "its beginning is kept"


def test_59_a_name_of_a_span_can_be_too_long_as_well(peer):
    """6 MB of name."""
    one = exporter(peer)
    one.put_spans(draft(LONG))
    assert one.flush(30)
    one.close(5)
    assert 0 < len(peer.names()[0]) < 1_100_000


def test_59_a_receiver_with_a_lower_limit_gets_smaller_bodies():
    """It refuses with 413: halves are sent until they fit; one span that never fits is counted."""
    with otlp_peer(limit=50_000) as small:
        one = exporter(small)
        for n in range(10):
            one.put_spans(draft(f"s{n}", attributes={"text": "x" * 20_000}))
        one.put_spans(draft("never", attributes={"text": "x" * 60_000}))
        assert one.flush(30)
        assert one.losses()["spans"]["dropped"] == {"refused": 1}
        assert sorted(small.names()) == [f"s{n}" for n in range(10)]
        one.close(5)
