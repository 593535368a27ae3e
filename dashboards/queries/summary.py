"""Percentiles of every stage in little time.

Up to ``EXACT_UP_TO`` requests are read exactly. More of them are read out of the roll-ups
where these keep apart what is asked for, with percentiles of t-digests. Else counts, sums and
maxima are of all, and percentiles of every k-th request by a hash of its time, so that about
as many are left.
"""

from __future__ import annotations

import math
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
from dashboards.queries.summary_rolled import TABLES, rolled_rows
from tracer.stages import Stage

MOST_GROUPS: Final = 200
EXACT_UP_TO: Final = 200_000
"""Up to this many requests are read themselves, and their percentiles are exact."""
KEPT: Final = (
    *STAGES,
    *(one for one in MEASURES if one.name in {"e2e", "ttft", "first_answer", "tpot"}),
)
_STAGES: Final = frozenset(map(str, Stage))
_LEVELS: Final = ", ".join(map(str, LEVELS))
_SAMPLED: Final = "cityHash64(Timestamp) % {every:UInt32} = 0"
_TOTAL_SQL: Final = "SELECT count() AS total FROM {database:Identifier}.requests WHERE"
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
    by: tuple[Dimension, ...]
    where: Where
    every: int

    @property
    def params(self) -> dict[str, object]:
        tags = {name: value for one in self.by for name, value in one.params}
        return {**self.where.params, **tags, "every": self.every}


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
    names, picked = parse_by(by), where(filters)
    total = int(run(store, f"{_TOTAL_SQL} {picked.sql}", picked.params, bound)[0]["total"])
    end_ns = filters.until_unix_ns or now_unix_ns
    asked = _Question(dimensions(names), picked, max(1, -(-total // max(1, EXACT_UP_TO))))
    rolled = asked.every > 1 and rollups.allowed(filters, names)
    if rolled:
        found = rolled_rows(store, filters, names, end_ns, bound)[: MOST_GROUPS + 1]
    else:
        found = run(store, _sql(asked), asked.params, bound)
    whole = next((row for row in found if not row["key"]), None)
    groups = [row for row in found if row["key"]]
    groups.sort(key=lambda r: [d.rank(raw) for d, raw in zip(asked.by, r["key"], strict=True)])
    return Summary(
        filters=filters,
        by=names,
        from_unix_ns=filters.since_unix_ns,
        to_unix_ns=end_ns,
        exact=asked.every == 1,
        read_from=TABLES if rolled else "requests",
        overall=_group(whole or {}, ()),
        groups=tuple(_group(row, asked.by) for row in groups),
        groups_left_out=int(whole["slices"]) - 1 - len(groups) if whole and names else 0,
        losses=losses(store, filters, counts, bound),
    )


def _sql(asked: _Question) -> str:
    """A row a group with its ``key``, and the whole, whose key is empty, merged out of them."""
    raw = [f"{one.sql} AS k{i}" for i, one in enumerate(asked.by)]
    chosen = ", ".join(["*", f"{_SAMPLED if asked.every > 1 else 'true'} AS Sampled", *raw])
    key = f"[{', '.join(f'k{i}' for i in range(len(raw)))}]" if raw else "emptyArrayString()"
    figures = [
        *(f"countIf({fact}) AS {name}" for name, fact in COUNTS.items()),
        "sum(toUInt64(ifNull(OutputTokens, 0))) AS output_tokens",
        *(column for one in KEPT for column in _columns(one)),
        "count() OVER () AS slices",
    ]
    return " ".join(
        (
            "SELECT", ", ".join([f"{key} AS key", *figures]), "FROM (SELECT", chosen,
            "FROM {database:Identifier}.requests WHERE", asked.where.sql, ")",
            f"GROUP BY key{' WITH ROLLUP' if raw else ''}",
            f"ORDER BY empty(key) DESC, requests DESC, key LIMIT {MOST_GROUPS + 1}",
        )
    )  # fmt: skip


def _columns(quantity: Quantity) -> list[str]:
    name, value, has = quantity.name, quantity.value, quantity.has
    return [
        f"countIf({has}) AS n_{name}",
        f"quantilesExactInclusiveIf({_LEVELS})(assumeNotNull({value}), Sampled AND {has}) AS q_{name}",
        f"maxIf({value}, {has}) AS max_{name}",
        f"sumIf({value}, {has}) AS sum_{name}",
    ]


def _group(row: Row, by: tuple[Dimension, ...]) -> SummaryGroup:
    figures = [_figures(row, one) for one in KEPT]
    keys = zip(by, row["key"], strict=True) if by else ()
    return SummaryGroup(
        key={one.name: one.read(raw) for one, raw in keys},
        **{name: int(row.get(name) or 0) for name in (*COUNTS, "output_tokens")},
        stages=tuple(one for one in figures if one.name in _STAGES),
        measures=tuple(one for one in figures if one.name not in _STAGES),
    )


def _figures(row: Row, one: Quantity) -> SummaryFigures:
    n, whole = int(row.get(f"n_{one.name}") or 0), int(row.get("sum_e2e") or 0)
    spent = round(row[f"sum_{one.name}"]) if n else 0
    levels = row[f"q_{one.name}"] if n else [None] * len(LEVEL_NAMES)
    return SummaryFigures(
        name=one.name,
        n=n,
        no_data=int(row.get("requests") or 0) - n,
        **{
            f"{name}_ns": round(value) if value is not None and math.isfinite(value) else None
            for name, value in zip(LEVEL_NAMES, levels, strict=True)
        },
        max_ns=round(row[f"max_{one.name}"]) if n else None,
        sum_ns=spent,
        share=spent / whole if whole and one.name in _STAGES else None,
    )
