"""What it costs and what goes through, on a terminal: cache, goodput, throughput."""

from __future__ import annotations

from rich.console import Console

from dashboards.models.cache import Cache, Preempted
from dashboards.models.goodput import Cost, Goodput, Tasks
from dashboards.models.throughput import Throughput
from dashboards.terminal.tables import label_of, print_lines, print_table
from dashboards.terminal.text import (
    NO_DATA,
    decimals,
    duration,
    in_unit,
    number,
    percents,
    rate,
    unit_for,
)
from dashboards.times import many


def render_cache(found: Cache, console: Console) -> None:
    """Print hits and what they saved, whole and per group, and the rates behind it."""
    every = (found.overall, *found.groups)
    unit = unit_for(one.prefill_ns for one in every)
    print_table(
        console,
        ("requests", "n", "hits", "cached %", f"prefill {unit.name}", "saved", "95 % from", "to"),
        (
            (
                label_of(one.key), number(one.requests), number(one.hits if one.cached_known else None),
                percents([one.hit_share])[0],
                in_unit(one.prefill_ns, unit),
                *(
                    in_unit(ns if one.cached_known else None, unit)
                    for ns in (one.saved_ns, one.low_ns, one.high_ns)
                ),
            )
            for one in every
        ),
    )  # fmt: skip
    print_table(
        console,
        ("model", "n", "us a token", "95 % from", "to"),
        (
            (
                one.model, number(one.n),
                *(
                    NO_DATA if ns is None else decimals(ns / 1000, 2)
                    for ns in (one.ns_per_token, one.low_ns_per_token, one.high_ns_per_token)
                ),
            )
            for one in found.rates
        ),
    )  # fmt: skip
    off = found.overall.preempted
    if off.preemptions:
        line = (
            f"Preempted {many(off.preemptions, 'time')} in {many(off.requests, 'request')}: "
            f"{duration(off.off_ns)} off the engine; {_again(off)}."
        )
        print_lines(console, (line,))
    print_lines(console, found.reading, "bold")
    print_lines(console, found.assumptions, "dim")


def _again(off: Preempted) -> str:
    if not off.known:
        return "what was done again is not known"
    most = "" if off.tokens_again_at_most is None else f", at most {many(off.tokens_again_at_most, 'token')}"
    return f"of {off.known:,}: {duration(off.again_ns)} computing again{most}"


def render_goodput(found: Goodput, console: Console) -> None:
    """Print goodput, what broke the misses, costs and tasks."""
    asked = found.limits
    given = [
        f"{name} <= {duration(ns)}"
        for name, ns in (("TTFT", asked.ttft_ns), ("TPOT", asked.tpot_ns), ("E2E", asked.e2e_ns))
        if ns is not None
    ]
    print_lines(console, (", ".join(given),))
    print_table(
        console,
        ("requests", "n", "good", "%", "good/s", "missed", "failed", "unknown"),
        (
            (
                label_of(one.key), number(one.requests), number(one.good),
                percents([one.good_share])[0],
                rate(one.goodput_per_s), number(one.missed), number(one.failed),
                number(one.unknown),
            )
            for one in (found.overall, *found.groups)
        ),
    )  # fmt: skip
    rows = [
        (one.limit, stage, number(n))
        for one in found.overall.broken
        for stage, n in one.stages.items()
    ]
    if rows:
        print_table(console, ("limit", "broken by", "n"), rows, names=2)
    cost = found.overall.cost
    print_lines(console, [*_cost(cost), *_tasks(found.overall.tasks, cost.currency)])
    print_lines(console, found.reading, "bold")
    print_lines(console, found.assumptions, "dim")


def _cost(cost: Cost) -> list[str]:
    found: list[str] = []
    if cost.tokens is not None:
        found.append(
            f"Tokens: {cost.tokens:.6g} {cost.currency} for {many(cost.priced, 'request')}"
            + (f"; {cost.not_priced} have no price" if cost.not_priced else "")
            + (
                f"; {cost.tokens_per_good_request:.4g} a good request"
                if cost.tokens_per_good_request is not None
                else ""
            )
            + "."
        )
    if cost.gpu is not None:
        good = (
            f"; {cost.gpu_per_good_request:.4g} a good request"
            if cost.gpu_per_good_request is not None
            else ""
        )
        seconds = f"{cost.gpu_seconds:.6g} GPU-seconds"
        found.append(f"GPUs: {cost.gpu:.6g} {cost.currency}, {seconds}{good}.")
    return found


def _tasks(tasks: Tasks, currency: str) -> list[str]:
    if not tasks.tasks:
        return []
    told = f"Tasks with an outcome: {tasks.tasks:,}, {tasks.correct:,} correct"
    if tasks.time_per_correct_ns is not None:
        told += f"; {duration(tasks.time_per_correct_ns)} a correct one"
    if tasks.cost_per_correct is not None:
        told += f", {tasks.cost_per_correct:.4g} {currency}"
    return [f"{told}."]


def render_throughput(found: Throughput, console: Console) -> None:
    """Print a line a level, whole and per group; the knee and the thin levels are marked."""
    for one in (found.overall, *found.groups):
        unit = unit_for(level.e2e_p95_ns for level in one.levels)
        print_table(
            console,
            (
                *(label_of(one.key), "conc.", "s", "tokens/s", "one user"),
                *(f"TTFT p50 {unit.name}", "E2E p50", "p95", ""),
            ),
            (
                (
                    level.label, f"{level.concurrency:.1f}", f"{level.seconds:.4g}",
                    *(
                        NO_DATA if speed is None else rate(speed)
                        for speed in (level.tokens_per_s, level.user_tokens_per_s)
                    ),
                    *(
                        in_unit(ns, unit)
                        for ns in (level.ttft_p50_ns, level.e2e_p50_ns, level.e2e_p95_ns)
                    ),
                    "knee" if level.label == one.knee else "thin" if level.thin else "",
                )
                for level in one.levels
            ),
        )  # fmt: skip
    print_lines(console, found.reading, "bold")
    print_lines(console, found.assumptions, "dim")
