"""The two sides of a comparison, as they are read: how many, how long, and their values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dashboards.filters import Filters, Where, where
from dashboards.models.sample import Sampled
from dashboards.queries import rollups
from dashboards.queries.base import QueryLimits, QueryStore, Row, run
from dashboards.queries.dimensions import INPUT_BOUNDS, OUTPUT_BOUNDS, bucket_labels, bucket_of
from dashboards.queries.intervals import inner_columns
from dashboards.queries.measures import MEASURES, STAGES, Quantity
from dashboards.queries.sample import Part, part_of

MOST_VALUES: Final = 20_000
COMPARED: Final = (*(q for q in MEASURES if not q.gaps), *STAGES)
LENGTHS: Final[Mapping[str, tuple[str, Sequence[int]]]] = {
    "input": ("InputTokens", INPUT_BOUNDS), "output": ("OutputTokens", OUTPUT_BOUNDS),
}  # fmt: skip
_SOURCE: Final = "FROM {database:Identifier}.requests WHERE"
_CHOSEN: Final = f"ORDER BY cityHash64(TraceId, SpanId) LIMIT {MOST_VALUES}"


@dataclass(frozen=True, slots=True)
class Values:
    """One side as read; ``ordered`` holds the values of each quantity, sorted.

    ``mix`` counts, for ``input`` and ``output``, the requests in each bucket of lengths.
    """

    total: int
    mean_input: float | None
    mean_output: float | None
    ordered: Mapping[str, Sequence[float]]
    mix: Mapping[str, Mapping[str, int]]
    sampled: Sampled | None = None


def read_sides(
    store: QueryStore, a: Filters, b: Filters, limits: QueryLimits, *, match: bool
) -> tuple[Values, Values, tuple[int, int]]:
    """Both sides, with ``match`` cut to one mix of lengths, and how many that left out of each.

    Raises:
        UnavailableError: the store gave no answer.
    """
    parts = [part_of(store, one, limits) for one in (a, b)]
    if match:
        rows = [_rows(store, part.where, limits) for part in parts]
        kept = _matched(rows[0], rows[1])
        of_a, of_b = (_cut(one, part.sampled) for one, part in zip(kept, parts, strict=True))
        return of_a, of_b, (len(rows[0]) - of_a.total, len(rows[1]) - of_b.total)
    of_a, of_b = (
        _whole(store, one, part, limits) for one, part in zip((a, b), parts, strict=True)
    )
    return of_a, of_b, (0, 0)


def _whole(store: QueryStore, filters: Filters, part: Part, limits: QueryLimits) -> Values:
    n, mean_input, mean_output = _lengths(store, filters, part, limits)
    columns = ", ".join([*inner_columns(COMPARED), *(_mix_column(name) for name in LENGTHS)])
    sql = f"SELECT {columns} FROM (SELECT * {_SOURCE} {part.where.sql} {_CHOSEN})"  # noqa: S608  values are bound
    row = run(store, sql, part.where.params, limits)[0]
    return Values(
        total=n, mean_input=mean_input, mean_output=mean_output, sampled=part.sampled,
        ordered={one.name: row[f"s_{one.name}"] for one in COMPARED},
        mix={name: _mix_of(row[f"mix_{name}"], bounds) for name, (_, bounds) in LENGTHS.items()},
    )  # fmt: skip


def _mix_column(name: str) -> str:
    column, bounds = LENGTHS[name]
    place = " + ".join(f"({bound} <= assumeNotNull({column}))" for bound in bounds)
    return f"sumMapIf(map(toUInt8({place}), toUInt64(1)), isNotNull({column})) AS mix_{name}"


def _mix_of(counts: Mapping[int, int], bounds: Sequence[int]) -> dict[str, int]:
    labels = bucket_labels(bounds)
    return {labels[int(place)]: int(n) for place, n in counts.items()}


def _lengths(
    store: QueryStore, filters: Filters, part: Part, limits: QueryLimits
) -> tuple[int, float | None, float | None]:
    """How many requests are chosen, and their mean lengths; out of the roll-ups where they are many."""
    ends = (filters.since_unix_ns, filters.until_unix_ns)
    if part.sampled is not None and None not in ends and rollups.allowed(filters):
        found = rollups.sums(store, filters, ("e2e", "input_tokens", "output_tokens"), limits)
        lengths = [found[name] for name in ("input_tokens", "output_tokens")]
        means = [total / n if n else None for n, total in lengths]
        return found["e2e"][0], means[0], means[1]
    picked = where(filters)
    figures = "count() AS total, avg(InputTokens) AS i, avg(OutputTokens) AS o"
    row = run(store, f"SELECT {figures} {_SOURCE} {picked.sql}", picked.params, limits)[0]
    return int(row["total"]), row["i"], row["o"]


def _rows(store: QueryStore, picked: Where, limits: QueryLimits) -> list[Row]:
    """A row a request, in the order of a hash."""
    columns = ", ".join(["InputTokens", "OutputTokens", *map(_column, COMPARED)])
    sql = f"SELECT {columns} {_SOURCE} {picked.sql} {_CHOSEN}"
    return run(store, sql, picked.params, limits)


def _matched(a: list[Row], b: list[Row]) -> tuple[list[Row], list[Row]]:
    """Equally many rows of both in each pair of length buckets."""
    by_length: list[dict[tuple[str, str], list[Row]]] = []
    for rows in (a, b):
        found: dict[tuple[str, str], list[Row]] = {}
        for row in rows:
            if row["InputTokens"] is not None and row["OutputTokens"] is not None:
                lengths = (
                    bucket_of(row["InputTokens"], INPUT_BOUNDS),
                    bucket_of(row["OutputTokens"], OUTPUT_BOUNDS),
                )
                found.setdefault(lengths, []).append(row)
        by_length.append(found)
    ours, theirs = by_length
    both = [(ours[key], theirs[key]) for key in ours if key in theirs]
    kept_a = [row for x, y in both for row in x[: min(len(x), len(y))]]
    kept_b = [row for x, y in both for row in y[: min(len(x), len(y))]]
    return kept_a, kept_b


def _cut(rows: list[Row], sampled: Sampled | None) -> Values:
    n = len(rows)
    return Values(
        total=n,
        mean_input=sum(r["InputTokens"] for r in rows) / n if n else None,
        mean_output=sum(r["OutputTokens"] for r in rows) / n if n else None,
        ordered={
            one.name: sorted(r[f"v_{one.name}"] for r in rows if r[f"v_{one.name}"] is not None)
            for one in COMPARED
        },
        mix={
            name: Counter(bucket_of(row[column], bounds) for row in rows)
            for name, (column, bounds) in LENGTHS.items()
        },
        sampled=sampled,
    )


def _column(one: Quantity) -> str:
    return f"if({one.has}, toFloat64({one.value}), NULL) AS v_{one.name}"
