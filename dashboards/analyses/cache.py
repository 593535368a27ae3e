"""What prefix-cache hits saved, and what preemption cost.

Saved: ``cached tokens x rate``, with ``rate`` the prefill time a token that was not cached.
It is measured on each model's own requests with one prefill and no preemption: the slope of
prefill time over tokens not cached by Theil and Sen, with Sen's 95 % interval
(:func:`dashboards.analyses.stats.slope`); the interval of what was saved is the same times
the tokens. A slope leaves a prefill's fixed part out, which a hit does not save.

A source that tells more cached than input tokens contradicts itself: of such a request the
input tokens are counted as cached, and it is counted in ``cached_over_input``. The share of
cached tokens is of the requests that tell both.

Preemption: ``off the engine`` is measured, from each preemption to the next scheduling.
``Again`` is from there to the next token: the engine drops the blocks of a preempted request
and computes its prompt and the tokens it had made once more, less what is still in the
prefix cache; so ``tokens again <= input tokens + tokens made before``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final

from dashboards.analyses.groups import Key, whole_and_groups
from dashboards.analyses.stats import Estimate, slope
from dashboards.filters import Filters, Where, where
from dashboards.models.cache import Cache, CacheFigures, Preempted, PrefillRate, Saved
from dashboards.queries.base import QueryLimits, QueryStore, Row, run
from dashboards.queries.sample import Part, part_of
from dashboards.times import in_words, many, percent
from tracer import semconv

MOST_POINTS: Final = 300
"""Requests a model that its rate is measured on, by hash: the slopes of all pairs are taken."""
MOST_MODELS: Final = 50
MOST_PREEMPTED: Final = 5000
_SOURCE: Final = "FROM {database:Identifier}.requests WHERE"
_POINTS_SQL: Final = f"""\
SELECT Model, toInt64(assumeNotNull(InputTokens)) - toInt64(assumeNotNull(CachedTokens)) AS Fresh,
  toInt64(PrefillNs) AS Ns {_SOURCE} {{picked}}
  AND isNotNull(InputTokens) AND isNotNull(CachedTokens) AND StageCounts['prefill'] = 1
  AND PrefillNs > 0 AND Preemptions = 0 AND Fresh > 0
ORDER BY cityHash64(TraceId, SpanId) LIMIT {MOST_POINTS} BY Model LIMIT {MOST_POINTS * MOST_MODELS}"""
_BOTH: Final = "isNotNull(CachedTokens) AND isNotNull(InputTokens)"
_COUNTED: Final = (
    f"toUInt64(if({_BOTH}, least(assumeNotNull(CachedTokens), assumeNotNull(InputTokens)), "
    "ifNull(CachedTokens, 0)))"
)
_TOKENS_SQL: Final = f"""\
SELECT Model, count() AS N, count(CachedTokens) AS Known, countIf(CachedTokens > 0) AS Hits,
  sumIf(toUInt64(assumeNotNull(InputTokens)), {_BOTH}) AS Input, sum({_COUNTED}) AS Cached,
  sumIf({_COUNTED}, {_BOTH}) AS CachedOfInput, countIf(CachedTokens > InputTokens) AS Over,
  sum(PrefillNs) AS Prefill,
  countIf(Preemptions > 0) AS Preempted, sum(toUInt64(Preemptions)) AS Times, sum(PreemptedNs) AS Off
{_SOURCE} {{picked}} GROUP BY Model ORDER BY Model"""
_PREEMPTED_SQL: Final = f"""\
SELECT TraceId, SpanId, toUnixTimestamp64Nano(Timestamp) AS StartNs, E2ENs, InputTokens, ItlNs
{_SOURCE} {{picked}} AND Preemptions > 0 AND Choices = 1 AND ItlKind = 'token'
  AND StageCounts['decode'] = 1 AND isNotNull(InputTokens)
ORDER BY Timestamp DESC LIMIT {MOST_PREEMPTED}"""
_EVENTS_SQL: Final = """\
SELECT s.TraceId AS TraceId, c.CallId AS CallId, c.RootId AS RootId, s.Stage AS Stage, s.StartNs AS StartNs,
  s.Duration AS Duration, s.Marks AS Marks, s.MarkNs AS MarkNs
