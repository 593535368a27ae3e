"""Requests a second that met their limits, and the stage that broke each miss.

A request is *good* when it ended ``ok`` and every limit that was given holds:
``TTFT <= limit``, ``TPOT <= limit``, ``E2E <= limit``. ``goodput = good / window``, the
window from the first start to the last end of the chosen requests. A request with one
token has no TPOT and cannot break it; of one that was not streamed TTFT is not known, and
then neither is whether it was good (unless it broke another limit). A wider limit can
only add good requests.

The stage that broke a limit is the one that took most above its usual time, which is its
median among the good requests (0 where none is good)::

    argmax over stages s of  time_s - median of time_s among the good

over all stages for E2E, over those before the first token and the ``rest`` (the way to the
client) for TTFT. TPOT is broken by ``preempted`` where it would have held without the time
off the engine, else by ``decode``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from dashboards.analyses.costs import cost_columns, cost_of, tasks_of
from dashboards.analyses.groups import Key, whole_and_groups
from dashboards.errors import BadValueError
from dashboards.filters import Filters, Where, where
from dashboards.models.goodput import Broken, Goodput, GoodputFigures, Limits
from dashboards.prices import Prices
from dashboards.queries.base import QueryLimits, QueryStore, Row, run
from dashboards.queries.measures import STAGE_COLUMNS
from dashboards.queries.sample import Part, part_of
from dashboards.times import NS_PER_S, many, percent, plain
from tracer.stages import Stage

BEFORE: Final = (Stage.PROMPT, Stage.RETRIEVAL, Stage.QUEUE, Stage.PREFILL, Stage.TOOL)
REST: Final = "rest"
_UNIT_NS: Final = {"ns": 1, "us": 1000, "ms": 1_000_000, "s": NS_PER_S}
_LIMIT: Final = re.compile(r"(\d{1,30}(?:\.\d{1,9})?)(ns|us|ms|s)", re.ASCII)
MOST_LIMIT_S: Final = 10**9
"""31 years: far above any request, and so that no limit leaves 64 bits of nanoseconds."""
_SOURCE: Final = "FROM {database:Identifier}.requests WHERE"

_TPOT: Final = "assumeNotNull(TpotNs)"
_MET: Final[Mapping[str, str]] = {
    "ttft": "FirstTokenNs <= {ttft:Int64}",
    "tpot": "TpotNs <= {tpot:Float64}",
    "e2e": "E2ENs <= {e2e:Int64}",
}
"""NULL where the figure is not known."""
_WITHOUT: Final = {"tpot": "ifNull(OutputTokens <= 1, false)"}
"""Whether a limit is met by a request that has no such figure; else it is not."""
_REST: Final = (
    f"greatest(toInt64(0), toInt64(ifNull(FirstTokenNs, 0)) - "
    f"({' + '.join(f'toInt64({STAGE_COLUMNS[s]})' for s in BEFORE)}))"
)
_TIMES: Final = {**{str(s): f"toInt64({c})" for s, c in STAGE_COLUMNS.items()}, REST: _REST}
_PARTS: Final = {"ttft": (*map(str, BEFORE), REST), "e2e": tuple(map(str, Stage))}


def parse_limits(ttft: str | None, tpot: str | None, e2e: str | None) -> Limits:
    """Limits from texts such as ``500ms`` and ``2s``.

    Raises:
        BadValueError: none was given, or one is no time from 0 to ``MOST_LIMIT_S``.
    """
    given = {"ttft": ttft, "tpot": tpot, "e2e": e2e}
    found = {f"{name}_ns": _limit(name, text) for name, text in given.items() if text is not None}
    if not found:
        raise BadValueError(
            "no limit was given: give one or more of ttft, tpot and e2e, such as ttft=500ms"
        )
    return Limits(**found)


def _limit(name: str, text: str) -> int:
    match = _LIMIT.fullmatch(text.strip())
    if match is None:
        raise BadValueError(f"{name} {text!r} is not a limit: write it as 500ms, 2s or 800us")
    found = round(Decimal(match[1]) * _UNIT_NS[match[2]])
    if found > MOST_LIMIT_S * NS_PER_S:
        raise BadValueError(
            f"{name} {text!r} is out of range: give 0s to {MOST_LIMIT_S:,}s, or leave the limit out"
        )
    return found


def goodput(
    store: QueryStore,
    filters: Filters,
    asked: Limits,
    by: Sequence[str] = (),
    prices: Prices | None = None,
    limits: QueryLimits | None = None,
) -> Goodput:
    """Goodput of the chosen requests, what they cost, and their tasks' outcomes.

    Raises:
        BadValueError: ``by`` holds a name that is no dimension.
        UnavailableError: the store gave no answer.
    """
    bound = limits or QueryLimits()
    part = part_of(store, filters, bound, count=False)
    this = _Question(store, asked, prices or Prices(), part, bound)
    found: list[_Found] = []

    def ask(picked: Where, key: Key) -> GoodputFigures:
        found.append(_figures(this, picked, key, found[0].figures.window_ns if found else None))
        return found[-1].figures

    overall, groups, left = whole_and_groups(store, where(filters), by, bound, ask)
    part = part.reading(found[0].read, overall.requests)
    return Goodput(
        filters=filters, by=tuple(by), limits=asked, overall=overall, groups=groups,
        groups_left_out=left, stages_sampled=part.sampled,
        reading=(*_reading(overall), *_stages_of(part)), assumptions=_ASSUMPTIONS,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Question:
    """What does not differ between the whole and its groups."""

    store: QueryStore
    asked: Limits
    prices: Prices
    part: Part
    limits: QueryLimits


@dataclass(frozen=True, slots=True)
class _Found:
    """``read``: of how many requests it was looked which stage broke a limit."""

    figures: GoodputFigures
    read: int


def _stages_of(part: Part) -> tuple[str, ...]:
    """What is said where the stages that broke limits are those of a part of the requests."""
    if part.sampled is None:
        return ()
    one = part.sampled
    told = (
        f"Which stage broke a limit was worked out for {one.read:,} of {one.of:,} requests, one slice "
        f"of time in {one.one_in}; all other counts and rates are of all."
    )
    return (told,)


def _figures(this: _Question, picked: Where, key: Key, whole_ns: int | None) -> _Found:
    """``whole_ns`` is the window of the whole, None: this is the whole."""
    given = {n: ns for n in _MET if (ns := getattr(this.asked, f"{n}_ns")) is not None}
    params: dict[str, object] = {**picked.params, **given}
    columns, more = cost_columns(this.prices)
    rows = run(
        this.store, _counts_sql(picked, list(given), columns), {**params, **more}, this.limits
    )
    row = {name: sum(int(one[name]) for one in rows) for name in _COUNTED + tuple(f"n_{n}" for n in given)}
    n, good = row["n"], row["good"]
    length = max(int(r["last"]) for r in rows) - min(int(r["first"]) for r in rows) if n else None
    read = picked
    if this.part.sampled is not None:
        read = Where(f"{this.part.times} AND {picked.sql}", picked.params)
    broken = _stages_that_broke(this, read, list(given), params)
    whole = length if whole_ns is None else whole_ns
    figures = GoodputFigures(
        key=key, requests=n, good=good, missed=row["missed"], failed=row["failed"],
        unknown=n - good - row["missed"] - row["failed"], window_ns=length,
        requests_per_s=_per_s(n, whole), goodput_per_s=_per_s(good, whole),
        good_share=good / n if n else None,
        broken=tuple(_broken(row, broken, name) for name in given),
        cost=cost_of(rows, this.prices, whole, good),
        tasks=tasks_of(this.store, picked, this.prices, this.limits),
    )  # fmt: skip
    return _Found(figures, int(broken["read"]))


_COUNTED: Final = ("n", "good", "missed", "failed")


def _good(names: Sequence[str]) -> str:
    met = (f"ifNull({_MET[one]}, {_WITHOUT.get(one, 'false')})" for one in names)
    return " AND ".join(["Status = 'ok'", *met])


def _stages_that_broke(
    this: _Question, read: Where, names: Sequence[str], params: Mapping[str, object]
) -> Row:
    """For each limit its misses among the requests of ``read``, by stage; and how many these are."""
    if not names:
        return {"read": 0}
    row = run(this.store, _usual_sql(read, names), params, this.limits)[0]
    usual = {f"m_{name}": round(row[f"m_{name}"]) if row["good"] else 0 for name in _TIMES}
    told = run(this.store, _broken_sql(read, names), {**params, **usual}, this.limits)[0]
    return {**told, "read": row["n"]}


def _usual_sql(picked: Where, names: Sequence[str]) -> str:
    good = _good(names)
    medians = [
        f"quantileExactInclusiveIf(0.5)({value}, {good}) AS m_{name}"
        for name, value in _TIMES.items()
    ]
    figures = ", ".join(["count() AS n", f"countIf({good}) AS good", *medians])
    return f"SELECT {figures} {_SOURCE} {picked.sql}"


def _broke(limit: str) -> str:
    return f"(Status = 'ok' AND NOT ifNull({_MET[limit]}, true))"


def _counts_sql(picked: Where, names: Sequence[str], more: Sequence[str]) -> str:
    """All counts, and ``more``, in one pass: a row a model."""
    good = _good(names)
    columns = [
        *("Model", "count() AS n", *more),
        f"countIf({good}) AS good",
        f"countIf({' OR '.join(map(_broke, names)) or 'false'}) AS missed",
        *(f"countIf({_broke(one)}) AS n_{one}" for one in names),
        "countIf(Status != 'ok') AS failed",
        "toInt64(min(toUnixTimestamp64Nano(Timestamp))) AS first",
        "toInt64(max(toUnixTimestamp64Nano(Timestamp) + toInt64(E2ENs))) AS last",
    ]
    return f"SELECT {', '.join(columns)} {_SOURCE} {picked.sql} GROUP BY Model"


def _broken_sql(picked: Where, names: Sequence[str]) -> str:
    columns = [
        f"sumMapIf(map({_breaker(one)}, toUInt64(1)), {_broke(one)}) AS by_{one}" for one in names
    ]
    return f"SELECT {', '.join(columns)} {_SOURCE} {picked.sql}"


def _breaker(limit: str) -> str:
    """The name of the stage that broke ``limit``, as SQL."""
    if limit == "tpot":
        without = (
            f"{_TPOT} - PreemptedNs / greatest(1, toInt64(ifNull(OutputTokens, 2)) - 1)"
        )
        return f"if(PreemptedNs > 0 AND {without} <= {{tpot:Float64}}, 'preempted', 'decode')"
    parts = _PARTS[limit]
    names = ", ".join(f"'{name}'" for name in parts)
    above = ", ".join(f"{_TIMES[name]} - {{m_{name}:Int64}}" for name in parts)
    return f"arrayElement([{names}], indexOf([{above}], arrayMax([{above}])))"


def _broken(row: Row, told: Row, limit: str) -> Broken:
    stages: dict[str, Any] = told[f"by_{limit}"] or {}
    order = sorted(stages.items(), key=lambda pair: (-int(pair[1]), pair[0]))
    return Broken(
        limit=limit, n=int(row[f"n_{limit}"]), read=sum(int(count) for _, count in order),
        stages={name: int(count) for name, count in order},
    )  # fmt: skip


def _per_s(amount: int, window_ns: int | None) -> float | None:
    return amount * NS_PER_S / window_ns if window_ns else None


_ASSUMPTIONS: Final = (
    (
        "Good: ended ok within every limit. The window runs from the first start to the last end "
        "of all chosen requests, for groups too."
    ),
    (
        "TTFT is known of streamed requests. A request of one token cannot break TPOT. Requests "
        "whose figure is not known are counted as unknown and not as good."
    ),
    (
        "A limit is broken by the stage that took most above its median among the good requests; "
        "TPOT by preempted where it had held without the time off the engine."
    ),
    (
        "Cost: tokens by the price table, or what a record itself says; GPU price x GPUs x window, "
        "busy or idle. Of a task all model requests in its trace count."
    ),
)


def _reading(found: GoodputFigures) -> tuple[str, ...]:
    if not found.requests:
        return ("There is no request to look at: widen the window or drop a filter.",)
    rate = "no rate" if found.goodput_per_s is None else f"{plain(found.goodput_per_s)} a second"
    share = percent(found.good_share or 0)
    requests = many(found.requests, "request")
    said = [f"{found.good:,} of {requests} ({share}) met the limits: {rate}."]
    for one in found.broken:
        if one.read:
            stage, count = next(iter(one.stages.items()))
            there = f"{count:,} of them" if one.read == one.n else f"{count:,} of {one.read:,} looked at"
            said.append(f"{one.n:,} broke {one.limit.upper()}, {there} in {stage}.")
    if found.unknown:
        said.append(f"Of {found.unknown:,} it is not known: a figure is missing.")
    return tuple(said)
