"""One call sets it up, joins what is there, and loses nothing silently."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from tests.unit.tracer.test_export import Peer

COMMON = """
import os, sys
import tracer
from tracer.sdk.runtime import active

@tracer.tool
def look():
    return 1
"""


def run(code: str, **environment: str) -> str:
    import os

    done = subprocess.run(
        [sys.executable, "-c", COMMON + textwrap.dedent(code)], capture_output=True, text=True,
        check=False, timeout=60, env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def peer():
    one = Peer()
    yield one
    one.hold.set()
    one.server.shutdown()
    one.server.server_close()


def test_spans_of_a_script_arrive_although_it_ends_at_once(peer):
    """Flushed at exit; the service's name is the one that was given."""
    run("tracer.configure('shop', sys.argv[1] if len(sys.argv) > 1 else os.environ['AT'])\nlook()",
        AT=peer.url)  # fmt: skip
    assert peer.spans() == ["execute_tool look"]


def test_a_collector_that_is_away_delays_the_exit_no_longer_than_its_deadline():
    """The program ends, its own output is whole (faults 53)."""
    out = run(
        """
        import time
        tracer.configure(endpoint='http://127.0.0.1:9', flush_s=0.5)
        look()
        began = time.monotonic()
        tracer.shutdown()
        print(time.monotonic() - began < 5)
        """
    )
    assert out.strip() == "True"


def test_the_standard_switch_turns_it_off_and_a_wrong_endpoint_is_said():
    """OTEL_SDK_DISABLED: nothing is recorded; no URL: one sentence."""
    out = run("tracer.configure(endpoint='http://127.0.0.1:9')\nprint(active())\nlook()",
              OTEL_SDK_DISABLED="true")  # fmt: skip
    assert out.strip() == "None"
    out = run("try:\n    tracer.configure(endpoint='nowhere')\nexcept ValueError as e:\n    print(e)")
    assert "endpoint 'nowhere' is not a URL" in out


def test_an_opentelemetry_sdk_that_is_set_up_is_joined_not_replaced(peer):
    """Its provider stays, its processors still get the spans, and so do we."""
    out = run(
        """
        from opentelemetry import trace as otel
        from opentelemetry.sdk.trace import TracerProvider, SpanProcessor
        class Theirs(SpanProcessor):
            def on_end(self, span): print("theirs", span.name)
        provider = TracerProvider()
        provider.add_span_processor(Theirs())
        otel.set_tracer_provider(provider)
        tracer.configure(endpoint=os.environ['AT'])
        with otel.get_tracer("x").start_as_current_span("outer"):
            look()
        print(otel.get_tracer_provider() is provider)
        """,
        AT=peer.url,
    )
    assert out.split("\n")[:3] == ["theirs execute_tool look", "theirs outer", "True"]
    assert sorted(peer.spans()) == ["execute_tool look", "outer"]


def test_a_full_queue_counts_what_it_drops():
    """Losses are there to be read (faults 56)."""
    out = run(
        """
        tracer.configure(endpoint='http://127.0.0.1:9', queue_items=2, flush_s=0.1)
        for _ in range(500):
            look()
        told = tracer.losses()['spans']
        parts = told['sent'] + told['in_flight'] + sum(told['dropped'].values())
        print(told['received'], told['received'] == parts)
        """
    )
    assert out.split() == ["500", "True"]


def test_a_forked_worker_sends_its_own_spans_and_not_its_parents(peer):
    """Parent and child end; each span arrives once (faults 58)."""
    run(
        """
        tracer.configure(endpoint=os.environ['AT'])
        look()
        child = os.fork()
        with tracer.stage("child" if child == 0 else "parent"):
            pass
        tracer.shutdown()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        """,
        AT=peer.url,
    )
    assert sorted(peer.spans()) == ["child", "execute_tool look", "parent"]


def test_a_collectors_token_goes_with_each_body():
    """By the standard variable or by the argument; the argument is used where both are given."""
    from http.server import BaseHTTPRequestHandler, HTTPServer
    from threading import Thread

    heard = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            heard.append(self.headers["Authorization"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    at = f"http://127.0.0.1:{server.server_address[1]}"
    variable = "authorization=Bearer%20one"
    run("tracer.configure(endpoint=os.environ['AT'])\nlook()", AT=at, OTEL_EXPORTER_OTLP_HEADERS=variable)
    run("tracer.configure(endpoint=os.environ['AT'], headers={'Authorization': 'Bearer two'})\nlook()",
        AT=at, OTEL_EXPORTER_OTLP_HEADERS=variable)  # fmt: skip
    server.shutdown()
    server.server_close()
    assert set(heard) == {"Bearer one", "Bearer two"}


def test_a_set_up_that_fails_half_way_leaves_nothing_on(tmp_path):
    """An instrumentation that does not fit: one error, and no call is recorded afterwards."""
    out = run(
        """
        from tracer.sdk import instruments
        def fails(*_, **__): raise ValueError("instrument 'x': of another version")
        instruments.turn_on = fails
        try:
            tracer.configure(endpoint="http://127.0.0.1:9", flush_s=0.1)
        except ValueError as problem:
            print(problem)
        look()
        print(active(), dict(tracer.losses())["spans"]["received"])
        """
    )
    assert out.split("\n")[:2] == ["instrument 'x': of another version", "None 0"]


@pytest.mark.parametrize("wrong", ["content_limit=-1", "queue_items=-5", "flush_s=-1", "flush_s=0-0.1"])
def test_a_number_below_zero_is_refused(wrong):
    """Texts would be cut from the wrong end."""
    tried = f"try:\n    tracer.configure({wrong})\nexcept ValueError as e:\n    print(e)"
    out = run(tried + "\nprint(active())")
    assert "give a number of at least 0" in out
    assert out.split("\n")[1] == "None"


def test_a_password_in_the_endpoint_is_not_logged():
    """The receiver is away: the log names it without its user."""
    out = run(
        """
        import logging, io
        heard = io.StringIO()
        logging.basicConfig(stream=heard)
        tracer.configure(endpoint="http://me:CANARY@127.0.0.1:9/x?api_key=CANARY", flush_s=0.2)
        look()
        tracer.shutdown()
        print(heard.getvalue())
        """
    )
    assert "127.0.0.1:9/x" in out
    assert "CANARY" not in out


def test_spans_that_end_while_a_forked_process_does_are_sent(peer):
    """A late fork may start no thread any more: what waits is sent by the one that ends it."""
    run(
        """
        import atexit
        tracer.configure(endpoint=os.environ['AT'])
        import tracer.sdk.runtime as handle
        import threading
        child = os.fork()
        if child == 0:
            def no_more(self):
                raise RuntimeError("can't create new thread at interpreter shutdown")
            threading.Thread.start = no_more
            look()
            tracer.shutdown()
            os._exit(0)
        os.waitpid(child, 0)
        """,
        AT=peer.url,
    )
    assert peer.spans() == ["execute_tool look"]


def test_set_up_from_many_threads_leaves_one_sender(peer):
    """Lazily, by whichever request comes first."""
    out = run(
        """
        import threading
        threads = [threading.Thread(target=tracer.configure, kwargs={"endpoint": os.environ["AT"]})
                   for _ in range(8)]
        [t.start() for t in threads]; [t.join() for t in threads]
        look()
        tracer.flush(5)
        print([t.name for t in threading.enumerate()].count("stagelens-export"))
        """,
        AT=peer.url,
    )
    assert out.strip() == "1"
    assert peer.spans() == ["execute_tool look"]
