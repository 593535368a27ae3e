"""Arize Phoenix with its default store (SQLite), given the same bodies over OTLP/HTTP."""

from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

from benchmarks.ingest.run import Result, Watched, send, spread

PATIENCE_S = 600


def phoenix(python: Path, file: Path, spans: int) -> Result:
    """One round; queryable once its database has all rows of its ``spans`` table."""
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        port, grpc = free(), free()
        log = (folder / "log").open("wb")
        process = subprocess.Popen(
            [str(python.with_name("phoenix")), "serve"], stdout=log, stderr=log,
            env={
                **os.environ, "PHOENIX_WORKING_DIR": str(folder), "PHOENIX_HOST": "127.0.0.1",
                "PHOENIX_PORT": str(port), "PHOENIX_GRPC_PORT": str(grpc),
                "PHOENIX_TELEMETRY_ENABLED": "false",
            },
        )  # fmt: skip
        try:
            url = f"http://127.0.0.1:{port}"
            await_answer(url, process)
            database = folder / "phoenix.db"
            before = size(folder)
            watched = Watched(process.pid)
            began, cpu = time.perf_counter(), watched.cpu_s()
            sent = send(url, file, 2)
            while (now := stored(database)) < spans:
                if time.perf_counter() - began > PATIENCE_S:
                    raise SystemExit(f"phoenix has {now} of {spans} spans after {PATIENCE_S} s")
                time.sleep(0.05)
            queryable, cpu = time.perf_counter() - began, watched.cpu_s() - cpu
            watched.stop()
        finally:
            process.terminate()
            process.wait(60)
        grown = size(folder) - before
    return Result(
        spans, spans / sent["s"], spans / queryable, cpu / spans * 1e6, sent["cpu_s"] / spans * 1e6,
        grown / spans, spread(watched.rss), int(sent["sent_away"]), {"phoenix.db": grown},
    )  # fmt: skip


def stored(database: Path) -> int:
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as opened:
        return int(opened.execute("SELECT count(*) FROM spans").fetchone()[0])


def size(folder: Path) -> int:
    return sum(f.stat().st_size for f in folder.glob("phoenix.db*"))


def free() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def await_answer(url: str, process: subprocess.Popen[bytes]) -> None:
    ends = time.monotonic() + 180
    while time.monotonic() < ends:
        assert process.poll() is None, "phoenix did not start"
        try:
            with urllib.request.urlopen(f"{url}/healthz", timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    raise SystemExit("phoenix did not answer")
