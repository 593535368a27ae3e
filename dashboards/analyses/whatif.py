"""What would a change of a stage have done to the recorded requests.

Each request's exclusive stage times partition its E2E along its critical path, so a
change of stage ``s`` from ``t`` to ``t'`` gives ``E2E' = E2E + sum(t' - t)``, with
``t' = max(0, round(t * factor) + amount)``, at most ``MOST_NS``, for the requests that ran
``s``. The new percentiles are those of the E2E' of the requests themselves. TTFT changes by the sum
over prompt, retrieval, queue and prefill.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dashboards.errors import BadValueError
from dashboards.filters import Filters
from dashboards.models.analysis import Effect, WhatIf
from dashboards.queries.base import QueryLimits, QueryStore, Row, run
from dashboards.queries.measures import LEVEL_NAMES, LEVELS, STAGE_COLUMNS
from dashboards.queries.sample import part_of
from tracer.stages import Stage

BEFORE_TOKEN: Final = (Stage.PROMPT, Stage.RETRIEVAL, Stage.QUEUE, Stage.PREFILL)
BESIDE: Final = (Stage.RETRIEVAL, Stage.TOOL)
ASSUMPTIONS: Final = (
    (
        "Queueing feedback is not modelled: a faster stage would also shorten the queue of other "
        "requests, and a slower one lengthen it; here the queue stays as recorded."
    ),
    (
        "Each request changes along its critical path as recorded: where stages overlapped, another "
        "branch may become the longest one, which is not modelled."
    ),
    (
        "TTFT is worked out for requests with one prefill and no tool whose stages before the first "
        "token fit into it; the others are left out of TTFT and counted."
    ),
)
MOST_NS: Final = 10**18
"""31 years: no stage is made longer, so that no sum of all of them leaves 64 bits."""
_UNIT_NS: Final = {"ns": 1, "us": 1000, "ms": 1_000_000, "s": 1_000_000_000}
_CHANGE: Final = re.compile(r"([+-]\d{1,9}(?:\.\d{1,6})?)(%|ns|us|ms|s)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Change:
    """``stage`` times ``factor`` (>= 0), then plus ``amount_ns``."""

    stage: Stage
    factor: float
    amount_ns: int
    text: str


def parse_changes(texts: Sequence[str]) -> tuple[Change, ...]:
    """Changes from ``decode=-20%`` or ``queue=+50ms``, one a stage.

    Raises:
        BadValueError: none, no stage, no change, or a stage twice.
    """
    if not texts:
        raise BadValueError("no change was given: give one or more such as decode=-20%")
    found = tuple(_parse(text) for text in texts)
    stages = [one.stage for one in found]
    for stage in stages:
        if stages.count(stage) > 1:
            raise BadValueError(f"stage {str(stage)!r} is changed twice: give one change a stage")
    return found


def _parse(text: str) -> Change:
    name, _, rest = text.partition("=")
    if name not in set(map(str, Stage)):
        raise BadValueError(f"stage {name!r} is not known: it is one of {', '.join(Stage)}")
    match = _CHANGE.fullmatch(rest)
    if match is None or (match[2] == "%" and float(match[1]) < -100):
        raise BadValueError(
            f"change {text!r} cannot be used: write {name}=-20% (at least -100%) or {name}=+50ms"
        )
    value = float(match[1])
    if match[2] == "%":
        return Change(Stage(name), 1 + value / 100, 0, text)
    return Change(Stage(name), 1.0, round(value * _UNIT_NS[match[2]]), text)


def whatif(
    store: QueryStore,
    filters: Filters,
    changes: Sequence[Change],
    limits: QueryLimits | None = None,
) -> WhatIf:
    """Percentiles of E2E and TTFT of the chosen requests, before and after ``changes``.

    Raises:
        UnavailableError: the store gave no answer.
    """
    bound = limits or QueryLimits()
    part = part_of(store, filters, bound, count=False)
    params: dict[str, object] = dict(part.where.params)
    for i, one in enumerate(changes):
        params[f"factor{i}"], params[f"amount{i}"] = one.factor, one.amount_ns
    row = run(store, _sql(part.where.sql, changes), params, bound)[0]
    part = part.reading(int(row["n_e2e"]))
    return WhatIf(
        filters=filters,
        changes=tuple(one.text for one in changes),
        requests=part.sampled.of if part.sampled else int(row["n_e2e"]),
        sampled=part.sampled,
        ttft_left_out=int(row["ttft_known"]) - int(row["n_ttft"]),
        effects=(*_effects(row, "e2e"), *_effects(row, "ttft")),
        assumptions=(*part.told, *ASSUMPTIONS),
    )


def _delta(changes: Sequence[Change], only: Sequence[Stage]) -> str:
    terms = ["toInt64(0)"]
    for i, one in enumerate(changes):
        if one.stage in only:
            name = STAGE_COLUMNS[one.stage]
            scaled = (
                f"toInt64({name})"
                if one.factor == 1.0
                else f"toInt64(least({MOST_NS}., round({name} * {{factor{i}:Float64}})))"
            )
            longer = f"least(toInt64({MOST_NS}), {scaled} + {{amount{i}:Int64}})"
            new = f"greatest(toInt64(0), {longer})"
            terms.append(f"if({_on_path(one.stage)}, {new} - toInt64({name}), 0)")
    return " + ".join(terms)


def _on_path(stage: Stage) -> str:
    """Whether a request ran ``stage`` on its critical path.

    A retrieval or tool that held no time ran beside something longer, and a change of it
    moves nothing; another stage that held none ran in no time, as decode of one token does.
    """
    name = STAGE_COLUMNS[stage]
    if stage in BESIDE:
        return f"{name} > 0"
    return f"{name} > 0 OR StageCounts['{stage}'] > 0"


def _sql(condition: str, changes: Sequence[Change]) -> str:
    levels = ", ".join(map(str, LEVELS))
    before = " + ".join(STAGE_COLUMNS[stage] for stage in BEFORE_TOKEN)
    clear = (
        f"isNotNull(FirstTokenNs) AND StageCounts['prefill'] <= 1 AND ToolNs = 0 "
        f"AND {before} <= FirstTokenNs"
    )
    ttft = "toInt64(assumeNotNull(FirstTokenNs))"
    sooner = _delta(changes, BEFORE_TOKEN)
    figures = [
        "count() AS n_e2e",
        f"countIf({clear}) AS n_ttft",
        "count(FirstTokenNs) AS ttft_known",
        f"quantilesExactInclusive({levels})(toInt64(E2ENs)) AS e2e_before",
        f"quantilesExactInclusive({levels})(toInt64(E2ENs) + {_delta(changes, tuple(Stage))}) AS e2e_after",
        f"quantilesExactInclusiveIf({levels})({ttft}, {clear}) AS ttft_before",
        f"quantilesExactInclusiveIf({levels})({ttft} + {sooner}, {clear}) AS ttft_after",
    ]
    source = "FROM {database:Identifier}.requests WHERE"
    return " ".join(("SELECT", ", ".join(figures), source, condition))


def _effects(row: Row, measure: str) -> list[Effect]:
    n = int(row[f"n_{measure}"])
    pairs = zip(LEVEL_NAMES, row[f"{measure}_before"], row[f"{measure}_after"], strict=True)
    return [
        Effect(
            measure=measure,
            percentile=name,
            n=n,
            before_ns=round(before) if n else None,
            after_ns=round(after) if n else None,
        )
        for name, before, after in pairs
    ]
