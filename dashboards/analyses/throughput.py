"""Throughput against latency: one user's speed beside all users' tokens, by concurrency.

The window is cut into bins. A request is in flight from its start to its end, and its
output tokens are spread evenly over its decode time, which ends where ``deliver`` begins.
For each bin of length ``w``::

    concurrency        = sum of the time in flight inside it / w
    total tokens/s     = tokens inside it / w
    one user's tokens/s = tokens inside it / sum of the decode time inside it,
                          both of the requests that tell their tokens and have a decode time

Bins of one concurrency (rounded; grouped as ``--by concurrency`` does) are added up before
dividing. The knee is Kneedle's (V. Satopää and others, 2011) for a curve that grows and
flattens: concurrency and total tokens/s are scaled to 0..1 over the levels, and the knee is
the level with the largest ``y - x``; it needs three levels and a height of 0.1. A level in
which fewer than ten requests began is *thin*: it is shown as such, and is not counted for the
knee, since a short rush or the end of a load looks like one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dashboards.analyses.groups import Key, whole_and_groups
from dashboards.filters import Filters, Where, where
from dashboards.models.throughput import Level, Throughput, ThroughputFigures
from dashboards.queries.base import QueryLimits, QueryStore, Row, run
from dashboards.queries.dimensions import CONCURRENCY_BOUNDS, bucket_labels
from dashboards.queries.sample import Part, part_of, within
from dashboards.queries.steps import Slice
from dashboards.times import NS_PER_S, many, plain

MOST_BINS: Final = 1000
BINS_MS: Final = (100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000, 300_000, 600_000)
LEAST_LEVELS: Final = 3
LEAST_HEIGHT: Final = 0.1
LEAST_REQUESTS: Final = 10
"""That began in a level: one with fewer is thin."""
_LABELS: Final = ("1", *bucket_labels(CONCURRENCY_BOUNDS)[1:])
_SOURCE: Final = "FROM {database:Identifier}.requests WHERE"
_WINDOW_SQL: Final = f"""\
SELECT count() AS n, countIf(isNull(OutputTokens)) AS without,
  toInt64(min(toUnixTimestamp64Nano(Timestamp))) AS first,
  toInt64(max(toUnixTimestamp64Nano(Timestamp) + toInt64(E2ENs))) AS last,
  toInt64(max(E2ENs)) AS longest
{_SOURCE} {{picked}}"""
_START: Final = "toUnixTimestamp64Nano(Timestamp) - {first:Int64}"
_BINS_SQL: Final = f"""\
SELECT bin, sum(greatest(0, least(b1, t1) - greatest(b0, t0))) AS busy,
  sum(greatest(0, least(b1, d1) - greatest(b0, d0)) AS part) AS all_parts,
  sumIf(part, timed) AS decoding, sum(made * part / (d1 - d0) AS some) AS tokens,
  sumIf(some, timed) AS timed_tokens, max(known) AS told
