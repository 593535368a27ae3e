"""Which requests met their limits, and what broke the others.

The rules are those of :mod:`dashboards.analyses.goodput`, which has them in words; a test
compares both. Here a limit is any SQL for milliseconds, NULL where none is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dashboards.analyses.goodput import BEFORE, REST
from dashboards.grafana.sql import number, requests
from dashboards.queries.measures import STAGE_COLUMNS
from tracer.stages import Stage

STARTS: Final = {"ttft": 1000.0, "tpot": 100.0, "e2e": 30_000.0}
"""Limits in milliseconds that the text boxes start with."""
BOXES: Final = {name: number(f"{name}_limit") for name in STARTS}
_REST_NS: Final = (
    "greatest(toInt64(0), toInt64(ifNull(FirstTokenNs, 0)) - ("
    + " + ".join(f"toInt64({STAGE_COLUMNS[stage]})" for stage in BEFORE)
    + "))"
)
_TIMES: Final = {
    **{str(stage): f"toInt64({column})" for stage, column in STAGE_COLUMNS.items()},
    REST: _REST_NS,
}
_PARTS: Final = {"ttft": (*map(str, BEFORE), REST), "e2e": tuple(map(str, Stage))}


def met(limits: Mapping[str, str]) -> dict[str, str]:
    """Did a request meet each limit: true, false, or NULL where its figure is not known."""
    ttft, tpot, e2e = (limits[name] for name in STARTS)
    return {
        "ttft": f"multiIf(isNull({ttft}), true, isNull(FirstTokenNs), NULL, FirstTokenNs <= {ttft} * 1e6)",
        "tpot": (
            f"multiIf(isNull({tpot}), true, isNotNull(TpotNs), TpotNs <= {tpot} * 1e6, "
            "ifNull(OutputTokens <= 1, false), true, NULL)"
        ),
        "e2e": f"multiIf(isNull({e2e}), true, E2ENs <= {e2e} * 1e6)",
    }


def good(limits: Mapping[str, str]) -> str:
    """Ended ok, and every limit is known to be met."""
    return " AND ".join(["Status = 'ok'", *(f"ifNull({one}, false)" for one in met(limits).values())])


def unknown(limits: Mapping[str, str]) -> str:
    """Ended ok and broke no limit that is known, but one could not be told."""
    held = " AND ".join(f"ifNull({one}, true)" for one in met(limits).values())
    return f"Status = 'ok' AND {held} AND NOT ({good(limits)})"


GOOD: Final = good(BOXES)
UNKNOWN: Final = unknown(BOXES)
BROKEN: Final = (
    "if(Status != 'ok', ['failed'], arrayFilter((name, held) -> NOT held, ["
    + ", ".join(f"'{name}'" for name in STARTS)
    + "], ["
    + ", ".join(f"ifNull({one}, true)" for one in met(BOXES).values())
    + "]))"
)
"""What a request broke: the names of limits, or ``failed`` for an error or a cancel."""
USUAL: Final = (
    "(SELECT arrayMap(ns -> if(isFinite(ns), ns, 0), ["
    + ", ".join(f"quantileExactInclusiveIf(0.5)({ns}, {GOOD})" for ns in _TIMES.values())
    + f"])\n{requests()}) AS usual"
)
"""For WITH: each stage's median among the good requests, 0 where none is good."""


def _most_above(parts: tuple[str, ...]) -> str:
    places = {name: place for place, name in enumerate(_TIMES, 1)}
    names = ", ".join(f"'{name}'" for name in parts)
    above = ", ".join(f"{_TIMES[name]} - usual[{places[name]}]" for name in parts)
    return f"arrayElement([{names}], indexOf([{above}], arrayMax([{above}])))"


def stage_of(broke: str) -> str:
    """The stage that broke the limit named by ``broke``; needs USUAL."""
    without = "TpotNs - PreemptedNs / greatest(1, toInt64(ifNull(OutputTokens, 2)) - 1)"
    off = f"PreemptedNs > 0 AND ifNull({without} <= {BOXES['tpot']} * 1e6, false)"
    return (
        f"multiIf({broke} = 'ttft', {_most_above(_PARTS['ttft'])}, "
        f"{broke} = 'tpot', if({off}, 'preempted', 'decode'), "
        f"{_most_above(_PARTS['e2e'])})"
    )
