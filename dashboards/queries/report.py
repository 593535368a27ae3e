"""The report: one pass over the chosen requests for all figures, whole and per group.

Each request is read once and counted twice, for the whole (level 0) and for its group
(level 1), so that the groups of one answer always add up to its whole, also while new
requests arrive. The shares of the slowest 5 % take a second pass of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dashboards.filters import Filters, Where, where
from dashboards.models.report import GroupsLeftOut, Report, Slice
from dashboards.queries import intervals
from dashboards.queries.assumptions import assumptions
from dashboards.queries.base import QueryLimits, QueryStore, Row, run
from dashboards.queries.dimensions import Dimension, dimensions, parse_by
from dashboards.queries.losses import losses
from dashboards.queries.measures import (
    PARTS,
    QUANTITIES,
    STAGE_COLUMNS,
    SUM_OF_STAGES,
    Quantity,
    aggregates,
)
from dashboards.queries.reading import reading
from dashboards.queries.slices import empty_slice, read_slice
from tracer.semconv import ITL_CAP

MOST_GROUPS: Final = 200

_COUNTS: Final = (
    "count() AS total",
    "countIf(Status = 'ok') AS ok",
    "countIf(Status = 'error') AS error",
    "countIf(Status = 'cancelled') AS cancelled",
    "sumMapIf(map(toString(ErrorType), toUInt64(1)), ErrorType != '') AS error_types",
    "countIf(CachedTokens > 0) AS cached",
    "countIf(CachedTokens = 0) AS not_cached",
    "countIf(Warm) AS warm",
    "countIf(NOT Warm) AS cold",
    "sumMapIf(map(toString(ColdReason), toUInt64(1)), ColdReason != '') AS cold_reasons",
    "countIf(Stream) AS streamed",
    "countIf(Preemptions > 0) AS preempted_requests",
    "countIf(notEmpty(Repairs)) AS repaired",
    f"countIf(length(ItlNs) >= {ITL_CAP} AND OutputTokens > length(ItlNs) + greatest(Choices, 1)) AS itl_cut",
    f"countIf({SUM_OF_STAGES} != E2ENs) AS partition_broken",
)
_ACTIVITY: Final = (
    "min(StartNs) AS first_start",
    "max(StartNs + toInt64(E2ENs)) AS last_end",
    "maxIntersections(StartNs, StartNs + toInt64(E2ENs)) AS peak",
    "count(InputTokens) AS input_known",
    "sum(toUInt64(InputTokens)) AS input_tokens",
    "count(OutputTokens) AS output_known",
    "sum(toUInt64(OutputTokens)) AS output_tokens",
)
_SUMS: Final = tuple(
    f"sum(toUInt128({value})) AS sum_{name}"
    for name, value in (
        ("e2e", "E2ENs"),
        *STAGE_COLUMNS.items(),
        *((part.name, part.value) for part in PARTS.values()),
    )
)
_READ_COLUMNS: Final = (
    "toUnixTimestamp64Nano(Timestamp) AS StartNs",
    *("Status", "ErrorType", "Stream", "Choices", "Warm", "ColdReason", "Repairs", "StageCounts"),
    *("E2ENs", "HandoffNs", "PreemptedNs", "Preemptions", *STAGE_COLUMNS.values()),
    *("FirstChunkNs", "FirstTokenNs", "FirstAnswerNs", "TpotNs", "ItlNs", "ItlKind"),
    *("InputTokens", "OutputTokens", "CachedTokens"),
)


@dataclass(frozen=True, slots=True)
class _Question:
    """The pieces both passes are made of."""

    by: tuple[Dimension, ...]
    where: Where

    @property
    def params(self) -> dict[str, object]:
        tags = {name: value for one in self.by for name, value in one.params}
        return {**self.where.params, **tags}

    @property
    def keys(self) -> list[str]:
        return [f"k{i}" for i in range(len(self.by))]

    def rows(self, columns: Sequence[str]) -> str:
        """The chosen requests, each once a level, with ``level`` and its group's keys."""
        raw = [f"{one.sql} AS raw_{key}" for key, one in zip(self.keys, self.by, strict=True)]
        keys = [f"if(level = 0, '', raw_{key}) AS {key}" for key in self.keys]
        levels = "[0, 1]" if self.by else "[0]"
        chosen = " ".join(
            (
                "SELECT",
                ", ".join([*columns, *raw]),
                "FROM {database:Identifier}.requests WHERE",
                self.where.sql,
            )
        )
        return f"{_select(['*', 'level', *keys], f'({chosen})')} ARRAY JOIN {levels} AS level"


