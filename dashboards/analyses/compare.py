"""Two runs or windows, stage by stage, with bootstrap intervals of the differences.

The bootstrap resamples each side's values with replacement. An order statistic of such a
resample of size ``n`` is ``x[ceil(n * U)]`` with ``U ~ Beta(r, n - r + 1)`` (the ``r``-th
of ``n`` uniform draws), so a replicate of a quantile costs one draw and no resampling
(B. Efron, R. Tibshirani, *An Introduction to the Bootstrap*, 1993, ch. 13: percentile
intervals). The interval is the 2.5 % and 97.5 % point of ``RESAMPLES`` differences.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dashboards.errors import BadValueError
from dashboards.filters import Filters, where
from dashboards.models.analysis import Compare, Difference
from dashboards.models.sample import Sampled
from dashboards.queries.base import QueryLimits, QueryStore, Row, run
from dashboards.queries.dimensions import INPUT_BOUNDS, OUTPUT_BOUNDS, bucket_of
from dashboards.queries.measures import MEASURES, STAGES, Quantity
from dashboards.queries.sample import part_of
from dashboards.times import parse_when

RESAMPLES: Final = 1000
MOST_VALUES: Final = 20_000
SAME_MIX: Final = 0.10
"""Mean input or output lengths that differ by more than this share are warned of."""
_MATCHED: Final = (
    "Lengths are matched: of each pair of an input and an output bucket (those of --by) both sides "
    "keep equally many requests, by the hash; requests of unknown length are left out."
)
_LEVELS: Final = (("p50", 0.5), ("p95", 0.95))
_COMPARED: Final = (*(q for q in MEASURES if not q.gaps), *STAGES)


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two: its name as given, and its requests."""

    name: str
    filters: Filters


@dataclass(frozen=True, slots=True)
class _Values:
    """One side as read; ``rows`` hold its figures, in the order of a hash."""

    total: int
    mean_input: float | None
    mean_output: float | None
    rows: list[Row]
    sampled: Sampled | None = None

    def ordered(self, name: str) -> list[float]:
        return sorted(r[f"v_{name}"] for r in self.rows if r[f"v_{name}"] is not None)


def parse_side(text: str, base: Filters, now_unix_ns: int) -> Side:
    """``NAME`` is the run of that name, ``FROM..TO`` a window (``2h..1h``, ISO times).

    Raises:
        BadValueError: empty, or a window that is none.
    """
    begin, dots, end = text.partition("..")
    if not text or (dots and not (begin and end)):
        raise BadValueError(f"side {text!r} is neither a run's name nor a window FROM..TO")
    if not dots:
        return Side(text, base.model_copy(update={"run": text}))
    first, last = (parse_when(part, "window", now_unix_ns) for part in (begin, end))
    if first >= last:
        raise BadValueError(f"window {text!r} ends before it begins: write the earlier time first")
    return Side(text, base.model_copy(update={"since_unix_ns": first, "until_unix_ns": last}))


def compare(
    store: QueryStore,
    a: Side,
    b: Side,
    limits: QueryLimits | None = None,
    *,
    match: bool = False,
) -> Compare:
    """Quantiles of every stage and clock in ``a`` and ``b``, and which is quicker to the user.

    With ``match`` both sides are cut to the same mix of input and output lengths.

    Raises:
        UnavailableError: the store gave no answer.
    """
    bound = limits or QueryLimits()
    of_a, of_b = _read(store, a.filters, bound), _read(store, b.filters, bound)
    left = (0, 0)
    if match:
        read = len(of_a.rows), len(of_b.rows)
        of_a, of_b = _matched(of_a, of_b)
        left = read[0] - len(of_a.rows), read[1] - len(of_b.rows)
    found: list[Difference] = []
    for quantity in _COMPARED:
        xs, ys = of_a.ordered(quantity.name), of_b.ordered(quantity.name)
        found += [_difference(quantity.name, name, p, xs, ys) for name, p in _LEVELS]
    return Compare(
        a=a.name,
        b=b.name,
        requests_a=of_a.total,
        requests_b=of_b.total,
        matched=match,
        left_out_a=left[0],
        left_out_b=left[1],
        sampled_a=of_a.sampled,
        sampled_b=of_b.sampled,
        differences=tuple(found),
        warnings=tuple(_warnings(of_a, of_b)),
        reading=_reading(found),
        assumptions=(
            *_parts(of_a, of_b),
            f"Intervals: percentile bootstrap, {RESAMPLES} resamples, 95 %; fixed seed.",
            (
                f"Each side's values are those of at most {MOST_VALUES} requests, chosen by a hash "
                "of the trace id; all that there are when fewer."
            ),
            _MATCHED if match else "Lengths are not matched: where the mix differs a warning says so.",
        ),
    )


def _parts(a: _Values, b: _Values) -> tuple[str, ...]:
    """What is said of a side that was read in part."""
    return tuple(
        f"{name}: {one.sampled.sentence()}" for name, one in (("A", a), ("B", b)) if one.sampled
    )


