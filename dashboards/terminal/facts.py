"""The lines above the report's tables: how many, how fast, and what is missing."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from dashboards.models.report import Losses, Report, Slice
from dashboards.terminal.text import duration, number, rate, shown
from dashboards.times import to_text

NAME_CELLS = 12


def facts(report: Report, *, ascii_only: bool) -> Table:
    """One line a fact, its name in front."""
    return fact_table(_lines(report), ascii_only=ascii_only)


def fact_table(lines: Iterator[tuple[str, str]], *, ascii_only: bool) -> Table:
    """Names and texts in two columns; a long text goes on below itself."""
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(width=NAME_CELLS, no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for name, text in lines:
        table.add_row(Text(name), Text(shown(text, ascii_only=ascii_only)))
    return table


def _lines(report: Report) -> Iterator[tuple[str, str]]:
    counts, activity = report.overall.counts, report.overall.activity
    other = f", {number(counts.other_status)} other" if counts.other_status else ""
    yield (
        "requests",
        (
            f"{number(counts.total)}: {number(counts.ok)} ok, {number(counts.error)} error, "
            f"{number(counts.cancelled)} cancelled{other}"
        ),
    )
    if counts.error_types:
        yield "errors", tally(counts.error_types)
    if activity.start_unix_ns is not None and activity.end_unix_ns is not None:
        yield (
            "window",
            (
                f"{to_text(activity.start_unix_ns)} to {to_text(activity.end_unix_ns)}: "
                f"{duration(activity.window_ns)} from first start to last end"
            ),
        )
    if counts.total:
        yield "rates", _rates(report.overall)
        yield (
            "concurrency",
            f"mean {rate(activity.mean_concurrency)}, peak {number(activity.peak_concurrency)}",
        )
        yield from _kinds(report.overall)
    yield from _lost(report.losses)


def _rates(slice_: Slice) -> str:
    activity, total = slice_.activity, slice_.counts.total
    parts = [f"{rate(activity.requests_per_s)} requests/s"]
    for name, value, known in (
        ("input", activity.input_tokens_per_s, activity.input_tokens_known),
        ("output", activity.output_tokens_per_s, activity.output_tokens_known),
    ):
        partly = f" (known of {number(known)})" if 0 < known < total else ""
        parts.append(f"{rate(value)} {name} tokens/s{partly}")
    return ", ".join(parts)


def _kinds(slice_: Slice) -> Iterator[tuple[str, str]]:
    counts = slice_.counts
    yield (
        "cached",
        (
            f"{number(counts.cached)} yes, {number(counts.not_cached)} no, "
            f"{number(counts.cached_unknown)} unknown"
        ),
    )
    cold = f" ({tally(counts.cold_reasons)})" if counts.cold_reasons else ""
    yield (
        "warm",
        (
            f"{number(counts.warm)} warm, {number(counts.cold)} cold{cold}, "
            f"{number(counts.warm_unknown)} unknown; {number(counts.streamed)} streamed"
        ),
    )


def tally(counts: dict[str, int], most: int = 5) -> str:
    """``timeout 3, refused 1``; what is beyond ``most`` names is summed as others."""
    parts = [f"{name} {number(n)}" for name, n in list(counts.items())[:most]]
    if left := sum(list(counts.values())[most:]):
        parts.append(f"others {number(left)}")
    return ", ".join(parts)


def _lost(losses: Losses) -> Iterator[tuple[str, str]]:
    if not losses.senders:
        yield "lost", "no sender has told its losses: not known"
    else:
        spans = {one.reason: one.in_window for one in losses.spans if one.in_window}
        reasons = f" ({tally(spans)})" if spans else ""
        yield (
            "lost",
            (
                f"{number(losses.spans_in_window)} spans at the senders{reasons}, "
                f"{number(losses.spans_since_start)} since they started"
            ),
        )
        if losses.steps_in_window:
            yield "lost", f"{number(losses.steps_in_window)} engine steps at the senders"
    for signal, counts in (losses.collector or {}).items():
        if refused := {name: n for name, n in counts.refused.items() if n}:
            yield (
                "refused",
                (
                    f"{number(sum(refused.values()))} {signal} by the collector so far "
                    f"({tally(refused)})"
                ),
            )
        if counts.set_aside:
            yield "set aside", f"{number(counts.set_aside)} {signal}: kept in files, not in the store"
