"""What makes the slow requests slow: they against the middle ones, by stage and by slice.

Slow are the requests at or above the 95th percentile of E2E (or TTFT), middle those from
the 40th to the 60th. For each stage ``difference = mean(slow) - mean(middle)``; the stages
of a request add up to its E2E, so the differences add up to that of E2E, and
``share = difference / (mean E2E slow - mean E2E middle)`` to 1. Intervals of differences of
means are Welch's (``d ± 1.96 sqrt(s1²/n1 + s2²/n2)``). For each value of each dimension the
share of the requests that have it is compared; intervals are Newcombe's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dashboards.analyses.stats import Z, newcombe
from dashboards.analyses.whatif import BEFORE_TOKEN
from dashboards.errors import BadValueError
from dashboards.filters import Filters, Where
from dashboards.models.attribution import Attribution, SliceShift, StageShift
from dashboards.queries.base import QueryLimits, QueryStore, Row, run
from dashboards.queries.dimensions import Dimension, dimensions, known, parse_by
from dashboards.queries.measures import STAGE_COLUMNS
from dashboards.queries.sample import Part, part_of
from dashboards.times import in_words, many, percent
from dashboards.visible import quoted, short
from tracer.stages import Stage

MEASURES: Final = ("e2e", "ttft")
REST: Final = "rest"
LEAST: Final = 20
"""Below so many requests the slowest 5 % is a single one."""
SLOWEST: Final = 0.05
MOST_SLICES: Final = 40
MOST_READ: Final = 1000
_EVERY: Final = tuple(name for name in known() if not name.startswith("tag:"))
_SOURCE: Final = "FROM {database:Identifier}.requests WHERE"
_BEFORE: Final = " + ".join(f"toInt64({STAGE_COLUMNS[stage]})" for stage in BEFORE_TOKEN)


@dataclass(frozen=True, slots=True)
class _Measure:
    """``value`` over the requests that ``has`` it, and the parts that it is the sum of."""

    value: str
    has: str
    parts: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _Found:
    """Whom the question is about: ``n`` of the ``total`` requests read have the measure."""

    filters: Filters
    measure: str
    part: Part
    n: int
    total: int


_E2E: Final = _Measure(
    "toInt64(E2ENs)", "true", tuple((str(s), f"toInt64({c})") for s, c in STAGE_COLUMNS.items())
)
_TTFT: Final = _Measure(
    "toInt64(assumeNotNull(FirstTokenNs))",
    f"(isNotNull(FirstTokenNs) AND StageCounts['prefill'] <= 1 AND ToolNs = 0 "
    f"AND {_BEFORE} <= toInt64(assumeNotNull(FirstTokenNs)))",
    (
        *((str(s), f"toInt64({STAGE_COLUMNS[s]})") for s in BEFORE_TOKEN),
        (REST, f"(toInt64(assumeNotNull(FirstTokenNs)) - ({_BEFORE}))"),
    ),
)


def attribution(
    store: QueryStore,
    filters: Filters,
    measure: str = "e2e",
    by: Sequence[str] = (),
    limits: QueryLimits | None = None,
) -> Attribution:
    """The slow of the chosen requests against the middle ones; ``by`` picks the dimensions.

    Without ``by`` every dimension is compared, and every tag.

    Raises:
        BadValueError: ``measure`` or ``by`` is not known.
        UnavailableError: the store gave no answer.
    """
    if measure not in MEASURES:
        raise BadValueError(f"measure {measure!r} is not known: it is one of {', '.join(MEASURES)}")
    parts = dimensions(parse_by(by)) if by else dimensions(_EVERY)
    bound = limits or QueryLimits()
    part = part_of(store, filters, bound, count=False)
    picked = part.where
    one = _TTFT if measure == "ttft" else _E2E
    edges = run(store, _edges_sql(one, picked), picked.params, bound)[0]
    part = part.reading(int(edges["total"]))
    found = _Found(filters, measure, part, int(edges["n"]), int(edges["total"]))
    if found.n < LEAST or not edges["q"][1] < edges["q"][2]:
        return _nothing(found)
    bounds = {
        "low": math.ceil(edges["q"][0]), "high": math.floor(edges["q"][1]),
        "slow": math.ceil(edges["q"][2]),
    }  # fmt: skip
    params = {**picked.params, **bounds, **{k: v for d in parts for k, v in d.params}}
    sides = {row["side"]: row for row in run(store, _means_sql(one, picked), params, bound)}
    counts = run(store, _slices_sql(one, picked, parts, tags=not by), params, bound)
    return _answer(found, bounds, sides, one, _slices(counts, parts, sides))


def _answer(
    found: _Found,
    bounds: dict[str, int],
    sides: dict[str, Row],
    one: _Measure,
    slices: tuple[SliceShift, ...],
) -> Attribution:
    slow, middle = sides["slow"], sides["middle"]
    stages = tuple(_stage(name, slow, middle) for name, _ in one.parts)
    return Attribution(
        filters=found.filters, measure=found.measure, requests=found.n,
        without_measure=found.total - found.n, slow=int(slow["n"]), middle=int(middle["n"]),
        slow_from_ns=bounds["slow"], middle_from_ns=bounds["low"], middle_to_ns=bounds["high"],
        slow_mean_ns=slow["mean"], middle_mean_ns=middle["mean"], stages=stages,
        slices=slices[:MOST_SLICES],
        sampled=found.part.sampled,
        reading=(*_reading(found.measure, found.n, slow, middle, stages, slices), *found.part.told),
        assumptions=(*_assumptions(found.measure), *_cut(len(slices))),
    )  # fmt: skip


def _cut(slices: int) -> tuple[str, ...]:
    """What of the slices is not shown, or was not compared at all."""
    shown = f"the {MOST_SLICES} that differ most are shown."
    if slices >= MOST_READ:
        return (f"The {MOST_READ} slices with the most requests are compared, no others; {shown}",)
    return (f"Of the {slices} slices compared {shown}",) if slices > MOST_SLICES else ()


def _edges_sql(one: _Measure, picked: Where) -> str:
    return (
        f"SELECT count() AS total, countIf({one.has}) AS n, "
        f"quantilesExactInclusiveIf(0.4, 0.6, 0.95)({one.value}, {one.has}) AS q "
        f"{_SOURCE} {picked.sql}"
    )


def _side(one: _Measure) -> str:
    return (
        f"multiIf({one.value} >= {{slow:Int64}}, 'slow', {one.value} >= {{low:Int64}} "
        f"AND {one.value} <= {{high:Int64}}, 'middle', '')"
    )


def _means_sql(one: _Measure, picked: Where) -> str:
    figures = [f"avg({one.value}) AS mean", f"varSamp({one.value}) AS spread", "count() AS n"]
    for name, value in one.parts:
        figures += [f"avg({value}) AS mean_{name}", f"varSamp({value}) AS spread_{name}"]
    return (
        f"SELECT {_side(one)} AS side, {', '.join(figures)} {_SOURCE} {picked.sql} "
        f"AND {one.has} AND side != '' GROUP BY side"
    )


def _slices_sql(
    one: _Measure, picked: Where, parts: Sequence[Dimension], *, tags: bool
) -> str:
    listed = ", ".join(f"('{i}', CAST({part.sql}, 'String'))" for i, part in enumerate(parts))
    pairs = f"[{listed}]"
    if tags:
        each = "arrayMap((k, v) -> (concat('t', k), concat('v', v)), mapKeys(Tags), mapValues(Tags))"
        pairs = f"arrayConcat({pairs}, CAST({each}, 'Array(Tuple(String, String))'))"
    inner = (
        f"SELECT {_side(one)} AS side, arrayJoin({pairs}) AS pair {_SOURCE} {picked.sql} "
        f"AND {one.has} AND side != ''"
    )
    counts = "pair.1 AS place, pair.2 AS raw, countIf(side = 'slow') AS slow"
    both = f"{counts}, countIf(side = 'middle') AS middle"
    order = f"GROUP BY place, raw ORDER BY slow + middle DESC, place, raw LIMIT {MOST_READ}"
    return " ".join(("SELECT", both, f"FROM ({inner})", order))


def _stage(name: str, slow: Row, middle: Row) -> StageShift:
    a, b = float(slow[f"mean_{name}"]), float(middle[f"mean_{name}"])
    whole = float(slow["mean"]) - float(middle["mean"])
    low = high = None
    if slow["n"] > 1 and middle["n"] > 1:
        reach = Z * math.sqrt(
            slow[f"spread_{name}"] / slow["n"] + middle[f"spread_{name}"] / middle["n"]
        )
        low, high = a - b - reach, a - b + reach
    return StageShift(
        stage=name, slow_ns=a, middle_ns=b, difference_ns=a - b, low_ns=low, high_ns=high,
        share=(a - b) / whole if whole else None,
    )  # fmt: skip


def _slices(
    rows: Sequence[Row], parts: Sequence[Dimension], sides: dict[str, Row]
) -> tuple[SliceShift, ...]:
    slow, middle = int(sides["slow"]["n"]), int(sides["middle"]["n"])
    found: list[SliceShift] = []
    for row in rows:
        place, raw = row["place"], row["raw"]
        if place.startswith("t"):
            name, value = f"tag:{place[1:]}", raw[1:]
        else:
            part = parts[int(place)]
            name, value = part.name, part.read(raw)
        a, b = int(row["slow"]), int(row["middle"])
        low, high = newcombe(a, slow, b, middle)
        found.append(
            SliceShift(
                dimension=name, value=value, slow=a, middle=b, slow_share=a / slow,
                middle_share=b / middle, difference=a / slow - b / middle, low=low, high=high,
                stands_out=low > 0 or high < 0,
            )
        )  # fmt: skip
    found.sort(key=lambda one: (-abs(one.difference), one.dimension, one.value or ""))
    return tuple(found)


def _nothing(found: _Found) -> Attribution:
    n = found.n
    why = (
        f"With {many(n, 'request')} nothing can be said about the slowest 5 %: {LEAST} are "
        "the least."
        if n < LEAST
        else "The slowest 5 % take no longer than the middle ones."
    )
    return Attribution(
        filters=found.filters, measure=found.measure, requests=n,
        without_measure=found.total - n, slow=0, middle=0, slow_from_ns=None, middle_from_ns=None,
        middle_to_ns=None, slow_mean_ns=None, middle_mean_ns=None, stages=(), slices=(),
        sampled=found.part.sampled, reading=(why, *found.part.told),
        assumptions=_assumptions(found.measure),
    )  # fmt: skip


def _reading(
    measure: str,
    n: int,
    slow: Row,
    middle: Row,
    stages: Sequence[StageShift],
    slices: Sequence[SliceShift],
) -> tuple[str, ...]:
    most = max(stages, key=lambda one: one.difference_ns)
    whole = in_words(slow["mean"] - middle["mean"])
    slowest = "slowest 5 %"
    if slow["n"] > 2 * SLOWEST * n:  # ties at the 95th percentile are all at or above it
        slowest = f"slowest {percent(slow['n'] / n)}, many of them equally slow"
    first = (
        f"The {slowest} (n={slow['n']:,}) take {whole} longer in {measure.upper()} than the "
        f"middle ones (n={middle['n']:,}), and {most.stage} makes {percent(most.share or 0)} of it."
    )
    said = [first]
    for one in [s for s in slices if s.stands_out and s.difference > 0][:3]:
        value = "not known" if one.value is None else short(quoted(one.value))
        said.append(
            f"{short(one.dimension)} {value}: {percent(one.slow_share)} of the slow ones, "
            f"{percent(one.middle_share)} of the middle ones."
        )
    return tuple(said)


def _assumptions(measure: str) -> tuple[str, ...]:
    found = [
        "Slow: at or above the 95th percentile. Middle: from the 40th to the 60th.",
        "Stage differences are of means and add up to the whole; intervals are Welch's, at 95 %.",
        (
            "Slices are compared one by one (Newcombe, 95 %): of twenty that make no difference "
            "about one stands out by chance. A slice that goes with the slow ones need not be why."
        ),
    ]
    if measure == "ttft":
        found.append(
            f"TTFT: requests with one prefill and no tool; {REST!r} is the way from the end of "
            f"{Stage.PREFILL} to the client."
        )
    return tuple(found)