def quantile(ordered: Sequence[float], p: float) -> float:
    """R7 (numpy's default) of sorted, non-empty values."""
    place = (len(ordered) - 1) * p
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def interval(
    xs: Sequence[float], ys: Sequence[float], p: float, seed: int = 0
) -> tuple[float, float]:
    """The 95 % bootstrap interval of ``quantile(ys, p) - quantile(xs, p)``; both sorted."""
    draw = random.Random(seed)  # noqa: S311  statistics, not secrets
    found = sorted(_replicate(ys, p, draw) - _replicate(xs, p, draw) for _ in range(RESAMPLES))
    return quantile(found, 0.025), quantile(found, 0.975)


def _replicate(ordered: Sequence[float], p: float, draw: random.Random) -> float:
    """The R7 quantile of one resample: its two order statistics, drawn jointly."""
    n = len(ordered)
    place = (n - 1) * p
    rank = math.floor(place) + 1
    first = draw.betavariate(rank, n - rank + 1)
    low = ordered[min(int(n * first), n - 1)]
    if place == rank - 1 or rank == n:
        return low
    second = 1 - (1 - first) * draw.random() ** (1 / (n - rank))
    high = ordered[min(int(n * second), n - 1)]
    return low + (high - low) * (place - (rank - 1))


def _difference(
    quantity: str, name: str, p: float, xs: Sequence[float], ys: Sequence[float]
) -> Difference:
    left = quantile(xs, p) if xs else None
    right = quantile(ys, p) if ys else None
    both = left is not None and right is not None
    low, high = interval(xs, ys, p) if both and len(xs) > 1 and len(ys) > 1 else (None, None)
    return Difference(
        quantity=quantity, percentile=name, n_a=len(xs), n_b=len(ys), a_ns=left, b_ns=right,
        difference_ns=right - left if left is not None and right is not None else None,
        low_ns=low, high_ns=high,
    )  # fmt: skip


def _read(store: QueryStore, filters: Filters, limits: QueryLimits) -> _Values:
    picked = where(filters)
    figures = "count() AS total, avg(InputTokens) AS i, avg(OutputTokens) AS o"
    source = "FROM {database:Identifier}.requests WHERE"
    whole = run(store, f"SELECT {figures} {source} {picked.sql}", picked.params, limits)[0]
    part = part_of(store, filters, limits)
    columns = ", ".join(["InputTokens", "OutputTokens", *map(_column, _COMPARED)])
    sql = (
        f"SELECT {columns} {source} {part.where.sql} "
        f"ORDER BY cityHash64(TraceId, SpanId) LIMIT {MOST_VALUES}"
    )
    return _Values(
        total=int(whole["total"]),
        mean_input=whole["i"],
        mean_output=whole["o"],
        rows=run(store, sql, part.where.params, limits),
        sampled=part.sampled,
    )


def _matched(a: _Values, b: _Values) -> tuple[_Values, _Values]:
    """Both sides with equally many requests in each pair of length buckets."""
    by_length: list[dict[tuple[str, str], list[Row]]] = []
    for side in (a, b):
        found: dict[tuple[str, str], list[Row]] = {}
        for row in side.rows:
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
    return _cut(kept_a, a.sampled), _cut(kept_b, b.sampled)


def _cut(rows: list[Row], sampled: Sampled | None) -> _Values:
    n = len(rows)
    return _Values(
        total=n,
        mean_input=sum(r["InputTokens"] for r in rows) / n if n else None,
        mean_output=sum(r["OutputTokens"] for r in rows) / n if n else None,
        rows=rows,
        sampled=sampled,
    )


def _column(one: Quantity) -> str:
    return f"if({one.has}, toFloat64({one.value}), NULL) AS v_{one.name}"


def _warnings(a: _Values, b: _Values) -> list[str]:
    found = [f"{name} has no requests." for name, one in (("A", a), ("B", b)) if not one.total]
    for name, x, y in (
        ("input", a.mean_input, b.mean_input),
        ("output", a.mean_output, b.mean_output),
    ):
        if x is None or y is None:
            found.append(f"The mix of {name} lengths is not known on both sides.")
        elif abs(x - y) > SAME_MIX * max(x, y):
            found.append(
                f"The mix of {name} lengths differs (mean {x:.0f} against {y:.0f} tokens): "
                "differences may come from it."
            )
    return found


def _reading(found: Sequence[Difference]) -> tuple[str, ...]:
    said: list[str] = []
    for quantity, words in (
        ("ttft", "feels faster (first token"),
        ("e2e", "finishes sooner (done"),
    ):
        one = next(d for d in found if (d.quantity, d.percentile) == (quantity, "p50"))
        if one.a_ns is None or one.b_ns is None:
            said.append(f"Which one {words}) is not known: a side has no data.")
            continue
        times = f"{one.a_ns / 1e9:.3g} s in A, {one.b_ns / 1e9:.3g} s in B, at p50"
        if one.low_ns is not None and one.high_ns is not None and one.low_ns <= 0 <= one.high_ns:
            said.append(f"Neither clearly {words} {times}; the interval holds 0).")
        else:
            said.append(f"{'A' if one.a_ns < one.b_ns else 'B'} {words} {times}).")
    return tuple(said)
