"""Why it is slow, on a terminal: attribution, critical path, interference."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from dashboards.models.attribution import Attribution
from dashboards.models.interference import Interference, InterferenceFigures
from dashboards.models.path import CriticalPath, PathStep, TracePath
from dashboards.terminal.tables import label_of, print_lines, print_table
from dashboards.terminal.text import (
    NO_DATA,
    Unit,
    decimals,
    exact_ms,
    in_unit,
    number,
    percents,
    unit_for,
)
from dashboards.times import many
from dashboards.visible import quoted, told_apart

SHOWN_SLICES = 15


def render_attribution(found: Attribution, console: Console) -> None:
    """Print the stages' differences and the slices that differ most."""
    unit = unit_for(one.slow_ns for one in found.stages)
    if found.stages:
        print_table(
            console,
            ("stage", f"slow {unit.name}", "middle", "difference", "95 % from", "to", "share %"),
            (
                (
                    one.stage, in_unit(one.slow_ns, unit), in_unit(one.middle_ns, unit),
                    *(_signed(ns, unit.ns) for ns in (one.difference_ns, one.low_ns, one.high_ns)),
                    _percent(one.share),
                )
                for one in found.stages
            ),
        )  # fmt: skip
    kept = [one for one in found.slices if one.difference][:SHOWN_SLICES]
    if kept:
        print_table(
            console,
            ("slice", "value", "slow %", "middle %", "difference", "95 % from", "to", ""),
            (
                (
                    one.dimension, "(unknown)" if one.value is None else quoted(one.value),
                    _percent(one.slow_share), _percent(one.middle_share),
                    *(f"{x * 100:+z.1f}" for x in (one.difference, one.low, one.high)),
                    "*" if one.stands_out else "",
                )
                for one in kept
            ),
            names=2,
        )  # fmt: skip
    print_lines(console, found.reading, "bold")
    print_lines(console, found.assumptions, "dim")


def render_path(found: CriticalPath, console: Console) -> None:
    """Print where the critical paths lie, whole and per group."""
    for one in (found.overall, *found.groups):
        head = f"{label_of(one.key)} ({number(one.requests)} of {number(one.looked_at)} looked at)"
        _steps(console, head, one.steps)
    if found.overall.without_spans:
        print_lines(console, (f"{many(found.overall.without_spans, 'request')} without spans left out",))
    print_lines(console, found.reading, "bold")
    print_lines(console, found.assumptions, "dim")


def render_trace_path(found: TracePath, console: Console) -> None:
    """Print the segments of each request's path in order, and its steps."""
    for one in found.requests:
        print_lines(console, (f"{one.name}: {exact_ms(one.e2e_ns)} ms",), "bold")
        print_table(
            console,
            ("on the path", "from ms", "for ms"),
            ((s.name, exact_ms(s.offset_ns - one.offset_ns), exact_ms(s.ns)) for s in one.segments),
        )
        _steps(console, "step", one.steps)
    if found.without_spans:
        print_lines(console, (f"{many(found.without_spans, 'request')} without spans left out",))
    if found.spans_left_out:
        print_lines(console, (f"{many(found.spans_left_out, 'span')} left out",))
    print_lines(console, found.assumptions, "dim")


def _steps(console: Console, head: str, steps: Sequence[PathStep]) -> None:
    unit = unit_for(one.total_ns for one in steps)
    print_table(
        console,
        (head, "runs", f"on path {unit.name}", "%", "beside", "if gone", "p50", "p95"),
        (
            (
                one.name, number(one.runs), in_unit(one.on_path_ns, unit), _percent(one.share),
                in_unit(one.beside_ns, unit), in_unit(one.if_gone_ns, unit),
                in_unit(one.p50_ns, unit), in_unit(one.p95_ns, unit),
            )
            for one in steps
        ),
    )  # fmt: skip


def render_interference(found: Interference, console: Console) -> None:
    """Print the totals, the worst victims and the worst causers."""
    every = (found.overall, *found.groups)
    unit = unit_for(one.decode_ns for one in every)
    print_table(
        console,
        ("requests", "n", "no data", f"decode {unit.name}", "lost", "%", "lost p50", "p95", "by unknown"),
        (
            (
                label_of(one.key), number(one.requests), number(one.without_spans + one.elsewhere),
                *(_if_known(one, ns, unit) for ns in (one.decode_ns, one.lost_ns)),
                _percent(one.share), in_unit(one.lost_p50_ns, unit), in_unit(one.lost_p95_ns, unit),
                _if_known(one, one.unknown_ns, unit),
            )
            for one in every
        ),
    )  # fmt: skip
    _worst(console, found.overall)
    print_lines(console, found.reading, "bold")
    print_lines(console, found.assumptions, "dim")


def _if_known(one: InterferenceFigures, ns: int, unit: Unit) -> str:
    """A sum over the decodes of ``one``; no data where none of them is known."""
    return in_unit(None if one.share is None else ns, unit)


def _worst(console: Console, one: InterferenceFigures) -> None:
    causes = [cause for victim in one.worst_victims for cause in victim.causes]
    ids = [*(c.trace_id for c in causes), *(c.trace_id for c in one.worst_causers)]
    ids += [victim.trace_id for victim in one.worst_victims]
    cut = told_apart(one_id for one_id in ids if one_id)
    if one.worst_victims:
        print_table(
            console,
            ("victim", "lost ms", "%", "steps", "most by"),
            (
                (
                    v.trace_id, exact_ms(v.lost_ns), _percent(v.share), number(v.steps),
                    cut(v.causes[0].trace_id or "not known") if v.causes else NO_DATA,
                )
                for v in one.worst_victims[:10]
            ),
        )  # fmt: skip
    if one.worst_causers:
        print_table(
            console,
            ("causer", "caused ms", "steps", "victims"),
            (
                (
                    c.trace_id or "not known", exact_ms(c.caused_ns), number(c.steps),
                    number(c.victims),
                )
                for c in one.worst_causers[:10]
            ),
        )  # fmt: skip


def _percent(share: float | None) -> str:
    return percents([share])[0]


def _signed(ns: float | None, unit_ns: int) -> str:
    return NO_DATA if ns is None else decimals(ns / unit_ns, 3, "+z")
