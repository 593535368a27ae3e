"""The store: addresses, ownership, migrations, exactly-once batches."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from collectors.store.errors import StoreError, StoreRefused
from collectors.store.migrate import load_migrations, migrate, parse_migration, rollback, verify
from collectors.store.url import StoreUrl

INSTANT = 1_767_268_800_000_000_001  # 2026-01-01T12:00:00.000000001Z


def trace_row(start_ns: int = INSTANT, **attributes: str) -> tuple[object, ...]:
    from collectors.receive.rows import TimeWindow, trace_batch
    from tests.support.otlp import request, span

    batch = trace_batch(request(span(1, start_ns, attributes)), TimeWindow(1, 2**62))
    return batch.rows["otel_traces"][0]


def insert(store, rows, token: str) -> None:
    from collectors.receive.rows import TRACE_COLUMNS

    store.insert("otel_traces", TRACE_COLUMNS, rows, token)


def test_store_addresses_are_parsed_and_never_show_the_password(monkeypatch):
    """chdb and clickhouse forms; the password may come from the environment."""
    url = StoreUrl.parse("clickhouse://ada:s%40cret@db.example:9001/otel2")
    assert (url.host, url.port, url.user, url.password, url.database) == (
        "db.example", 9001, "ada", "s@cret", "otel2",
    )  # fmt: skip
    assert "cret" not in str(url) + repr(url)
    monkeypatch.setenv("STAGELENS_STORE_PASSWORD", "from-env")
    assert StoreUrl.parse("clickhouses://h/db").password == "from-env"
    assert StoreUrl.parse("clickhouses://h/db").port == 8443
    assert str(StoreUrl.parse("chdb:///a/b")) == "chdb:///a/b"


@pytest.mark.parametrize(
    "text",
    ["", "x", "chdb://", "chdb://rel/path", "chdb:///", "mysql://h/d", "clickhouse:///db",
     "clickhouse://h:port/db", "clickhouse://h/bad-name;drop"],
)  # fmt: skip
def test_a_wrong_store_address_is_one_sentence_with_the_right_form(text):
    """Wrong usage: exit code 2, and how an address looks."""
    with pytest.raises(StoreError) as caught:
        StoreUrl.parse(text)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


def test_migrations_run_once_verify_and_roll_back(empty_store):
    """Up, up again, down, up: the same schema, and each step is true."""
    numbers = [m.number for m in load_migrations()]
    assert migrate(empty_store) == numbers
    assert migrate(empty_store) == []
    verify(empty_store)
    assert rollback(empty_store, 0) == numbers[::-1]
    with pytest.raises(StoreError, match="lacks migration 1"):
        verify(empty_store)
    assert migrate(empty_store) == numbers
    verify(empty_store)


def test_old_rows_survive_a_later_migration(empty_store):
    """Rows written before a step are there after it and after its rollback."""
    known = list(load_migrations())
    migrate(empty_store, known)
    insert(empty_store, [trace_row()], "t1")
    last = known[-1].number
    later = parse_migration(
        f"{last + 1:04d}_more.sql",
        "-- apply\nALTER TABLE {db}.requests ADD COLUMN Extra UInt8 DEFAULT 7;\n"
        "-- verify\nSELECT 1 FROM system.columns WHERE table = 'requests' AND name = 'Extra';\n"
        "-- rollback\nALTER TABLE {db}.requests DROP COLUMN Extra;\n",
    )
    assert migrate(empty_store, [*known, later]) == [later.number]
    assert rollback(empty_store, last, [*known, later]) == [later.number]
    count = empty_store.query(f"SELECT count() AS n FROM {empty_store.database}.otel_traces", {})
    assert count[0]["n"] == 1


def test_a_newer_or_differently_made_store_is_refused(empty_store):
    """An old program does not touch what it does not know."""
    known = load_migrations()
    migrate(empty_store)
    with pytest.raises(StoreError, match="newer than this program"):
        migrate(empty_store, known[:-1])
    changed = parse_migration("0003_engine_steps.sql", "-- apply\n-- verify\n-- rollback\n")
    with pytest.raises(StoreError, match="another form of migration 3"):
        migrate(empty_store, [*known[:2], changed, *known[3:]])


def test_a_batch_sent_twice_counts_once_everywhere(store):
    """Same token: raw table, id lookup and requests hold it once, at once (faults 79)."""
    rows = [trace_row(INSTANT + i, **{"stagelens.record.version": "1"}) for i in range(100)]
    insert(store, rows, "same")
    insert(store, rows, "same")
    db = store.database
    for table, expected in (("otel_traces", 100), ("requests", 100), ("otel_traces_trace_id_ts", 1)):
        assert store.query(f"SELECT count() AS n FROM {db}.{table}", {})[0]["n"] == expected
    insert(store, rows, "other")
    assert store.query(f"SELECT count() AS n FROM {db}.requests", {})[0]["n"] == 200


def test_data_that_fits_no_column_is_refused_for_good(store):
    """A wrong type is told apart from a store that is busy: it must not be retried."""
    row = list(trace_row())
    row[12] = "not a number"
    with pytest.raises(StoreRefused):
        insert(store, [tuple(row)], "bad")


DST = 1_772_953_200_000_000_000  # 2026-03-08T07:00:00Z: New York's clocks jump from 2 to 3


@pytest.mark.parametrize("zone", ["Asia/Shanghai", "Asia/Seoul", "America/New_York", "UTC"])
def test_an_instant_is_the_same_whatever_the_hosts_time_zone(tmp_path, zone):
    """Nanoseconds in, the same nanoseconds out, and filters find them, on the day of a DST jump, too.

    The embedded engine's zone is the process's, so this is the server's zone as well
    (faults 76, 77).
    """
    code = f"""
        from collectors.store.client import open_store
        from collectors.store.migrate import migrate
        from collectors.store.url import StoreUrl
        from dashboards.filters import Filters
        from dashboards.queries.series import series
        from tests.conftest import FOREVER
        from tests.unit.collectors.test_store import DST, INSTANT, insert, trace_row
        store = open_store(StoreUrl.parse("chdb://{tmp_path}/s"), FOREVER)
        migrate(store)
        assert store.query("SELECT timezone() AS z", {{}})[0]["z"] == "{zone}"
        marks = {{"stagelens.record.version": "1", "stagelens.operation": "chat"}}
        for at in (INSTANT, DST - 1, DST, DST + 1):
            insert(store, [trace_row(at, **marks)], str(at))
            rows = store.query("SELECT toUnixTimestamp64Nano(Timestamp) AS ns FROM otel.otel_traces "
                "WHERE Timestamp = fromUnixTimestamp64Nano({{at:Int64}}, 'UTC')", {{"at": at}})
            assert [r["ns"] for r in rows] == [at], rows
        for minutes, hours in ((5, 0), (5, 24)):
            end = DST + minutes * 60 * 10**9
            asked = Filters(since_unix_ns=end - (hours * 3600 + 600) * 10**9, until_unix_ns=end)
            found = series(store, asked, now_unix_ns=end)
            assert found.rolled_up == (hours > 0)
            assert sum(step.requests for step in found.steps) == 3, found
            assert all(s.start_unix_ns <= DST < s.start_unix_ns + found.step_ns for s in found.steps[-1:])
        store.close()
    """
    run_python(code, TZ=zone)


def test_an_embedded_store_is_opened_and_closed_many_times_in_one_process(tmp_path):
    """Ten times 15 small inserts, closed and ended during merges: all rows, exit 0, and what a user
    keeps in the folder beside stays (faults 82)."""
    code = f"""
        from pathlib import Path
        from collectors.store.client import open_store
        from collectors.store.migrate import migrate
        from collectors.store.url import StoreUrl
        from tests.conftest import FOREVER
        from tests.unit.collectors.test_store import insert, trace_row
        for life in range(10):
            store = open_store(StoreUrl.parse("chdb://{tmp_path}/s"), FOREVER)
            migrate(store)
            Path("{tmp_path}/s/notes.txt").write_text("mine")
            for i in range(15):
                insert(store, [trace_row()], f"{{life}}-{{i}}")
            n = store.query("SELECT count() AS n FROM otel.otel_traces", {{}})[0]["n"]
            store.close()
        print(n)
    """
    assert run_python(code) == "150"
    assert (tmp_path / "s" / "notes.txt").read_text() == "mine"


def test_an_embedded_store_survives_many_short_lives(tmp_path):
    """Open, 15 small inserts, exit during merges, five times: exit 0 and all rows (faults 82)."""
    code = f"""
        import sys
        from collectors.store.client import open_store
        from collectors.store.migrate import migrate
        from collectors.store.url import StoreUrl
        from tests.conftest import FOREVER
        from tests.unit.collectors.test_store import insert, trace_row
        store = open_store(StoreUrl.parse("chdb://{tmp_path}/s"), FOREVER)
        migrate(store)
        for i in range(15):
            insert(store, [trace_row()], f"{{sys.argv[1]}}-{{i}}")
        print(store.query("SELECT count() AS n FROM otel.otel_traces", {{}})[0]["n"])
    """
    outputs = [run_python(code, str(i)) for i in range(5)]
    assert outputs == ["15", "30", "45", "60", "75"]
    assert (tmp_path / "s").is_dir()


def test_a_second_process_is_told_who_owns_the_folder(tmp_path):
    """One sentence with the folder, the owner's process id and the way out."""
    owner = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(f"""
            import sys
            from pathlib import Path
            from collectors.store.lock import lock_folder
            lock = lock_folder(Path("{tmp_path}/s"))
            print("locked", flush=True)
            sys.stdin.read()
        """)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert owner.stdout.readline() == "locked\n"
    code = f"""
        from pathlib import Path
        from collectors.store.errors import StoreOwned
        from collectors.store.lock import lock_folder
        try:
            lock_folder(Path("{tmp_path}/s"))
        except StoreOwned as problem:
            print(problem)
    """
    said = run_python(code)
    owner.communicate("")
    assert f"is owned by process {owner.pid}" in said
    assert run_python(code) == ""


def run_python(code: str, *arguments: str, **environment: str) -> str:
    """Run ``code`` in a process of its own, which must end with 0; its output."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        env={**os.environ, **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
