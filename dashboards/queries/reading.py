"""One or two sentences on what the figures say, computed from them."""

from __future__ import annotations

from typing import Final

from dashboards.models.report import Losses, Slice, StageFigures
from dashboards.times import many, percent
from tracer.stages import Stage

LEAST_GROWTH: Final = 0.05
"""A stage stands out among the slowest when its share grows by this much."""
LEAST_FOR_TAIL: Final = 20
"""Below this many requests the slowest 5 % is a single one."""

_HINTS: Final[dict[str, str]] = {
    Stage.PROMPT: "requests wait for parsing, templates and tokenisation; look at input_tokens",
    Stage.RETRIEVAL: "requests wait for the retriever; look at the retrieval spans",
    Stage.QUEUE: "requests wait for the engine; look at concurrency",
    Stage.PREFILL: "prompts take long to read; look at input_tokens and cached",
    Stage.DECODE: "answers are long or tokens slow; look at output_tokens and TPOT",
    Stage.TOOL: "requests wait for tools; look at the tool spans",
    Stage.DELIVER: "clients take the bytes slowly; look at the clients and the network",
    Stage.UNATTRIBUTED: "time that no stage covers; look at one of the slowest traces",
}


def reading(overall: Slice, losses: Losses) -> tuple[str, ...]:
    """At most three sentences: the largest stage, what grows in the tail, what is lost."""
    stages = [one for one in overall.stages if one.part_of is None and one.share is not None]
    if not stages:
        return ("There is no request to report on: widen the window or drop a filter.",)
    found = [_largest(overall, stages), _tail(overall, stages)]
    lost = (losses.spans_in_window or 0) + sum(
        sum(one.refused.values()) for one in (losses.collector or {}).values()
    )
    if lost:
        found.append(f"At least {lost:,} spans or records are lost: the slowest may be among them.")
    return tuple(found)


def _largest(overall: Slice, stages: list[StageFigures]) -> str:
    first = max(stages, key=lambda one: one.sum_ns)
    text = f"{first.stage} holds {_percent(first.share)} of the time"
    if overall.counts.total >= LEAST_FOR_TAIL and _grown(stages):
        return f"{text}."  # the hint goes to the stage that makes requests slow
    return f"{text}: {_HINTS[first.stage]}."


def _tail(overall: Slice, stages: list[StageFigures]) -> str:
    if overall.counts.total < LEAST_FOR_TAIL:
        return (
            f"With {many(overall.counts.total, 'request')} nothing can "
            f"be said about the slowest 5 %: {LEAST_FOR_TAIL} are the least."
        )
    grown = _grown(stages)
    if grown is None:
        return "The slowest 5 % divide their time like the rest: they are slower in every stage."
    return (
        f"Among the slowest 5 % (n={overall.slowest_n:,}) {grown.stage} grows from "
        f"{_percent(grown.share)} to {_percent(grown.slowest_share)}: {_HINTS[grown.stage]}."
    )


def _grown(stages: list[StageFigures]) -> StageFigures | None:
    """The stage whose share grows most from all requests to the slowest, if by enough."""
    most = max(stages, key=_growth)
    return most if _growth(most) >= LEAST_GROWTH else None


def _growth(one: StageFigures) -> float:
    return (one.slowest_share or 0.0) - (one.share or 0.0)


def _percent(share: float | None) -> str:
    return "no data" if share is None else percent(share)
