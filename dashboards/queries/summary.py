"""Percentiles of every stage in little time.

Up to ``limits.most_read`` requests are read exactly. More of them are read out of the roll-ups
where these keep apart what is asked for, with percentiles of t-digests. Else the counts of a
group are of all its requests, and what is said of its times is that of slices of time
(:mod:`dashboards.queries.sample`); the whole's times come from the roll-ups where they can.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dashboards.filters import Filters, Where, where
from dashboards.models.summary import Summary, SummaryFigures, SummaryGroup
from dashboards.queries import rollups
from dashboards.queries.base import QueryLimits, QueryStore, Row, run
from dashboards.queries.dimensions import Dimension, dimensions, parse_by
from dashboards.queries.losses import losses
from dashboards.queries.measures import LEVEL_NAMES, LEVELS, MEASURES, STAGES, Quantity
from dashboards.queries.sample import Part, part_of
from dashboards.queries.summary_rolled import TABLES, rolled_rows
from tracer.stages import Stage

MOST_GROUPS: Final = 200
KEPT: Final = (
    *STAGES,
    *(one for one in MEASURES if one.name in {"e2e", "ttft", "first_answer", "tpot"}),
)
_STAGES: Final = frozenset(map(str, Stage))
_LEVELS: Final = ", ".join(map(str, LEVELS))
COUNTS: Final = {
    "requests": "true",
    "ok": "Status = 'ok'",
    "errors": "Status = 'error'",
    "cancelled": "Status = 'cancelled'",
    "warm": "Warm",
    "cold": "NOT Warm",
    "cached": "CachedTokens > 0",
    "not_cached": "CachedTokens = 0",
}


@dataclass(frozen=True, slots=True)
class _Question:
    """``part`` picks the requests whose times are read; the counts are of all of ``whole``."""

    filters: Filters
    by: tuple[Dimension, ...]
    names: tuple[str, ...]
    whole: Where
    part: Part
    end_ns: int

    @property
    def rolled(self) -> bool:
        """Whether the sketches answer the whole question."""
        return self.part.sampled is not None and rollups.allowed(self.filters, self.names)

    def params(self, picked: Where) -> dict[str, object]:
        return {**picked.params, **{name: value for one in self.by for name, value in one.params}}


def summary(
    store: QueryStore,
    filters: Filters,
    by: Sequence[str] = (),
    *,
    now_unix_ns: int,
    counts: Mapping[str, object] | None = None,
    limits: QueryLimits | None = None,
) -> Summary:
    """Counts and percentiles, whole and per group; exact up to ``limits.most_read`` requests.

    ``counts`` are the collector's own, when one was asked.

    Raises:
        BadValueError: ``by`` holds a name that is no dimension.
        UnavailableError: the store gave no answer.
    """
    bound = limits or QueryLimits()
    names = parse_by(by)
    asked = _Question(
        filters, dimensions(names), names, where(filters),
        part_of(store, filters, bound, count=False, columns=() if names else _COUNTED),
        filters.until_unix_ns or now_unix_ns,
    )  # fmt: skip
    found, read = _rows(store, asked, bound)
    whole = next((row for row in found if not row["key"]), None)
    groups = [row for row in found if row["key"]]
    groups.sort(key=lambda r: [d.rank(raw) for d, raw in zip(asked.by, r["key"], strict=True)])
    return Summary(
        filters=filters,
        by=names,
        from_unix_ns=filters.since_unix_ns,
        to_unix_ns=asked.end_ns,
        exact=asked.part.sampled is None,
        sampled=None if asked.rolled else asked.part.reading(read).sampled,
        read_from=TABLES if asked.rolled else "requests",
        overall=_group(whole or {}, ()),
        groups=tuple(_group(row, asked.by) for row in groups),
        groups_left_out=int(whole["slices"]) - 1 - len(groups) if whole and names else 0,
        losses=losses(store, filters, counts, bound),
    )


def _rows(store: QueryStore, asked: _Question, limits: QueryLimits) -> tuple[list[Row], int]:
    """A row a group with its ``key``, the largest ``MOST_GROUPS``, and how many requests were read.

    The whole's key is empty.
    """
    if asked.rolled:
        rows = rolled_rows(store, asked.filters, asked.names, asked.end_ns, limits)
        return rows[: MOST_GROUPS + 1], 0
    if asked.part.sampled is None:
        sql = _sql(asked, asked.whole, [*_COUNTED, *_TIMES], MOST_GROUPS + 1)
        return run(store, sql, asked.params(asked.whole), limits), 0
    times = _times(store, asked, limits)
    read = times[()]["read"] if () in times else 0
    if asked.names and rollups.allowed(asked.filters):
        whole = rolled_rows(store, asked.filters, (), asked.end_ns, limits)[0]
        times[()] = {**whole, "read": whole["requests"]}
    found = [{**times.get(tuple(row["key"]), {"read": 0}), **row} for row in _counts(store, asked, limits)]
    return found, int(read)


def _times(
    store: QueryStore, asked: _Question, limits: QueryLimits
) -> dict[tuple[str, ...], Row]:
    """The figures of the requests that were read, by key."""
    figures = ["count() AS read", *_TIMES]
    sql = _sql(asked, asked.part.where, figures, limits.max_result_rows)
    rows = run(store, sql, asked.params(asked.part.where), limits)
    return {tuple(row["key"]): row for row in rows}


def _counts(store: QueryStore, asked: _Question, limits: QueryLimits) -> list[Row]:
    """A row a group of all chosen requests, the largest first; the whole's as they were counted."""
    if asked.part.sums:
        return [{"key": [], **asked.part.sums, "slices": 1}]
    sql = _sql(asked, asked.whole, _COUNTED, MOST_GROUPS + 1)
    return run(store, sql, asked.params(asked.whole), limits)