FROM (
  SELECT t0, t1, d0, d1, made, known, timed,
    arrayJoin(range(toUInt64(intDiv(t0, {{width:Int64}})),
      toUInt64(intDiv(greatest(t1 - 1, t0), {{width:Int64}}) + 1))) AS bin,
    toInt64(bin) * {{width:Int64}} AS b0, b0 + {{width:Int64}} AS b1
  FROM (
    SELECT {_START} AS t0, t0 + toInt64(E2ENs) AS t1,
      greatest(t0 + 1, t1 - toInt64(DeliverNs)) AS d1,
      greatest(t0, least(d1 - toInt64(DecodeNs), d1 - 1)) AS d0,
      toFloat64(ifNull(OutputTokens, 0)) AS made, isNotNull(OutputTokens) AS known,
      known AND DecodeNs > 0 AS timed
    {_SOURCE} {{picked}}
  )
) WHERE {{seen}} GROUP BY bin ORDER BY bin"""  # noqa: S608  our own words alone
_BEGAN_SQL: Final = f"""\
SELECT transform(toInt64(intDiv({_START}, {{width:Int64}})), {{bins:Array(Int64)}},
    {{levels:Array(Int64)}}, toInt64(-1)) AS level,
  count() AS n, quantilesExactInclusive(0.5, 0.95)(E2ENs) AS e2e, count(FirstTokenNs) AS n_ttft,
  quantileExactInclusiveIf(0.5)(assumeNotNull(FirstTokenNs), isNotNull(FirstTokenNs)) AS ttft
{_SOURCE} {{picked}} GROUP BY level"""


@dataclass(slots=True)
class _Sum:
    bins: int = 0
    busy: float = 0.0
    decoding: float = 0.0
    tokens: float = 0.0
    timed_tokens: float = 0.0
    told: bool = False


def throughput(
    store: QueryStore,
    filters: Filters,
    by: Sequence[str] = (),
    limits: QueryLimits | None = None,
) -> Throughput:
    """Speed and throughput of the chosen requests at each concurrency among them.

    Raises:
        BadValueError: ``by`` holds a name that is no dimension.
        UnavailableError: the store gave no answer.
    """
    bound = limits or QueryLimits()
    part = part_of(store, filters, bound)

    def ask(picked: Where, key: Key) -> ThroughputFigures:
        return _figures(store, picked, key, part, bound)

    overall, groups, left = whole_and_groups(store, where(filters), by, bound, ask)
    return Throughput(
        filters=filters, by=tuple(by), overall=overall, groups=groups, groups_left_out=left,
        sampled=part.sampled, reading=(*_reading(overall), *_told(part)), assumptions=_ASSUMPTIONS,
    )  # fmt: skip


def knee(points: Sequence[tuple[float, float]]) -> tuple[int, float] | None:
    """Where a curve of (concurrency, throughput), sorted by concurrency, flattens, and how high.

    The place of the largest ``y - x`` after scaling both to 0..1; None with fewer than
    ``LEAST_LEVELS`` points, a flat curve, or a height below ``LEAST_HEIGHT``.
    """
    if len(points) < LEAST_LEVELS:
        return None
    xs, ys = [x for x, _ in points], [y for _, y in points]
    wide, high = max(xs) - min(xs), max(ys) - min(ys)
    if wide <= 0 or high <= 0:
        return None
    heights = [(y - min(ys)) / high - (x - min(xs)) / wide for x, y in points]
    best = max(range(len(points)), key=lambda i: (heights[i], -i))
    return (best, heights[best]) if heights[best] >= LEAST_HEIGHT else None


def bin_for(window_ns: int) -> int:
    """The shortest of the known bins of which ``MOST_BINS`` cover the window, in ns."""
    for ms in BINS_MS:
        if window_ns <= ms * 1_000_000 * MOST_BINS:
            return ms * 1_000_000
    return -(-window_ns // MOST_BINS)


def inside(slices: Sequence[Slice], first_ns: int, width: int) -> list[int]:
    """The bins that lie in a slice as a whole."""
    return [
        place
        for one in slices
        for place in range(-(-(one.begin - first_ns) // width), (one.end - first_ns) // width)
    ]


def _told(part: Part) -> tuple[str, ...]:
    if part.sampled is None:
        return ()
    one = part.sampled
    told = (
        f"Looked at: {one.slices} slices of time, one in {one.one_in}, in which {one.read:,} of "
        f"{one.of:,} requests began; bins, seconds and n are of those."
    )
    return (told,)


def _figures(
    store: QueryStore, picked: Where, key: Key, part: Part, limits: QueryLimits
) -> ThroughputFigures:
    window = run(store, _WINDOW_SQL.replace("{picked}", picked.sql), picked.params, limits)[0]
    if not window["n"]:
        return ThroughputFigures(
            key=key, requests=0, without_tokens=0, bin_ns=None, levels=(), knee=None,
            knee_height=None,
        )  # fmt: skip
    first, length = int(window["first"]), int(window["last"]) - int(window["first"])
    flying = began_in = picked.sql
    seen, bins = "true", list[int]()
    if part.slices:
        length = sum(one.end - one.begin for one in part.slices)
        before = min(int(window["longest"]), length // len(part.slices))
        flying = f"{within(part.slices, before_ns=before)} AND {picked.sql}"
        began_in = f"{part.times} AND {picked.sql}"
        seen, bins = "toInt64(bin) IN {inside:Array(Int64)}", inside(part.slices, first, bin_for(length))
    width = bin_for(length)
    params: dict[str, object] = {**picked.params, "first": first, "width": width, "inside": bins or [-1]}
    rows = run(
        store, _BINS_SQL.replace("{picked}", flying).replace("{seen}", seen), params, limits
    )
    place = {int(row["bin"]): level_of(float(row["busy"]) / width) for row in rows}
    params |= {"bins": list(place) or [-1], "levels": list(place.values()) or [-1]}
    began = run(store, _BEGAN_SQL.replace("{picked}", began_in), params, limits)
    levels = _levels(rows, place, width, {int(row["level"]): row for row in began})
    known = [one for one in levels if one.tokens_per_s is not None and not one.thin]
    found = knee([(one.concurrency, one.tokens_per_s or 0.0) for one in known])
    return ThroughputFigures(
        key=key, requests=int(window["n"]), without_tokens=int(window["without"]), bin_ns=width,
        levels=levels, knee=known[found[0]].label if found else None,
        knee_height=found[1] if found else None,
    )  # fmt: skip


def level_of(concurrency: float) -> int:
    """The place of a bin among the levels; -1 for one that is nearly idle."""
    whole = int(concurrency + 0.5)
    return bisect_right(CONCURRENCY_BOUNDS, whole) if whole else -1


def _levels(
    rows: Sequence[Row], place: Mapping[int, int], width: int, began: Mapping[int, Row]
) -> tuple[Level, ...]:
    sums: dict[int, _Sum] = defaultdict(_Sum)
    for row in rows:
        one = sums[place[int(row["bin"])]]
        one.bins += 1
        one.busy += float(row["busy"])
        one.decoding += float(row["decoding"])
        one.tokens += float(row["tokens"])
        one.timed_tokens += float(row["timed_tokens"])
        one.told |= bool(row["told"])
    found: list[Level] = []
    for level, one in sorted(sums.items()):
        if level < 0:
            continue
        there = began.get(level)
        n = int(there["n"]) if there else 0
        found.append(
            Level(
                label=_LABELS[level], concurrency=one.busy / (one.bins * width), bins=one.bins,
                seconds=one.bins * width / NS_PER_S,
                tokens_per_s=one.tokens * NS_PER_S / (one.bins * width) if one.told else None,
                user_tokens_per_s=(
                    one.timed_tokens * NS_PER_S / one.decoding if one.decoding else None
                ),
                requests=n, thin=n < LEAST_REQUESTS,
                ttft_p50_ns=round(there["ttft"]) if there and there["n_ttft"] else None,
                e2e_p50_ns=round(there["e2e"][0]) if there else None,
                e2e_p95_ns=round(there["e2e"][1]) if there else None,
            )
        )  # fmt: skip
    return tuple(found)


_ASSUMPTIONS: Final = (
    (
        "Concurrency is the mean number of chosen requests in flight in a time bin, rounded; bins "
        "with less than half a request are left out."
    ),
    (
        "A request's output tokens are spread evenly over its decode time; requests without a "
        "count of tokens are in flight and bring none. One user's speed is that of requests that tell "
        "their tokens and have a decode time."
    ),
    (
        "Knee: concurrency and tokens/s scaled to 0..1 over the levels; the level farthest above "
        f"the diagonal, if by {LEAST_HEIGHT} and with at least {LEAST_LEVELS} levels (Kneedle). Levels "
        f"in which fewer than {LEAST_REQUESTS} requests began are thin and not counted for it."
    ),
)


def _reading(found: ThroughputFigures) -> tuple[str, ...]:
    if not found.requests:
        return ("There is no request to look at: widen the window or drop a filter.",)
    if not found.levels:
        return ("No time had half a request in flight or more: they were too short and too few.",)
    known = [one for one in found.levels if one.tokens_per_s is not None]
    if not known:
        return ("No request tells its output tokens: throughput is not known.",)
    best = max(known, key=lambda one: one.tokens_per_s or 0.0)
    few = f" (thin: {many(best.requests, 'request')} began there)" if best.thin else ""
    said = [
        f"Most tokens a second: {plain(best.tokens_per_s or 0.0, 4)}, at concurrency {best.label}{few}."
    ]
    if found.knee is None:
        said.append("No knee: too few levels, or throughput still grows with concurrency.")
    else:
        at = next(one for one in found.levels if one.label == found.knee)
        speed = "" if at.user_tokens_per_s is None else f", {plain(at.user_tokens_per_s)} for one user"
        said.append(
            f"Knee at concurrency {at.label}: {plain(at.tokens_per_s or 0.0, 4)} tokens a second{speed}; "
            "beyond it more users bring little."
        )
    if thin := [one.label for one in known if one.thin]:
        said.append(
            f"Not counted for the knee, with fewer than {LEAST_REQUESTS} requests each: concurrency "
            f"{', '.join(thin)}."
        )
    return tuple(said)