def report(
    store: QueryStore,
    filters: Filters,
    by: Sequence[str] = (),
    *,
    now_unix_ns: int,
    counts: Mapping[str, object] | None = None,
    limits: QueryLimits | None = None,
) -> Report:
    """The figures of the requests that ``filters`` choose, whole and per group of ``by``.

    A group is one combination of values of the dimensions in ``by``; the largest
    ``MOST_GROUPS`` are kept, the rest counted in ``groups_left_out``. ``counts`` are the
    collector's own, when one was asked. With no request at all every figure is ``None``
    and every count 0.

    Raises:
        BadValueError: ``by`` holds a name that is no dimension.
        UnavailableError: the store gave no answer.
    """
    bound = limits or QueryLimits()
    names = parse_by(by)
    asked = _Question(dimensions(names), where(filters))
    rows = run(store, _figures_sql(asked), asked.params, bound)
    slowest = run(store, _slowest_sql(asked), asked.params, bound)
    few = [one for row in rows if row["level"] == 0 for one in intervals.worth(row)]
    bounds = run(store, _intervals_sql(asked, few), asked.params, bound) if few else []
    overall, groups, left_out = _slices(asked, rows, slowest, bounds)
    lost = losses(store, filters, counts, bound)
    return Report(
        made_at_unix_ns=now_unix_ns,
        database=store.database,
        filters=filters,
        by=names,
        overall=overall,
        groups=groups,
        groups_left_out=left_out,
        losses=lost,
        assumptions=assumptions(filters, overall, now_unix_ns),
        reading=reading(overall, lost),
    )


def _select(columns: Sequence[str], source: str) -> str:
    return " ".join(("SELECT", ", ".join(columns), "FROM", source))


def _figures_sql(asked: _Question) -> str:
    figures = [*_COUNTS, *_ACTIVITY, *_SUMS]
    for quantity in QUANTITIES:
        figures += aggregates(quantity)
    group = ["level", *asked.keys]
    columns = [*group, *figures, "count() OVER () AS slices"]
    return "\n".join(
        (
            _select(columns, f"({asked.rows(_READ_COLUMNS)})"),
            f"GROUP BY {', '.join(group)}",
            f"ORDER BY level, total DESC, {', '.join(group)} LIMIT {MOST_GROUPS + 1}",
        )
    )


def _slowest_sql(asked: _Question) -> str:
    """Sums of the stages over each slice's requests at or above the bound of its slowest 5 %.

    ``quantileExact`` takes a value that is there, so a slice with requests has one.
    """
    group = ", ".join(["level", *asked.keys])
    rows = asked.rows(("E2ENs", "HandoffNs", "PreemptedNs", *STAGE_COLUMNS.values()))
    edge = _select([group, "quantileExact(0.95)(E2ENs) AS bound"], f"({rows})")
    return "\n".join(
        (
            _select([group, "count() AS n", *_SUMS], f"({rows}) AS one"),
            f"INNER JOIN ({edge} GROUP BY {group}) AS edge USING ({group})",
            f"WHERE E2ENs >= bound GROUP BY {group}",
        )
    )


def _intervals_sql(asked: _Question, of: Sequence[Quantity]) -> str:
    """The bounds of the percentiles' intervals of each slice."""
    group = ["level", *asked.keys]
    columns = [*group, *intervals.inner_columns(of)]
    values = f"{_select(columns, f'({asked.rows(_READ_COLUMNS)})')} GROUP BY {', '.join(group)}"
    return _select([*group, *intervals.outer_columns(of)], f"({values})")


def _slices(
    asked: _Question, rows: list[Row], slowest: list[Row], edges: list[Row]
) -> tuple[Slice, tuple[Slice, ...], GroupsLeftOut]:
    tails = {_place(asked, row): row for row in slowest}
    bounds = {_place(asked, row): row for row in edges}
    whole = [row for row in rows if row["level"] == 0]
    if not whole:
        return empty_slice(), (), GroupsLeftOut(groups=0, requests=0)
    place = _place(asked, whole[0])
    overall = read_slice(whole[0], tails.get(place), {}, bounds.get(place))
    grouped = [row for row in rows if row["level"] == 1]
    grouped.sort(
        key=lambda row: [one.rank(row[key]) for key, one in zip(asked.keys, asked.by, strict=True)]
    )
    groups = tuple(
        read_slice(row, tails.get(at), _key(asked, row), bounds.get(at))
        for row, at in ((row, _place(asked, row)) for row in grouped)
    )
    left = GroupsLeftOut(
        groups=int(whole[0]["slices"]) - 1 - len(groups),
        requests=overall.counts.total - sum(g.counts.total for g in groups) if asked.by else 0,
    )
    return overall, groups, left


def _place(asked: _Question, row: Row) -> tuple[object, ...]:
    return (row["level"], *(row[key] for key in asked.keys))


def _key(asked: _Question, row: Row) -> dict[str, str | None]:
    return {one.name: one.read(row[key]) for key, one in zip(asked.keys, asked.by, strict=True)}
