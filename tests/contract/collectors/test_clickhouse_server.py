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
from collections.abc import Callable, Iterator
from pathlib import Path

import clickhouse_connect
import httpx
import pytest

from tests.support.otlp import request_span
from tests.unit.dashboards.grafana.boards import panels
from tests.unit.dashboards.grafana.conftest import UNTOUCHED

ROOT = Path(__file__).resolve().parents[3]
SECRETS = {"STAGELENS_WRITER_PASSWORD": "w'r%i te", "STAGELENS_GRAFANA_PASSWORD": "g"}
WRITER = "stagelens_writer"


def wait_for(file: Path, process: subprocess.Popen[bytes]) -> dict[str, object]:
    ends = time.monotonic() + 60
    while not file.is_file() or not file.read_text(encoding="utf-8"):
        assert process.poll() is None
        assert time.monotonic() < ends
        time.sleep(0.02)
    return dict(json.loads(file.read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A front with the users of deploy/clickhouse/users.xml."""
    folder = tmp_path_factory.mktemp("front")
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.clickhouse_front", str(folder / "db"),
         str(folder / "ready"), str(ROOT / "deploy/clickhouse/users.xml")],
        cwd=ROOT, env={**os.environ, **SECRETS},
    )  # fmt: skip
    yield int(str(wait_for(folder / "ready", process)["port"]))
    process.send_signal(signal.SIGTERM)
    process.wait(30)


@pytest.fixture(scope="module")
def run(port: int, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[str]]:
    """The command line of a stagelens command on that server."""

    def made(command: str, *more: str, user: str = WRITER) -> list[str]:
        store = f"clickhouse://{user}@127.0.0.1:{port}/otel"
        return [sys.executable, "-m", "stagelens", *command.split(), "--store", store, *more]

    return made


@pytest.fixture(scope="module")
def collector(
    run: Callable[..., list[str]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, object]]:
    """`stagelens collect` as the composition starts it; one request is stored."""
    folder = tmp_path_factory.mktemp("collector")
    command = run("collect", "--otlp-port", "0", "--api-port", "0", "--data-dir", str(folder),
                  "--ready-file", str(folder / "ready"))  # fmt: skip
    process = subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, "STAGELENS_STORE_PASSWORD": SECRETS["STAGELENS_WRITER_PASSWORD"]}
    )
    facts = wait_for(folder / "ready", process)
    told = httpx.post(f"{facts['collector']}/v1/traces", content=request_span("d'arc"),
                      headers={"content-type": "application/x-protobuf"}, timeout=30)  # fmt: skip
    assert told.status_code == 200
    ends = time.monotonic() + 30
    while not (rows := httpx.get(f"{facts['api']}/api/v1/requests", timeout=30).json()["requests"]):
        assert time.monotonic() < ends
        time.sleep(0.05)
    yield {**facts, "rows": rows}
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


def test_it_migrates_writes_and_reads(collector: dict[str, object]) -> None:
    """A span that was sent comes back from the API as one request."""
    (row,) = collector["rows"]  # type: ignore[misc]
    assert row["model"] == "d'arc"


def test_the_store_commands_work_beside_it(collector: dict[str, object], run: Callable[..., list[str]]) -> None:
    """A server has no single owner: check and size run while the collector does."""
    env = {**os.environ, "STAGELENS_STORE_PASSWORD": SECRETS["STAGELENS_WRITER_PASSWORD"]}
    for command in ("store check", "store size --format json"):
        done = subprocess.run(run(command), cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
    assert {one["table"] for one in json.loads(done.stdout)["tables"]} >= {"otel_traces", "requests"}


def test_a_wrong_password_is_one_sentence(run: Callable[..., list[str]]) -> None:
    """The collector does not start and says what to check, without the password."""
    env = {**os.environ, "STAGELENS_STORE_PASSWORD": "CANARY"}
    done = subprocess.run(run("collect", "--otlp-port", "0", "--api-port", "0"), cwd=ROOT, env=env,
                          capture_output=True, text=True, timeout=60, check=False)  # fmt: skip
    assert done.returncode == 1
    assert "user or password is wrong" in done.stderr
    assert "CANARY" not in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.fixture
def reader(port: int, collector: dict[str, object]) -> clickhouse_connect.driver.Client:
    return clickhouse_connect.get_client(
        host="127.0.0.1", port=port, username="stagelens_reader", password="g", database="otel"
    )


def test_the_reader_can_run_the_dashboards(reader: clickhouse_connect.driver.Client) -> None:
    """Every panel's query runs with Grafana's user, and finds the request that was sent."""
    from tests.support.grafana import Range, View

    view = View(Range(0, 4_000_000_000_000), UNTOUCHED)
    for one in panels():
        reader.query(view.expand(one.sql, {"model": "d'arc"} if one.whole.get("repeat") else {}))
    (requests,) = [one.sql for one in panels() if (one.board, one.title) == ("overview", "Requests")]
    assert reader.query(view.expand(requests)).result_rows == [(1,)]


@pytest.mark.parametrize(
    "sql",
    ["INSERT INTO otel.requests (Model) VALUES ('x')", "DROP TABLE otel.requests",
     "ALTER TABLE otel.requests DELETE WHERE 1", "CREATE TABLE otel.x (a UInt8) ENGINE = Memory",
     "TRUNCATE TABLE otel.requests", "CREATE USER x", "SELECT * FROM system.parts"],
)  # fmt: skip
def test_the_reader_cannot_do_more(reader: clickhouse_connect.driver.Client, sql: str) -> None:
    """Whatever a dashboard's user types, Grafana's user only reads."""
    with pytest.raises(Exception, match=r"497|164"):
        reader.command(sql)


@pytest.mark.parametrize("sql", ["CREATE USER x", "CREATE DATABASE other", "GRANT SELECT ON *.* TO stagelens_reader"])
def test_the_writer_keeps_to_its_database(port: int, collector: dict[str, object], sql: str) -> None:
    """The collector's user cannot make users, rights or other databases."""
    client = clickhouse_connect.get_client(
        host="127.0.0.1", port=port, username=WRITER, password=SECRETS["STAGELENS_WRITER_PASSWORD"]
    )
    with pytest.raises(Exception, match="497"):
        client.command(sql)
