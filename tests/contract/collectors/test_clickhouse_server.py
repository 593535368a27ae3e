"""The collector with ``--store clickhouse://…``, over HTTP, with the composition's users and rights.

The engine behind the HTTP front is the embedded one: see ``tests/support/clickhouse_front.py``
for what that shows and what it does not.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import clickhouse_connect
import httpx
import pytest

from tests.support.grafana import Range, View
from tests.support.otlp import record
from tests.unit.dashboards.grafana.boards import documents, panel, panels, variables
from tests.unit.dashboards.grafana.conftest import UNTOUCHED
from tracer.clock import SystemClock

ROOT = Path(__file__).resolve().parents[3]
WRITER, READER = "stagelens_writer", "stagelens_reader"
SECRETS = {"STAGELENS_WRITER_PASSWORD": "w'r%i te", "STAGELENS_GRAFANA_PASSWORD": "g"}
PASSWORD = {WRITER: SECRETS["STAGELENS_WRITER_PASSWORD"], READER: "g"}


def wait_for(file: Path, process: subprocess.Popen[bytes]) -> dict[str, Any]:
    ends = time.monotonic() + 60
    while not file.is_file() or not file.read_text(encoding="utf-8"):
        assert process.poll() is None
        assert time.monotonic() < ends
        time.sleep(0.02)
    return dict(json.loads(file.read_text(encoding="utf-8")))


@contextmanager
def front(folder: Path, user: str) -> Iterator[int]:
    """The engine over HTTP as ``user`` of deploy/clickhouse/users.xml; its port."""
    ready = folder / f"{user}.ready"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.clickhouse_front", str(folder / "db"), str(ready),
         str(ROOT / "deploy/clickhouse/users.xml"), user],
        cwd=ROOT, env={**os.environ, **SECRETS},
    )  # fmt: skip
    try:
        yield int(wait_for(ready, process)["port"])
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def client(port: int, user: str) -> Any:
    return clickhouse_connect.get_client(
        host="127.0.0.1", port=port, username=user, password=PASSWORD[user], autogenerate_session_id=False
    )


def stagelens(port: int, command: str, *more: str, password: str = PASSWORD[WRITER]) -> dict[str, Any]:
    """What ``subprocess`` needs to run a command on that server as the composition does."""
    store = f"clickhouse://{WRITER}@127.0.0.1:{port}/otel"
    return {
        "args": [sys.executable, "-m", "stagelens", *command.split(), "--store", store, *more],
        "cwd": ROOT, "env": {**os.environ, "STAGELENS_STORE_PASSWORD": password},
    }  # fmt: skip


def finished(asked: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(**asked, capture_output=True, text=True, timeout=60, check=False)


@dataclass
class Story:
    """What happened while the engine had the writer's rights."""

    rows: list[dict[str, Any]]
    checked: subprocess.CompletedProcess[str]
    sized: subprocess.CompletedProcess[str]
    locked_out: subprocess.CompletedProcess[str]
    refused: dict[str, str]
    exit_code: int
    spools: list[str]


BEYOND_THE_WRITER = ("CREATE USER x", "CREATE DATABASE other", "GRANT SELECT ON *.* TO default",
                     "SELECT * FROM system.users")  # fmt: skip
