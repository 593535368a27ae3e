"""Interference of stored requests: what they lost, and to whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from dashboards.analyses.compare import quantile
from dashboards.analyses.groups import Key, whole_and_groups
from dashboards.analyses.interference import LEAST_STEPS, Blame, Told, excesses
from dashboards.analyses.interfering_read import (
    MOST_REQUESTS,
    MOST_SPANS,
    MOST_STEPS,
    Around,
    Id,
    latest,
    read_around,
)
from dashboards.filters import Filters, Where, where
from dashboards.models.interference import (
    Cause,
    Causer,
    Interference,
    InterferenceFigures,
    Victim,
)
from dashboards.queries.base import QueryLimits, QueryStore, count_of, run
from dashboards.times import in_words, many, percent, to_text

SHOWN: Final = 20
SHOWN_CAUSES: Final = 5
_CHOSEN_SQL: Final = """\
SELECT TraceId, SpanId, ServiceInstance AS Instance FROM {{database:Identifier}}.requests
WHERE {picked} ORDER BY Timestamp DESC, TraceId, SpanId LIMIT {most}"""


def interference(
    store: QueryStore,
    filters: Filters,
    by: Sequence[str] = (),
    limits: QueryLimits | None = None,
) -> Interference:
    """What the chosen requests' decode lost; those who caused it may be any request.

    Raises:
        BadValueError: ``by`` holds a name that is no dimension.
        UnavailableError: the store gave no answer.
    """
    bound = limits or QueryLimits()
    every = where(filters)
    total = count_of(store, every, bound)
    looked_at = latest(store, every, bound) if total > MOST_REQUESTS else every
    around = read_around(store, looked_at, bound)

    def ask(picked: Where, key: Key) -> InterferenceFigures:
        sql = _CHOSEN_SQL.format(picked=picked.sql, most=MOST_REQUESTS)
        rows = run(store, sql, picked.params, bound)
        ids = {(r["TraceId"], r["SpanId"]): str(r["Instance"]) for r in rows}
        return _figures(around, key, len(ids) if key else total, ids)

    overall, groups, left = whole_and_groups(store, looked_at, by, bound, ask)
    return Interference(
        filters=filters, by=tuple(by), from_unix_ns=around.first_ns, steps=around.steps,
        mixed_steps=around.mixed_steps,
        mixed_left_out=around.mixed_left_out, without_baseline=around.without_baseline,
        several_engines=around.several_engines, baselines=around.baselines,
        requests_left_out=around.requests_left_out, spans_left_out=around.spans_left_out,
        overall=overall, groups=groups, groups_left_out=left,
        reading=_reading(around, overall), assumptions=_ASSUMPTIONS,
    )  # fmt: skip


def _figures(
    around: Around, key: Key, chosen: int, ids: Mapping[Id, str]
) -> InterferenceFigures:
    """``ids`` are the requests that are looked at, each with the instance it ran in."""
    wanted = {around.number[one] for one in ids if one in around.number}
    told = Told()
    engines: list[Blame] = []
    decode: dict[int, int] = {}
    seen: set[int] = set()
    for instance, steps in around.mixed.items():
        phases = [p for p in around.decodes.get(instance, []) if p.request in wanted]
        prefills = around.prefills.get(instance, [])
        seen |= {p.request for p in (*phases, *prefills) if p.request in wanted}
        for one in phases:
            decode[one.request] = decode.get(one.request, 0) + one.end_ns - one.start_ns
        engines.append(Blame(steps, excesses(steps, around.known[instance]), phases, prefills))
        engines[-1].add_to(told)
    lost = sorted(told.lost_ns.get(one, 0) for one in decode)
    total, decoded = sum(lost), sum(decode.values())
    elsewhere = sum(instance not in around.mixed for instance in ids.values())
    return InterferenceFigures(
        key=key, chosen=chosen, requests=len(ids),
        without_spans=len(ids) - elsewhere - len(seen), elsewhere=elsewhere,
        victims=sum(ns > 0 for ns in told.lost_ns.values()),
        causers=sum(ns > 0 for who, ns in told.caused_ns.items() if who is not None),
        decode_ns=decoded, lost_ns=total, caused_ns=sum(told.caused_ns.values()),
        unknown_ns=told.caused_ns.get(None, 0), share=total / decoded if decoded else None,
        lost_p50_ns=round(quantile(lost, 0.5)) if lost else None,
        lost_p95_ns=round(quantile(lost, 0.95)) if lost else None,
        worst_victims=_victims(around, told, engines, decode),
        worst_causers=_causers(around, told, engines),
    )  # fmt: skip


def _victims(
    around: Around, told: Told, engines: Sequence[Blame], decode: dict[int, int]
) -> tuple[Victim, ...]:
    worst = sorted(told.lost_ns, key=lambda one: (-told.lost_ns[one], one))[:SHOWN]
    found: list[Victim] = []
    for one in [who for who in worst if told.lost_ns[who]]:
        causes = [pair for engine in engines for pair in engine.causes(one).items()]
        parts = sorted(causes, key=lambda pair: (-pair[1], -1 if pair[0] is None else pair[0]))
        found.append(
            Victim(
                trace_id=around.ids[one][0], span_id=around.ids[one][1], decode_ns=decode[one],
                lost_ns=told.lost_ns[one], steps=told.lost_steps[one],
                share=told.lost_ns[one] / decode[one] if decode[one] else None,
                causes=tuple(
                    Cause(trace_id=who[0], span_id=who[1], ns=ns)
                    for who, ns in ((_id(around, c), ns) for c, ns in parts[:SHOWN_CAUSES])
                ),
            )
        )  # fmt: skip
    return tuple(found)


def _causers(around: Around, told: Told, engines: Sequence[Blame]) -> tuple[Causer, ...]:
    some = [one for one, ns in told.caused_ns.items() if ns]
    worst = sorted(some, key=lambda one: (-told.caused_ns[one], -1 if one is None else one))
    return tuple(
        Causer(
            trace_id=_id(around, one)[0], span_id=_id(around, one)[1],
            caused_ns=told.caused_ns[one], steps=told.caused_steps[one],
            victims=sum(len(engine.victims(one)) for engine in engines),
        )
        for one in worst[:SHOWN]
    )  # fmt: skip


def _id(around: Around, number: int | None) -> tuple[str | None, str | None]:
    return (None, None) if number is None else around.ids[number]


_ASSUMPTIONS: Final = (
    (
        "Lost: the time of each step with prefills above the median of decode-only steps with as "
        f"many decoding requests (sizes with at least {LEAST_STEPS} steps; between them a straight "
        "line). A step counts for a request whose decode span holds its middle."
    ),
    (
        "A step's excess is divided among the requests that prefill in it by their prompt tokens "
        "that were not cached, over the steps of their prefill."
    ),
    (
        "Work done again after a preemption, and waiting between steps, are not counted. Causers "
        "may lie outside the filters."
    ),
    (
        f"At most {MOST_REQUESTS:,} requests, the latest, with the steps and requests of their time: "
        f"of these at most {MOST_STEPS:,} steps, {MOST_REQUESTS:,} requests and {MOST_SPANS:,} spans, "
        "the latest."
    ),
)


_NO_STEPS: Final = (
    "No engine steps are stored for this time: only the embedded engine tells them, so "
    "interference is not known."
)
_NO_BASELINE: Final = (
    "No decode-only steps to compare with, or several engines in one process: interference is "
    "not known."
)


_NO_DECODE: Final = (
    "No decode of these requests is stored beside the engine's steps: what they lost is not known."
)


def _without(around: Around, found: InterferenceFigures) -> tuple[str, ...]:
    """What is said where the figures are not of all that were looked at."""
    said: list[str] = []
    if n := found.without_spans:
        those = "" if n == found.requests else f" of {found.requests:,}"
        read = " or not read" if around.spans_left_out or around.requests_left_out else ""
        said.append(
            f"The prefill and decode spans of {many(n, 'request')}{those} are not stored{read}: what "
            f"{'it' if n == 1 else 'they'} lost and caused is not in these figures."
        )
    if (n := found.elsewhere) and n < found.requests:
        said.append(
            f"{many(n, 'request')} of {found.requests:,} ran where no step that prefilled while others "
            f"decoded is told, and {'is' if n == 1 else 'are'} not in these figures."
        )
    return tuple(said)


def _reading(around: Around, found: InterferenceFigures) -> tuple[str, ...]:
    if not found.chosen:
        return ("There is no request to look at: widen the window or drop a filter.",)
    part = (*_without(around, found), *_part(around, found), *_left_out(around))
    if not around.steps:
        return (_NO_STEPS, *part)
    if not around.mixed_steps:
        return ("No step prefilled while others decoded: nothing was lost to prefills.", *part)
    if not around.mixed:
        return (_NO_BASELINE, *part)
    if found.share is None:
        return (_NO_DECODE, *part)
    first = (
        f"{in_words(found.lost_ns)} of {in_words(found.decode_ns)} decode "
        f"({percent(found.share, 1)}) went to other requests' prefills, in "
        f"{around.mixed_steps:,} of {many(around.steps, 'step')}."
    )
    said = [first]
    known = [one for one in found.worst_causers if one.trace_id]
    if known:
        said.append(
            f"Request {known[0].trace_id} caused most: {in_words(known[0].caused_ns)} to "
            f"{many(known[0].victims, 'other')}."
        )
    return (*said, *part)


def _part(around: Around, found: InterferenceFigures) -> tuple[str, ...]:
    """What is said where only the latest requests were looked at."""
    if found.requests == found.chosen or around.first_ns is None:
        return ()
    told = (
        f"Looked at: the latest {found.requests:,} of {found.chosen:,} requests, from "
        f"{to_text(around.first_ns)} on; all figures are of those."
    )
    return (told,)


def _left_out(around: Around) -> tuple[str, ...]:
    """What is said where not all that ran in the window was read."""
    left = (
        (around.mixed_left_out, "step", " that prefilled"),
        (around.requests_left_out, "request", ""),
        (around.spans_left_out, "span", " of prefill and decode"),
    )
    told = ", ".join(f"{many(n, what)}{which}" for n, what, which in left if n)
    if not told:
        return ()
    said = (
        f"Not read, the earliest of this time: {told}. What was lost then, and to whom, is missing: "
        "choose a shorter window."
    )
    return (said,)
