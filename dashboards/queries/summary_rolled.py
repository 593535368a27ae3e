"""The summary's rows out of the sketches by minute and hour, for windows of many requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dashboards.filters import Filters, where
from dashboards.queries import rollups
from dashboards.queries.base import QueryLimits, QueryStore, Row, run
from dashboards.queries.measures import LEVELS

TABLES: Final = "requests_1d, requests_1h, requests_1m"
_STATUS: Final = ("status", "warm", "cached")
_FIRST_SQL: Final = """\
SELECT toUnixTimestamp64Nano(min(Timestamp)) AS First FROM {database:Identifier}.requests"""
_NAMES: Final = (*(one.name for one in rollups.QUANTITIES), rollups.OUTPUT_TOKENS.name)
_COUNTS: Final = {
    "ok": ("status", "ok"),
    "errors": ("status", "error"),
    "cancelled": ("status", "cancelled"),
    "warm": ("warm", "1"),
    "cold": ("warm", "0"),
    "cached": ("cached", "1"),
    "not_cached": ("cached", "0"),
}


def rolled_rows(
    store: QueryStore, filters: Filters, by: Sequence[str], end_ns: int, limits: QueryLimits
) -> list[Row]:
    """Rows as the summary reads them: a ``key`` a group, the whole's empty; largest first.

    ``filters`` and ``by`` are such that :func:`dashboards.queries.rollups.allowed` says yes.

    Raises:
        UnavailableError: the store gave no answer.
    """
    begin = filters.since_unix_ns
    if begin is None:
        begin = int(run(store, _FIRST_SQL, {}, limits)[0]["First"])
    window = rollups.cut(begin, end_ns, days=rollups.made_days(store, begin, end_ns, limits))
    found = run(store, _sql(filters, by, window), where(filters).params, limits)
    by_key: dict[tuple[str, ...], Row] = {}
    for row in found:
        name = row["Quantity"]
        if not name:  # the row of all quantities together, which means nothing
            continue
        wide = by_key.setdefault(tuple(row["key"]), {"key": row["key"]})
        wide |= {f"{part}_{name}": row[part] for part in ("n", "sum", "max", "q")}
        if name == "e2e":
            wide |= {"requests": row["n"], **{count: row[count] for count in _COUNTS}}
        if name == rollups.OUTPUT_TOKENS.name:
            wide["output_tokens"] = row["sum"]
    rows = sorted(by_key.values(), key=lambda row: (bool(row["key"]), -row["requests"], row["key"]))
    return [{**row, "slices": len(rows)} for row in rows]


def _sql(filters: Filters, by: Sequence[str], window: rollups.Window) -> str:
    parts = rollups.parts(
        filters, (*by, *_STATUS), window, _NAMES
    )  # k0 ... of `by`, then those of the counts
    place = {name: f"toString(k{len(by) + i})" for i, name in enumerate(_STATUS)}
    keys = ", ".join(_key(name, f"toString(k{i})") for i, name in enumerate(by))
    key = f"[{keys}]" if by else "emptyArrayString()"
    levels = ", ".join(map(str, LEVELS))
    counts = [
        f"sumIf(N, {place[column]} = '{value}') AS {name}"
        for name, (column, value) in _COUNTS.items()
    ]
    figures = [
        "sum(N) AS n", "sum(Sum) AS sum", "max(Max) AS max",
        f"quantilesTDigestMerge({levels})(Sketch) AS q", *counts,
    ]  # fmt: skip
    group = "GROUP BY Quantity, key" + (" WITH ROLLUP" if by else "")
    return " ".join(
        ("SELECT Quantity,", f"{key} AS key,", ", ".join(figures), "FROM (", parts, ")", group)
    )


def _key(name: str, text: str) -> str:
    """As the dimensions write a value: nothing where it is not known, else ``v`` and the value."""
    if name in {"warm", "cached", "stream"}:
        return f"multiIf({text} = '-1', '', {text} IN ('1', 'true'), 'vyes', 'vno')"
    return f"if({text} = '', '', concat('v', {text}))"