FROM (
  SELECT TraceId, ParentSpanId AS CallId, SpanAttributes[{stage_key:String}] AS Stage,
    toUnixTimestamp64Nano(Timestamp) AS StartNs, Duration, Events.Name AS Marks,
    arrayMap(t -> toUnixTimestamp64Nano(t), Events.Timestamp) AS MarkNs
  FROM {database:Identifier}.otel_traces
  WHERE TraceId IN {traces:Array(String)} AND Stage IN ('prefill', 'decode')
    AND Timestamp >= fromUnixTimestamp64Nano({first:Int64}, 'UTC')
) AS s
INNER JOIN (
  SELECT TraceId, SpanId AS CallId, ParentSpanId AS RootId
  FROM {database:Identifier}.otel_traces WHERE TraceId IN {traces:Array(String)}
    AND Timestamp >= fromUnixTimestamp64Nano({first:Int64}, 'UTC')
) AS c ON s.TraceId = c.TraceId AND s.CallId = c.CallId"""


def cache(
    store: QueryStore,
    filters: Filters,
    by: Sequence[str] = (),
    limits: QueryLimits | None = None,
) -> Cache:
    """What the prefix cache saved the chosen requests, and what preemption cost them.

    Raises:
        BadValueError: ``by`` holds a name that is no dimension.
        UnavailableError: the store gave no answer.
    """
    bound = limits or QueryLimits()
    part = part_of(store, filters, bound)
    points: dict[str, list[tuple[float, float]]] = defaultdict(list)
    some = _POINTS_SQL.replace("{picked}", part.where.sql)
    for row in run(store, some, part.where.params, bound):
        points[row["Model"]].append((float(row["Fresh"]), float(row["Ns"])))
    rates = {model: slope(given) for model, given in points.items()}

    def ask(picked: Where, key: Key) -> CacheFigures:
        return _figures(store, picked, key, rates, bound)

    overall, groups, left = whole_and_groups(store, where(filters), by, bound, ask)
    return Cache(
        filters=filters, by=tuple(by), rates=tuple(_rates(points, rates)), overall=overall,
        groups=groups, groups_left_out=left, rates_sampled=part.sampled, reading=_reading(overall),
        assumptions=(*_ASSUMPTIONS, *_rates_of(part)),
    )  # fmt: skip


def _rates_of(part: Part) -> tuple[str, ...]:
    """What is said where the rates were measured on a part of the requests."""
    if part.sampled is None:
        return ()
    told = (
        f"The rates are measured on requests out of {part.sampled.slices} slices of time, one in "
        f"{part.sampled.one_in}; counts and tokens are of all {part.sampled.of:,} requests."
    )
    return (told,)


def _rates(
    points: Mapping[str, Sequence[tuple[float, float]]], rates: Mapping[str, Estimate | None]
) -> list[PrefillRate]:
    return [
        PrefillRate(
            model=model, n=len(points[model]), ns_per_token=one.value if one else None,
            low_ns_per_token=one.low if one else None, high_ns_per_token=one.high if one else None,
        )
        for model, one in sorted(rates.items())
    ]  # fmt: skip


def _figures(
    store: QueryStore,
    picked: Where,
    key: Key,
    rates: Mapping[str, Estimate | None],
    limits: QueryLimits,
) -> CacheFigures:
    rows = run(store, _TOKENS_SQL.replace("{picked}", picked.sql), picked.params, limits)
    models = tuple(_saved(row, rates.get(row["Model"])) for row in rows if row["Hits"])
    known = all(one.saved_ns is not None for one in models)
    tokens, cached, of_them, over = (
        sum(int(r[name]) for r in rows) for name in ("Input", "Cached", "CachedOfInput", "Over")
    )
    return CacheFigures(
        key=key, requests=sum(int(r["N"]) for r in rows),
        cached_known=sum(int(r["Known"]) for r in rows), hits=sum(int(r["Hits"]) for r in rows),
        input_tokens=tokens, cached_tokens=cached, hit_share=of_them / tokens if tokens else None,
        cached_over_input=over,
        prefill_ns=sum(int(r["Prefill"]) for r in rows),
        saved_ns=sum(m.saved_ns or 0 for m in models) if known else None,
        low_ns=sum(m.low_ns or 0 for m in models) if known else None,
        high_ns=sum(m.high_ns or 0 for m in models) if known else None,
        models=models, preempted=_preempted(store, picked, rows, limits),
    )  # fmt: skip


def _saved(row: Row, rate: Estimate | None) -> Saved:
    tokens = int(row["Cached"])
    value, low, high = (
        (None, None, None)
        if rate is None
        else (round(max(0.0, one) * tokens) for one in (rate.value, rate.low, rate.high))
    )
    return Saved(
        model=row["Model"], hits=int(row["Hits"]), cached_tokens=tokens,
        saved_ns=value, low_ns=low, high_ns=high,
    )  # fmt: skip


def _preempted(
    store: QueryStore, picked: Where, models: Sequence[Row], limits: QueryLimits
) -> Preempted:
    requests, times, off = (sum(int(r[name]) for r in models) for name in ("Preempted", "Times", "Off"))
    again: list[tuple[int, int]] = []
    if requests:
        rows = run(store, _PREEMPTED_SQL.replace("{picked}", picked.sql), picked.params, limits)
        again = _again(store, rows, limits) if rows else []
    return Preempted(
        requests=requests, preemptions=times, off_ns=off,
        known=len(again), again_ns=sum(ns for ns, _ in again) if again else None,
        tokens_again_at_most=sum(tokens for _, tokens in again) if again else None,
    )  # fmt: skip


def _again(store: QueryStore, rows: Sequence[Row], limits: QueryLimits) -> list[tuple[int, int]]:
    """For each preemption of ``rows`` whose spans are stored: time and tokens of the work again."""
    params: dict[str, object] = {
        "stage_key": semconv.STAGE,
        "traces": sorted({row["TraceId"] for row in rows}),
        "first": min(int(row["StartNs"]) for row in rows),
    }
    spans: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for span in run(store, _EVENTS_SQL, params, limits):
        spans[span["TraceId"], span["RootId"]].append(span)
        spans[span["TraceId"], span["CallId"]].append(span)  # right below the root
    found: list[tuple[int, int]] = []
    for row in rows:
        mine = spans.get((row["TraceId"], row["SpanId"]), [])
        starts = [int(s["StartNs"]) for s in mine if s["Stage"] == "decode"]
        if len(starts) == 1:
            marks = [m for s in mine for m in zip(s["Marks"], s["MarkNs"], strict=True)]
            tokens = list(accumulate(map(int, row["ItlNs"]), initial=starts[0]))
            found += work_again(tokens, [(n, int(at)) for n, at in marks], int(row["InputTokens"]))
    return found


def work_again(
    tokens_ns: Sequence[int], marks: Sequence[tuple[str, int]], input_tokens: int
) -> list[tuple[int, int]]:
    """(time from the resumption to the next token, tokens computed again at most) of each one.

    ``tokens_ns`` are the stamps of the tokens, ``marks`` the ``preempted`` and ``resumed``
    events. A preemption without a resumption or without a token after it is left out.
    """
    found: list[tuple[int, int]] = []
    made: int | None = None
    for name, at in sorted(marks, key=lambda mark: mark[1]):
        if name == "preempted" and made is None:
            made = bisect_right(tokens_ns, at)
        elif name == "resumed" and made is not None:
            next_one = bisect_left(tokens_ns, at)
            if next_one < len(tokens_ns):
                found.append((tokens_ns[next_one] - at, input_tokens + made))
            made = None
    return found


_ASSUMPTIONS: Final = (
    (
        "Saved: cached tokens times the prefill time a token that was not cached, measured on "
        f"requests of the same model (slope by Theil and Sen, at most {MOST_POINTS} requests, "
        "95 % interval); under load that time holds the waiting of shared steps too."
    ),
    (
        "A prefill's fixed part is not saved by a hit. Attention over the cached tokens is taken "
        "to cost the same either way."
    ),
    (
        "Preemption: off the engine is measured. Again: from the resumption to the next token; "
        "tokens again is the most it can be, for part of them may still have been cached. Known "
        "of requests with one choice whose tokens came one by one and whose spans are stored."
    ),
)


def _reading(found: CacheFigures) -> tuple[str, ...]:
    if not found.requests:
        return ("There is no request to look at: widen the window or drop a filter.",)
    said: list[str] = []
    if not found.cached_known:
        said.append("No request tells its cached tokens: what was saved is not known.")
    elif found.saved_ns is None:
        said.append(
            "What was saved is not known: no two prefills of different length to measure the rate."
        )
    else:
        share = (
            "what share of the prompt tokens is not known" if found.hit_share is None
            else f"with {percent(found.hit_share)} of all prompt tokens"
        )  # fmt: skip
        said.append(
            f"{found.hits:,} of {many(found.cached_known, 'request')} hit the cache, {share}: about "
            f"{in_words(found.saved_ns)} of prefill saved (95 %: "
            f"{in_words(found.low_ns or 0)} to {in_words(found.high_ns or 0)}), beside "
            f"{in_words(found.prefill_ns)} spent."
        )
    if found.cached_over_input:
        said.append(
            f"{many(found.cached_over_input, 'request')} told more cached than input tokens: of these the "
            "input tokens are counted."
        )
    one = found.preempted
    if one.preemptions:
        said.append(
            f"{many(one.preemptions, 'preemption')} in {many(one.requests, 'request')}: "
            f"{in_words(one.off_ns)} off the engine."
        )
    return tuple(said)