BEYOND_THE_READER = (
    "INSERT INTO otel.requests (Model) VALUES ('x')", "DROP TABLE otel.requests",
    "ALTER TABLE otel.requests DELETE WHERE 1", "CREATE TABLE otel.x (a UInt8) ENGINE = Memory",
    "TRUNCATE TABLE otel.requests", "SELECT * FROM system.users", "SELECT * FROM url('http://127.0.0.1:1/')",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("server")


@pytest.fixture(scope="module")
def story(folder: Path) -> Story:
    """`stagelens collect` starts as in the composition, takes one request, is asked, and ends."""
    ports = ("--otlp-port", "0", "--api-port", "0")
    with front(folder, WRITER) as port:
        asked = stagelens(port, "collect", *ports, "--data-dir", str(folder / "data"),
                          "--ready-file", str(folder / "collector"))  # fmt: skip
        process = subprocess.Popen(**asked)
        try:
            facts = wait_for(folder / "collector", process)
            rows = _one_request(facts)
            checked, sized = (
                finished(stagelens(port, command)) for command in ("store check", "store size --format json")
            )
            refused = {sql: _refusal(client(port, WRITER), sql) for sql in BEYOND_THE_WRITER}
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
        locked_out = finished(stagelens(port, "collect", *ports, password="CANARY"))
    spools = [path.name for path in (folder / "data" / "spool").iterdir() if path.is_dir()]
    return Story(rows, checked, sized, locked_out, refused, process.returncode, spools)


def _one_request(facts: dict[str, Any]) -> list[dict[str, Any]]:
    body = record("d'arc", SystemClock().unix_ns() - 10_000_000_000).SerializeToString()
    kind = {"content-type": "application/x-protobuf"}
    told = httpx.post(f"{facts['collector']}/v1/traces", content=body, headers=kind, timeout=30)
    assert told.status_code == 200
    ends = time.monotonic() + 30
    while not (rows := httpx.get(f"{facts['api']}/api/v1/requests", timeout=30).json()["requests"]):
        assert time.monotonic() < ends
        time.sleep(0.05)
    return list(rows)


def _refusal(connected: Any, sql: str) -> str:
    with pytest.raises(clickhouse_connect.driver.exceptions.DatabaseError) as told:
        connected.command(sql)
    return str(told.value)


def test_the_writer_migrates_writes_and_reads(story: Story) -> None:
    """With its rights alone the schema is made, and a request that was sent is in the API's answer."""
    assert [row["model"] for row in story.rows] == ["d'arc"]
    assert story.exit_code == 0


def test_the_spool_is_in_the_data_folder(story: Story) -> None:
    """What was acknowledged and is not stored yet lies where ``--data-dir`` says, one for each address."""
    (name,) = story.spools
    assert name.startswith("127.0.0.1-")
    assert name.endswith("-otel")


def test_store_commands_run_beside_the_collector(story: Story) -> None:
    """A server has no single owner: check and size run while the collector does."""
    assert story.checked.returncode == 0, story.checked.stderr
    assert story.sized.returncode == 0, story.sized.stderr
    assert {one["table"] for one in json.loads(story.sized.stdout)["tables"]} >= {"otel_traces", "requests"}


def test_a_wrong_password_is_one_sentence(story: Story) -> None:
    """The collector does not start and says what to check, without the password."""
    assert story.locked_out.returncode == 1
    assert "user or password is wrong" in story.locked_out.stderr
    assert "CANARY" not in story.locked_out.stderr
    assert story.locked_out.stderr.count("\n") == 1


@pytest.mark.parametrize("sql", BEYOND_THE_WRITER)
def test_the_writer_keeps_to_its_database(story: Story, sql: str) -> None:
    """It cannot make users, rights or other databases, nor read who there is."""
    assert "497" in story.refused[sql]


@pytest.fixture(scope="module")
def reader(story: Story, folder: Path) -> Iterator[Any]:
    """Grafana's user on the same data."""
    with front(folder, READER) as port:
        yield client(port, READER)


def test_the_reader_can_run_the_dashboards(reader: Any) -> None:
    """Every panel's and variable's query runs, with the setting that the plugin sends."""
    view = View(Range(0, 4_000_000_000_000, 3600), UNTOUCHED)
    asked = [view.expand(one.sql, {"model": "d'arc"} if one.whole.get("repeat") else {}) for one in panels()]
    asked += [view.expand(sql) for document in documents().values() for sql in variables(document).values()]
    reader.database = "otel"
    for sql in asked:
        reader.query(sql, settings={"max_execution_time": 60})
    found = reader.query(view.expand(panel("overview", "Requests").sql))
    assert found.result_rows == [(1,)]


@pytest.mark.parametrize("sql", BEYOND_THE_READER)
def test_the_reader_cannot_do_more(reader: Any, sql: str) -> None:
    """Whatever is typed into Grafana, its user only reads its own database."""
    assert any(code in _refusal(reader, sql) for code in ("497", "164"))


def test_the_reader_cannot_lift_its_limits(reader: Any) -> None:
    """It may shorten or lengthen its time up to five minutes and change nothing else."""
    for name, value in (("max_execution_time", 301), ("max_memory_usage", 0), ("readonly", 0)):
        with pytest.raises(clickhouse_connect.driver.exceptions.DatabaseError):
            reader.query("SELECT 1", settings={name: value})
