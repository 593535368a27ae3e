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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from dashboards.analyses.sides import COMPARED, MOST_VALUES, Values, read_sides
from dashboards.analyses.stats import newcombe
from dashboards.errors import BadValueError
from dashboards.filters import Filters
from dashboards.models.analysis import Compare, Difference
from dashboards.queries.base import QueryLimits, QueryStore
from dashboards.times import in_words, parse_when, percent, plain

RESAMPLES: Final = 1000
SAME_MIX: Final = 0.10
"""Mean lengths that differ by more than this share, and buckets of lengths whose shares do, are warned of."""
_MATCHED: Final = (
    "Lengths are matched: of each pair of an input and an output bucket (those of --by) both sides "
    "keep equally many requests, by the hash; requests of unknown length are left out."
)
_LEVELS: Final = (("p50", 0.5), ("p95", 0.95))


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two: its name as given, and its requests."""

    name: str
    filters: Filters


_Place = tuple[int, int, float]
"""Two places among sorted values, and how far between them."""


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
    of_a, of_b, left = read_sides(store, a.filters, b.filters, bound, match=match)
    found: list[Difference] = []
    for quantity in COMPARED:
        xs, ys = of_a.ordered[quantity.name], of_b.ordered[quantity.name]
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
        warnings=tuple(_warnings(of_a, of_b, matched=match)),
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


def _parts(a: Values, b: Values) -> tuple[str, ...]:
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
    found = sorted(_at(ys, y) - _at(xs, x) for x, y in _drawn(len(xs), len(ys), p, seed))
    return quantile(found, 0.025), quantile(found, 0.975)


def _at(ordered: Sequence[float], place: _Place) -> float:
    low, high, between = place
    return ordered[low] + (ordered[high] - ordered[low]) * between


@lru_cache(maxsize=32)
def _drawn(n_x: int, n_y: int, p: float, seed: int) -> tuple[tuple[_Place, _Place], ...]:
    """The places of all replicates, which depend on the values' number alone."""
    draw = random.Random(seed)  # noqa: S311  statistics, not secrets
    found = []
    for _ in range(RESAMPLES):
        of_y = _replicate(n_y, p, draw)
        found.append((_replicate(n_x, p, draw), of_y))
    return tuple(found)


def _replicate(n: int, p: float, draw: random.Random) -> _Place:
    """The R7 quantile of one resample: its two order statistics, drawn jointly."""
    place = (n - 1) * p
    rank = math.floor(place) + 1
    first = draw.betavariate(rank, n - rank + 1)
    low = min(int(n * first), n - 1)
    if place == rank - 1 or rank == n:
        return low, low, 0.0
    second = 1 - (1 - first) * draw.random() ** (1 / (n - rank))
    return low, min(int(n * second), n - 1), place - (rank - 1)


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


def _warnings(a: Values, b: Values, *, matched: bool) -> list[str]:
    none = "has no requests of known length that the other has too" if matched else "has no requests"
    found = [f"{name} {none}." for name, one in (("A", a), ("B", b)) if not one.total]
    for name, x, y in (
        ("input", a.mean_input, b.mean_input),
        ("output", a.mean_output, b.mean_output),
    ):
        if x is None or y is None:
            found.append(f"The mix of {name} lengths is not known on both sides.")
        elif abs(x - y) > SAME_MIX * max(x, y):
            found.append(
                f"The mix of {name} lengths differs (mean {plain(x)} against {plain(y)} tokens): "
                "differences may come from it."
            )
        elif told := _other_mix(a.mix[name], b.mix[name]):
            found.append(
                f"The mix of {name} lengths differs ({told}): differences may come from it."
            )
    return found


def _other_mix(a: Mapping[str, int], b: Mapping[str, int]) -> str | None:
    """The bucket whose shares differ most, where by more than ``SAME_MIX`` and than chance does."""
    n_a, n_b = sum(a.values()), sum(b.values())
    apart: list[tuple[float, str]] = []
    for label in {*a, *b}:
        x, y = a.get(label, 0), b.get(label, 0)
        low, high = newcombe(x, n_a, y, n_b)
        if abs(x / n_a - y / n_b) > SAME_MIX and (low > 0 or high < 0):
            apart.append((abs(x / n_a - y / n_b), label))
    if not apart:
        return None
    _, label = max(apart)
    shares = f"{percent(a.get(label, 0) / n_a)} against {percent(b.get(label, 0) / n_b)}"
    return f"{shares} have {label} tokens"


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
        times = f"{in_words(one.a_ns)} in A, {in_words(one.b_ns)} in B, at p50"
        if one.low_ns is not None and one.high_ns is not None and one.low_ns <= 0 <= one.high_ns:
            said.append(f"Neither clearly {words} {times}; the interval holds 0).")
        elif one.a_ns == one.b_ns:
            said.append(f"Neither {words} {times}).")
        elif one.low_ns is None:
            winner = "A" if one.a_ns < one.b_ns else "B"
            said.append(f"{winner} {words} {times}; a side has one value, so no interval).")
        else:
            said.append(f"{'A' if one.a_ns < one.b_ns else 'B'} {words} {times}).")
    return tuple(said)