def _sql(asked: _Question, picked: Where, figures: Sequence[str], most: int) -> str:
    """A row a group with its ``key``, and the whole, whose key is empty, merged out of them."""
    source = f"FROM {{database:Identifier}}.requests WHERE {picked.sql}"
    rest = f"ORDER BY empty(key) DESC, n_all DESC, key LIMIT {most}"
    if not asked.by:
        columns = ", ".join(["emptyArrayString() AS key", *figures, "count() AS n_all"])
        return f"SELECT {columns} {source} {rest}"
    codes = [one.key for one in asked.by]
    group = codes[0] if len(codes) == 1 else f"tuple({', '.join(codes)})"
    parts = ["code"] if len(codes) == 1 else [f"code.{i + 1}" for i in range(len(codes))]
    texts = ", ".join(one.decoded(part) for one, part in zip(asked.by, parts, strict=True))
    grouped = ", ".join(["code", "grouping(code) = 1 AS whole", *figures, "count() AS n_all"])
    return (
        f"SELECT *, if(whole, emptyArrayString(), [{texts}]) AS key, count() OVER () AS slices FROM "  # noqa: S608  values are bound
        f"(SELECT {grouped} FROM (SELECT *, {group} AS code {source}) GROUP BY code WITH ROLLUP) {rest}"
    )


def _columns(quantity: Quantity) -> list[str]:
    name, value, has = quantity.name, quantity.value, quantity.has
    return [
        f"countIf({has}) AS n_{name}",
        f"quantilesExactInclusiveIf({_LEVELS})(assumeNotNull({value}), {has}) AS q_{name}",
        f"maxIf({value}, {has}) AS max_{name}",
        f"sumIf({value}, {has}) AS sum_{name}",
    ]


_COUNTED: Final = (
    *(f"countIf({fact}) AS {name}" for name, fact in COUNTS.items()),
    "sum(OutputTokens) AS output_tokens",
)
_TIMES: Final = tuple(column for one in KEPT for column in _columns(one))


def _group(row: Row, by: tuple[Dimension, ...]) -> SummaryGroup:
    figures = [_figures(row, one) for one in KEPT]
    keys = zip(by, row["key"], strict=True) if by else ()
    return SummaryGroup(
        key={one.name: one.read(raw) for one, raw in keys},
        **{name: int(row.get(name) or 0) for name in COUNTS},
        output_tokens=None if row.get("output_tokens") is None else int(row["output_tokens"]),
        read=_read(row),
        stages=tuple(one for one in figures if one.name in _STAGES),
        measures=tuple(one for one in figures if one.name not in _STAGES),
    )


def _read(row: Row) -> int:
    """Of how many requests the times are."""
    return int(row.get("read", row.get("requests")) or 0)


def _whole(value: float) -> int:
    """Nanoseconds; a store of before migration 0011 may hold a TPOT that no sum can take."""
    return round(value) if math.isfinite(value) else sys.maxsize


def _figures(row: Row, one: Quantity) -> SummaryFigures:
    n, whole = int(row.get(f"n_{one.name}") or 0), int(row.get("sum_e2e") or 0)
    spent = _whole(row[f"sum_{one.name}"]) if n else 0
    levels = row[f"q_{one.name}"] if n else [None] * len(LEVEL_NAMES)
    return SummaryFigures(
        name=one.name,
        n=n,
        no_data=_read(row) - n,
        **{
            f"{name}_ns": round(value) if value is not None and math.isfinite(value) else None
            for name, value in zip(LEVEL_NAMES, levels, strict=True)
        },
        max_ns=_whole(row[f"max_{one.name}"]) if n else None,
        sum_ns=spent,
        share=spent / whole if whole and one.name in _STAGES else None,
    )
