"""Every quantity the report has percentiles of, as data: its SQL, and which requests have it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tracer.stages import Stage

LEVELS: Final = (0.5, 0.9, 0.95, 0.99)
LEVEL_NAMES: Final = ("p50", "p90", "p95", "p99")
HANDOFF: Final = "handoff"
PREEMPTED: Final = "preempted"


@dataclass(frozen=True, slots=True)
class Quantity:
    """``value`` is a column or expression over ``requests``; ``has`` says which rows have one.

    With ``gaps`` the value is an array and each element counts.
    """

    name: str
    value: str
    has: str
    gaps: bool = False


def column(stage: Stage) -> str:
    """The column with the exclusive time of ``stage``."""
    return f"{stage.capitalize()}Ns"


STAGE_COLUMNS: Final = {stage: column(stage) for stage in Stage}
SUM_OF_STAGES: Final = " + ".join(f"toUInt128({name})" for name in STAGE_COLUMNS.values())


def times_run(stage: Stage) -> str:
    """SQL: how often ``stage`` ran in a request, 0 where it did not.

    Keys and values are read once for all stages: of ``StageCounts['…']`` ClickHouse reads the
    whole map anew for each stage.
    """
    return f"arrayElement(StageCounts.values, indexOf(StageCounts.keys, '{stage}'))"


def _stage(stage: Stage) -> Quantity:
    name = column(stage)
    if stage is Stage.UNATTRIBUTED:  # never "runs": it is what is left of each request
        return Quantity(stage, name, "true")
    return Quantity(stage, name, f"({times_run(stage)} > 0 OR {name} > 0)")


STAGES: Final = tuple(_stage(stage) for stage in Stage)

PARTS: Final = {
    Stage.PROMPT: Quantity(HANDOFF, "HandoffNs", "HandoffNs > 0"),
    Stage.DECODE: Quantity(PREEMPTED, "PreemptedNs", "(Preemptions > 0 OR PreemptedNs > 0)"),
}
"""Times inside a stage, told apart. Preempted time lies in prefill or decode, mostly decode."""

MEASURES: Final = (
    Quantity("e2e", "E2ENs", "true"),
    Quantity("ttft", "FirstTokenNs", "isNotNull(FirstTokenNs)"),
    Quantity("first_chunk", "FirstChunkNs", "isNotNull(FirstChunkNs)"),
    Quantity("first_answer", "FirstAnswerNs", "isNotNull(FirstAnswerNs)"),
    Quantity("tpot", "TpotNs", "isNotNull(TpotNs)"),
    Quantity("itl", "ItlNs", "(ItlKind = 'token' AND notEmpty(ItlNs))", gaps=True),
    Quantity("itl_chunk", "ItlNs", "(ItlKind != 'token' AND notEmpty(ItlNs))", gaps=True),
)

QUANTITIES: Final = (*STAGES, *PARTS.values(), *MEASURES)


def aggregates(quantity: Quantity) -> list[str]:
    """SQL for ``n_`` (values), ``q_`` and ``max_`` of one quantity.

    Where a request has several values, ``have_`` counts the requests that have any.
    """
    name, value, has = quantity.name, quantity.value, quantity.has
    levels = ", ".join(str(level) for level in LEVELS)
    array = "Array" if quantity.gaps else ""
    requests = f"countIf({has})"
    counts = (
        [f"sumIf(length({value}), {has}) AS n_{name}", f"{requests} AS have_{name}"]
        if quantity.gaps
        else [f"{requests} AS n_{name}"]
    )
    return [
        *counts,
        f"quantilesExactInclusive{array}If({levels})({value}, {has}) AS q_{name}",
        f"max{array}If({value}, {has}) AS max_{name}",
    ]


def weak_levels(n: int) -> tuple[str, ...]:
    """The percentiles of ``n`` values that have less than one value above them."""
    return tuple(
        name for name, level in zip(LEVEL_NAMES, LEVELS, strict=True) if 0 < n < _needs(level)
    )


def _needs(level: float) -> int:
    return round(1 / (1 - level))
