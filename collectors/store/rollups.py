"""The roll-ups checked against the requests, and mended where a request was replaced.

Inserts only ever add to a sketch. A request whose row is replaced by a better one (late spans
do that) is in its sketches twice, until the minute is made anew from the requests here. What
differs is found by counting, so nothing has to be remembered, and a crash changes nothing.
"""

# ruff: noqa: S608  only the checked database name and numbers are put into statements
from __future__ import annotations

import logging
import threading

from collectors.store.client import Store
from collectors.store.errors import StoreError
from collectors.store.migrate import load_migrations, statements
from tracer.clock import Clock

log = logging.getLogger("stagelens.collector")
MIGRATION = 6
LOOK_BACK_S = 2 * 86_400
QUIET_S = 120
"""Minutes this young still get requests."""
DAY_S = 86_400
KEYS = "Model, Route, Operation, Source, Status, Stream, Warm, Cached"
TABLES = (("requests_1m", "Minute", 60), ("requests_1h", "Hour", 3600))


def mend(store: Store, now_unix_s: int) -> int:
    """Make the steps anew in which roll-up and requests differ; how many did.

    Raises:
        StoreError: what was not mended differs still, and is found by the next call.
    """
    return sum(_mend(store, *table, now_unix_s) for table in TABLES)


def _mend(store: Store, table: str, at: str, step_s: int, now_unix_s: int) -> int:
    first = (now_unix_s - LOOK_BACK_S) // step_s * step_s
    last = (now_unix_s - QUIET_S) // step_s * step_s
    db = f"`{store.database}`"
    rows = store.query(
        f"SELECT at FROM (SELECT intDiv(toInt64(toUnixTimestamp(Timestamp)), {step_s}) * {step_s} AS at, "
        f"count() AS raw, 0 AS rolled FROM {db}.requests WHERE Timestamp >= toDateTime({first}, 'UTC') "
        f"AND Timestamp < toDateTime({last}, 'UTC') GROUP BY at UNION ALL "
        f"SELECT toInt64(toUnixTimestamp({at})) AS at, 0 AS raw, sum(N) AS rolled FROM {db}.{table} "
        f"WHERE Quantity = 'e2e' AND {at} >= toDateTime({first}, 'UTC') AND {at} < toDateTime({last}, 'UTC') "
        "GROUP BY at) GROUP BY at HAVING sum(raw) != sum(rolled) ORDER BY at",
        {},
    )
    for row in rows:
        begin = int(str(row["at"]))
        store.command(f"DELETE FROM {db}.{table} WHERE {at} = toDateTime({begin}, 'UTC')")
        store.command(_fill(store, table, begin, begin + step_s))
    return len(rows)


def _fill(store: Store, table: str, begin: int, end: int) -> str:
    """The migration's own statement that fills a roll-up, for a part of the time."""
    step = next(one for one in load_migrations() if one.number == MIGRATION)
    told = statements(step, "apply", store.database, store.settings)
    fill = next(sql for sql in told if sql.startswith(f"INSERT INTO `{store.database}`.{table}\n"))
    within = f"Timestamp >= toDateTime({begin}, 'UTC') AND Timestamp < toDateTime({end}, 'UTC')"
    return fill.replace("  ]) AS one\n", f"  ]) AS one\n  WHERE {within}\n")


def make_days(store: Store, now_unix_s: int) -> int:
    """Merge the hours of each day that is over into ``requests_1d``, where it counts other ones.

    How many days were made. While one is made a reader sees that its count differs from that
    of its hours, and takes the hours.

    Raises:
        StoreError: what was not made is found by the next call.
    """
    db = f"`{store.database}`"
    rows = store.query(f"{_days_sql(db)} HAVING hours != days AND day <= {{last:Int64}} ORDER BY day", {
        "last": now_unix_s - QUIET_S - DAY_S,
    })  # fmt: skip
    for row in rows:
        begin = int(str(row["day"]))
        store.command(
            f"DELETE FROM {store.held('requests_1d')} WHERE Day = toDateTime({begin}, 'UTC')"
        )
        store.command(
            f"INSERT INTO {db}.requests_1d SELECT Quantity, toDateTime({begin}, 'UTC') AS Day, {KEYS}, "
            "sum(N) AS N, sum(Sum) AS Sum, max(Max) AS Max, "
            "quantilesTDigestMergeState(0.5, 0.9, 0.95, 0.99)(Sketch) AS Sketch "
            f"FROM {db}.requests_1h WHERE Hour >= toDateTime({begin}, 'UTC') "
            f"AND Hour < toDateTime({begin + DAY_S}, 'UTC') GROUP BY Quantity, {KEYS}"
        )
    return len(rows)


def _days_sql(db: str) -> str:
    """A row a day: what its hours and what its own sketches count."""
    return (
        "SELECT day, sum(by_hour) AS hours, sum(by_day) AS days FROM ("
        "SELECT toInt64(toUnixTimestamp(toStartOfDay(Hour))) AS day, sum(N) AS by_hour, "
        f"toUInt64(0) AS by_day FROM {db}.requests_1h WHERE Quantity = 'e2e' GROUP BY day UNION ALL "
        "SELECT toInt64(toUnixTimestamp(Day)) AS day, toUInt64(0) AS by_hour, sum(N) AS by_day "
        f"FROM {db}.requests_1d WHERE Quantity = 'e2e' GROUP BY day) GROUP BY day"
    )


class RollupCheck:
    """A thread that mends once an interval, and makes the days.

    ``start`` and ``stop`` are safe to call twice.
    """

    def __init__(self, store: Store, clock: Clock, interval_s: float) -> None:
        self._store = store
        self._clock = clock
        self._interval_s = interval_s
        self._halt = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="stagelens-rollups", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        self._halt.set()
        if self._thread is not None:
            self._thread.join(30)

    def _run(self) -> None:
        while not self._halt.wait(self._interval_s):
            try:
                now_s = self._clock.unix_ns() // 10**9
                made = mend(self._store, now_s)
                make_days(self._store, now_s)
            except StoreError as problem:
                log.warning("the roll-ups could not be checked: %s", problem)
            except Exception:  # the thread must outlive any one check
                log.exception("checking the roll-ups was interrupted")
            else:
                if made:
                    log.info("%d steps of the roll-ups were made anew", made)
