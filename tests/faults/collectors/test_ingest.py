"""`stagelens ingest` takes spool segments, what was set aside, and JSON files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from collectors.receive.files import UnreadableFile, bodies
from tests.faults.collectors.live_collector import Collector, stored
from tests.support.otlp import request, span
from tracer.clock import SystemClock


def ingest(collector: str, *files: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stagelens", "ingest", "--collector", collector, *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_segment_and_json_lines_are_ingested_once_though_told_twice(tmp_path):
    """Requests end to end in protobuf and one a line in JSON; a second run stores nothing twice."""
    at = SystemClock().unix_ns()
    segment = tmp_path / "spans-1.pb"
    segment.write_bytes(b"".join(request(span(n, at)).SerializeToString() for n in (1, 2, 3)))
    one = {
        "traceId": "5b8efff798038103d269b633813fc60c", "spanId": f"{9:016x}", "name": "s",
        "startTimeUnixNano": str(at), "endTimeUnixNano": str(at + 1),
    }  # fmt: skip
    bad = {**one, "spanId": ""}
    lines = tmp_path / "lines.json"
    rows = [{"resourceSpans": [{"scopeSpans": [{"spans": [s]}]}]} for s in (one, bad)]
    lines.write_text("\n".join(map(json.dumps, rows)) + "\n")
    collector = Collector(tmp_path)
    for _ in range(2):
        done = ingest(collector.otlp, segment, lines)
        assert done.returncode == 0, done.stderr
        assert "spans-1.pb: 1 request(s) taken\n" in done.stdout
        assert "lines.json: 2 request(s) taken, 1 item(s) rejected" in done.stdout
    collector.settle()
    collector.end()
    assert stored(collector.store_url) == (4, 4)


def direct(store: Path, *files: Path, **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stagelens", "ingest", "--store", f"chdb://{store}", *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **more)  # type: ignore[call-overload,no-any-return]


def test_without_a_collector_the_store_is_opened_and_written(tmp_path):
    """A new store, bodies of both routes, rejected items told; told again: nothing twice."""
    at = SystemClock().unix_ns()
    file = tmp_path / "spans-1.pb"
    plain = request(span(1, at), span(2, at)).SerializeToString()
    rare = request(span(3, at), span(4, 0), nested=[["a"]]).SerializeToString()
    file.write_bytes(plain + rare)
    for _ in range(2):
        done = direct(tmp_path / "store", file)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"{file}: 1 request(s) taken, 1 item(s) rejected\n"
    assert stored(f"chdb://{tmp_path / 'store'}") == (3, 3)


def test_a_store_with_a_collector_is_not_opened_twice(tmp_path):
    """One sentence that names the owner; the collector goes on."""
    file = tmp_path / "spans-1.pb"
    file.write_bytes(request(span(1, SystemClock().unix_ns())).SerializeToString())
    collector = Collector(tmp_path)
    done = direct(tmp_path / "store", file)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert f"is owned by process {collector.process.pid}" in done.stderr
    collector.end()


def test_what_is_no_otlp_is_one_sentence(tmp_path):
    """Which file, what is wrong; exit 1 without a traceback."""
    (tmp_path / "x.pb").write_bytes(b"\x0a\xff")
    done = ingest("http://127.0.0.1:1", tmp_path / "x.pb")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "x.pb was not read to its end: it is no protobuf at byte 0" in done.stderr


@given(st.lists(st.integers(1, 40), max_size=8), st.integers(20, 400))
def test_a_file_is_cut_at_groups_and_nothing_of_it_is_lost(sizes, limit):
    """The bodies are the file again, each a request of its own."""
    import tempfile
    from unittest.mock import patch

    whole = b"".join(request(span(n, 1, name="x" * n)).SerializeToString() for n in sizes)
    with tempfile.TemporaryDirectory() as folder, patch("collectors.receive.files.BODY_BYTES", limit):
        file = Path(folder) / "spans-1.pb"
        file.write_bytes(whole)
        made = [body for _, _, body in bodies(file, None)]
    assert b"".join(made) == whole
    assert sum(len(ExportTraceServiceRequest.FromString(b).resource_spans) for b in made) == len(sizes)


@given(st.binary(max_size=300))
def test_any_bytes_make_bodies_or_one_error(data):
    """No other exception, whatever a file holds."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "any"
        file.write_bytes(data)
        try:
            made = list(bodies(file, None))
        except UnreadableFile:
            return
    assert b"".join(body for _, _, body in made).split() == data.split()
