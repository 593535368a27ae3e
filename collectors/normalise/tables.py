"""What the normaliser reads from the store and writes to it."""

# ruff: noqa: S608  only the checked database name and words of our own are put into statements
from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from collectors.normalise import names
from collectors.normalise.row import Row
from collectors.normalise.span import Span

MOST_SPANS = 5000
"""Most spans read of one trace, the earliest."""
CURSOR = "normalise"


class NormaliserStore(Protocol):
    """What is needed of a store."""

    database: str

    def held(self, table: str) -> str: ...

    def query(self, sql: str, params: Mapping[str, object]) -> list[dict[str, object]]: ...

    def command(self, sql: str, params: Mapping[str, object] | None = None) -> None: ...

    def insert(
        self, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]], token: str
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class Seen:
    """New spans of one trace; times in milliseconds of the store's clock."""

    trace_id: str
    first_ms: int
    last_ms: int
    calls: int


class Tables:
    """The store's tables in the normaliser's terms."""

    def __init__(self, store: NormaliserStore) -> None:
        self._store = store
        self._db = f"`{store.database}`"

    def now_ms(self) -> int:
        rows = self._store.query("SELECT toUnixTimestamp64Milli(now64(3, 'UTC')) AS now", {})
        return _int(rows[0]["now"])

    def cursor_ms(self) -> int | None:
        """How far an earlier process came; None for a store that none has looked at."""
        rows = self._store.query(
            f"SELECT toUnixTimestamp64Milli(max(UpTo)) AS upto, count() AS n "
            f"FROM {self._db}.foreign_cursor WHERE Name = {{name:String}}",
            {"name": CURSOR},
        )
        return _int(rows[0]["upto"]) if _int(rows[0]["n"]) else None

    def keep_cursor(self, upto_ms: int) -> None:
        self._store.command(
            f"INSERT INTO {self._db}.foreign_cursor (Name, UpTo) "
            "SELECT {name:String}, fromUnixTimestamp64Milli({upto:Int64}, 'UTC')",
            {"name": CURSOR, "upto": upto_ms},
        )

    def seen_since(self, after_ms: int, most: int) -> list[Seen]:
        """Traces with spans of other tools that came after ``after_ms``, the oldest first."""
        rows = self._store.query(
            "SELECT TraceId, toUnixTimestamp64Milli(min(SeenAt)) AS first, "
            "toUnixTimestamp64Milli(max(SeenAt)) AS last, sum(Calls) AS calls "
            f"FROM {self._db}.foreign_traces "
            "WHERE SeenAt > fromUnixTimestamp64Milli({after:Int64}, 'UTC') "
            "GROUP BY TraceId ORDER BY last LIMIT {most:UInt32}",
            {"after": after_ms, "most": most},
        )
        return [
            Seen(str(r["TraceId"]), _int(r["first"]), _int(r["last"]), _int(r["calls"]))
            for r in rows
        ]

    def with_calls(self, trace_ids: Sequence[str]) -> set[str]:
        """Those of the traces that had a model call of another tool at any time."""
        rows = self._store.query(
            f"SELECT DISTINCT TraceId FROM {self._db}.foreign_traces "
            "WHERE TraceId IN {ids:Array(String)} AND Calls > 0",
            {"ids": list(trace_ids)},
        )
        return {str(r["TraceId"]) for r in rows}

    def spans(self, trace_ids: Sequence[str]) -> dict[str, list[Span]]:
        """All spans of the traces, of every tool and ours."""
        bounds = self._bounds(trace_ids)
        if bounds is None:
            return {}
        rows = self._store.query(
            _SPANS.replace("{db}", self._db),
            {"ids": list(trace_ids), **bounds, "most": MOST_SPANS, "wanted": sorted(names.WANTED),
             "events": list(names.CHUNK_EVENTS), "every": list(names.EVERY_CHUNK)},
        )  # fmt: skip
        found: dict[str, list[Span]] = {}
        for row in rows:
            span = _span(row)
            found.setdefault(span.trace_id, []).append(span)
        return found

    def rows(self, trace_ids: Sequence[str]) -> list[Row]:
        """The rows of ``requests`` of the traces, ``Timestamp`` in nanoseconds."""
        return self._store.query(
            "SELECT * REPLACE (toUnixTimestamp64Nano(Timestamp) AS Timestamp) "
            f"FROM {self._db}.requests WHERE TraceId IN {{ids:Array(String)}}",
            {"ids": list(trace_ids)},
        )

    def replace(self, new: Sequence[Row], old: Sequence[Row], version: int) -> None:
        """Put ``new`` in, then take ``old`` out.

        A crash between the two leaves both; the next look at the trace mends that.
        """
        for columns, rows in _by_columns(new).items():
            token = hashlib.sha256(repr((columns, rows)).encode()).hexdigest()
            self._store.insert("requests", columns, rows, f"normalise/{token}")
        if old:
            self._delete(old, version)

    def _delete(self, old: Sequence[Row], version: int) -> None:
        times = [_int(row["Timestamp"]) for row in old]
        keys = [f"{row['TraceId']}{row['SpanId']}{row['Version']}" for row in old]
        self._store.command(
            f"DELETE FROM {self._store.held('requests')} WHERE "
            "Timestamp >= fromUnixTimestamp64Nano({first:Int64}, 'UTC') "
            "AND Timestamp <= fromUnixTimestamp64Nano({last:Int64}, 'UTC') "
            "AND TraceId IN {ids:Array(String)} "
            "AND concat(TraceId, SpanId, toString(Version)) IN {keys:Array(String)} "
            "AND Version < {version:UInt64}",
            {"first": min(times), "last": max(times), "keys": keys, "version": version,
             "ids": sorted({str(row["TraceId"]) for row in old})},
        )  # fmt: skip

    def _bounds(self, trace_ids: Sequence[str]) -> dict[str, int] | None:
        rows = self._store.query(
            "SELECT toInt64(min(toUnixTimestamp(Start))) AS first, "
            "toInt64(max(toUnixTimestamp(End))) AS last, count() AS n "
            f"FROM {self._db}.otel_traces_trace_id_ts WHERE TraceId IN {{ids:Array(String)}}",
            {"ids": list(trace_ids)},
        )
        if not _int(rows[0]["n"]):
            return None
        return {
            "first": _int(rows[0]["first"]) * 10**9,
            "end": (_int(rows[0]["last"]) + 1) * 10**9,
        }


