"""Percentiles of every stage in little time, out of the roll-ups where there are many requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dashboards.filters import Filters, where
from dashboards.models.summary import Summary, SummaryFigures, SummaryGroup
from dashboards.queries.base import QueryLimits, QueryStore, Row, run
from dashboards.queries.dimensions import Dimension, dimensions, parse_by
from dashboards.queries.losses import losses
from dashboards.queries.measures import LEVEL_NAMES, Quantity
from dashboards.queries.rollups import (
    EXACT_UP_TO,
    KEPT,
    answers,
    merged,
    read,
    rolled_dimensions,
    rolled_where,
    rows,
    total,
    window,
)
from tracer.stages import Stage

MOST_GROUPS: Final = 200
_STAGES: Final = frozenset(map(str, Stage))


@dataclass(frozen=True, slots=True)
class _Plan:
    """Where the figures come from."""

    table: str
    source: str
    figures: tuple[str, ...]
    by: tuple[Dimension, ...]
    params: dict[str, object]
    begin_ns: int | None
    end_ns: int
    exact: bool


def summary(
    store: QueryStore,
    filters: Filters,
    by: Sequence[str] = (),
    *,
    now_unix_ns: int,
    counts: Mapping[str, object] | None = None,
    limits: QueryLimits | None = None,
) -> Summary:
    """Counts and percentiles, whole and per group; exact up to ``EXACT_UP_TO`` requests.

    ``counts`` are the collector's own, when one was asked.

    Raises:
        BadValueError: ``by`` holds a name that is no dimension.
        UnavailableError: the store gave no answer.
    """
    bound = limits or QueryLimits()
    names = parse_by(by)
    many = total(store, where(filters), bound) > EXACT_UP_TO
    if many and answers(filters, names):
        plan = _rolled(store, filters, names, now_unix_ns, bound)
    else:
        plan = _plain(filters, names, now_unix_ns, exact=not many)
    found = run(store, _sql(plan), plan.params, bound)
    whole = next((row for row in found if not row["key"]), None)
    groups = [row for row in found if row["key"]]
    groups.sort(
        key=lambda row: [one.rank(raw) for one, raw in zip(plan.by, row["key"], strict=True)]
    )
    return Summary(
        filters=filters,
        by=names,
        from_unix_ns=plan.begin_ns,
        to_unix_ns=plan.end_ns,
        exact=plan.exact,
        read_from=plan.table,
        overall=_group(whole or {}, ()),
        groups=tuple(_group(row, plan.by) for row in groups),
        groups_left_out=int(whole["slices"]) - 1 - len(groups) if whole and names else 0,
        losses=losses(store, filters, counts, bound),
    )


def _plain(filters: Filters, names: tuple[str, ...], now_unix_ns: int, *, exact: bool) -> _Plan:
    picked, by = where(filters), dimensions(names)
    tags = {name: value for one in by for name, value in one.params}
    return _Plan(
        table="requests",
        source=f"{{database:Identifier}}.requests WHERE {picked.sql}",
        figures=(
            "count() AS requests", "countIf(Status = 'ok') AS ok", "countIf(Status = 'error') AS errors",
            "countIf(Status = 'cancelled') AS cancelled",
            "countIf(Warm) AS warm", "countIf(NOT Warm) AS cold",
            "countIf(CachedTokens > 0) AS cached", "countIf(CachedTokens = 0) AS not_cached",
            "sum(toUInt64(ifNull(InputTokens, 0))) AS input_tokens",
            "sum(toUInt64(ifNull(OutputTokens, 0))) AS output_tokens",
            *(column for one in KEPT for column in read(one, exact=exact)),
        ),
        by=by,
        params={**picked.params, **tags},
        begin_ns=filters.since_unix_ns,
        end_ns=filters.until_unix_ns or now_unix_ns,
        exact=exact,
    )  # fmt: skip


def _rolled(
    store: QueryStore,
    filters: Filters,
    names: tuple[str, ...],
    now_unix_ns: int,
    limits: QueryLimits,
) -> _Plan:
    begin = filters.since_unix_ns or first_ns(store, limits)
    span = window(begin, filters.until_unix_ns or now_unix_ns)
    picked = rolled_where(filters)
    return _Plan(
        table="requests_1h, requests_1m",
        source=rows(picked.sql),
        figures=(
            "sum(Requests) AS requests",
            *(f"sumIf(Requests, Status = '{status}') AS {name}"
              for status, name in (("ok", "ok"), ("error", "errors"), ("cancelled", "cancelled"))),
            "sumIf(Requests, Warm = 1) AS warm", "sumIf(Requests, Warm = 0) AS cold",
            "sumIf(Requests, Cached = 1) AS cached", "sumIf(Requests, Cached = 0) AS not_cached",
            "sum(InputTokens) AS input_tokens", "sum(OutputTokens) AS output_tokens",
            *(column for one in KEPT for column in merged(one)),
        ),
        by=rolled_dimensions(names),
        params={**picked.params, **span.params},
        begin_ns=span.begin,
        end_ns=span.end,
        exact=False,
    )  # fmt: skip


def first_ns(store: QueryStore, limits: QueryLimits) -> int:
    """When the earliest stored request began; 0 where there is none."""
    sql = (
        "SELECT toUnixTimestamp64Nano(min(Timestamp)) AS First FROM {database:Identifier}.requests"
    )
    return int(run(store, sql, {}, limits)[0]["First"])


def _sql(plan: _Plan) -> str:
    """A row a group with its ``key``, and the whole, whose key is empty, merged out of them."""
    raw = [f"{one.sql} AS k{i}" for i, one in enumerate(plan.by)]
    chosen = " ".join(("SELECT", ", ".join(["*", *raw]), "FROM", plan.source))
    key = (
        f"[{', '.join(f'k{i}' for i in range(len(plan.by)))}]" if plan.by else "emptyArrayString()"
    )
    return " ".join(
        (
            "SELECT", ", ".join([f"{key} AS key", *plan.figures, "count() OVER () AS slices"]),
            f"FROM ({chosen}) GROUP BY key{' WITH ROLLUP' if plan.by else ''}",
            f"ORDER BY empty(key) DESC, requests DESC, key LIMIT {MOST_GROUPS + 1}",
        )
    )  # fmt: skip


def _group(row: Row, by: tuple[Dimension, ...]) -> SummaryGroup:
    counts = ("requests", "ok", "errors", "cancelled", "warm", "cold", "cached", "not_cached")
    figures = [_figures(row, one) for one in KEPT]
    return SummaryGroup(
        key={one.name: one.read(raw) for one, raw in zip(by, row.get("key", ()), strict=True)}
        if by
        else {},
        **{name: int(row.get(name) or 0) for name in (*counts, "input_tokens", "output_tokens")},
        stages=tuple(one for one in figures if one.name in _STAGES),
        measures=tuple(one for one in figures if one.name not in _STAGES),
    )


def _figures(row: Row, one: Quantity) -> SummaryFigures:
    n, whole = int(row.get(f"n_{one.name}") or 0), int(row.get("sum_e2e") or 0)
    spent = round(row[f"sum_{one.name}"]) if n else 0
    return SummaryFigures(
        name=one.name,
        n=n,
        no_data=int(row.get("requests") or 0) - n,
        **{
            f"{name}_ns": round(value) if n else None
            for name, value in zip(LEVEL_NAMES, row.get(f"q_{one.name}") or [None] * 4, strict=True)
        },
        max_ns=round(row[f"max_{one.name}"]) if n else None,
        sum_ns=spent,
        share=spent / whole if whole and one.name in _STAGES else None,
    )