_SPANS = """\
SELECT TraceId, SpanId, ParentSpanId, SpanName, SpanKind, ServiceName, ScopeName,
  ResourceAttributes['service.instance.id'] AS Instance,
  toUnixTimestamp64Nano(Timestamp) AS StartNs, Duration, StatusCode,
  mapFilter((k, v) -> has({wanted:Array(String)}, k), CAST(SpanAttributes, 'Map(String, String)')) AS Told,
  arrayMap(t -> toUnixTimestamp64Nano(t), arrayFilter((t, n) -> has({events:Array(String)}, n),
    Events.Timestamp, CAST(Events.Name, 'Array(String)'))) AS Chunks,
  arrayExists(n -> has({every:Array(String)}, n), CAST(Events.Name, 'Array(String)')) AS Every,
  arrayFirst(a -> mapContains(a, 'exception.type'), Events.Attributes)['exception.type'] AS Exception
FROM {db}.otel_traces
WHERE TraceId IN {ids:Array(String)}
  AND Timestamp >= fromUnixTimestamp64Nano({first:Int64}, 'UTC')
  AND Timestamp < fromUnixTimestamp64Nano({end:Int64}, 'UTC')
ORDER BY TraceId, StartNs LIMIT {most:UInt32} BY TraceId"""


def _span(row: Mapping[str, object]) -> Span:
    start = _int(row["StartNs"])
    told, chunks = row["Told"], row["Chunks"]
    times = [_int(at) for at in chunks] if isinstance(chunks, (list, tuple)) else []
    return Span(
        trace_id=str(row["TraceId"]),
        span_id=str(row["SpanId"]),
        parent_id=str(row["ParentSpanId"]),
        name=str(row["SpanName"]),
        kind=str(row["SpanKind"]),
        service=str(row["ServiceName"]),
        instance=str(row["Instance"]),
        scope=str(row["ScopeName"]),
        start_ns=start,
        end_ns=start + _int(row["Duration"]),
        failed=row["StatusCode"] in ("Error", "STATUS_CODE_ERROR"),
        attributes=told if isinstance(told, dict) else {},
        first_chunk_ns=min(times, default=0),
        last_chunk_ns=max(times, default=0) if row["Every"] else 0,
        exception=str(row["Exception"] or ""),
    )


def _by_columns(rows: Sequence[Row]) -> dict[tuple[str, ...], list[tuple[object, ...]]]:
    found: dict[tuple[str, ...], list[tuple[object, ...]]] = {}
    for row in rows:
        found.setdefault(tuple(row), []).append(tuple(row.values()))
    return found


def _int(value: object) -> int:
    return int(str(value))
