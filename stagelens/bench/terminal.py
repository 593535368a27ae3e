"""A run on the terminal: its progress while it goes, its figures at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from dashboards.models.report import Distribution
from dashboards.terminal.figures import (
    NAME_CELLS,
    TIMES,
    FigureRow,
    figure_table,
    name_cells,
    plain_table,
)
from dashboards.terminal.text import (
    duration,
    in_unit,
    is_ascii,
    number,
    rate,
    shown,
    unit_for,
)
from stagelens.bench.drive import Driver
from stagelens.bench.models import BenchResult, Figures, Level, Search, ServerSide
from stagelens.bench.plan import told_rate

NAMES = {
    "ttft": "TTFT",
    "ttft_sent": "- from the send",
    "tpot": "TPOT",
    "itl": "ITL (gaps)",
    "itl_chunk": "chunk gaps",
    "e2e": "E2E",
    "e2e_sent": "- from the send",
    "late": "sent late",
}
_WEAK = "~ fewer values than this percentile needs (p99: 100, p95: 20, p90: 10): about the maximum"


@contextmanager
def progress(console: Console, *, quiet: bool) -> Iterator[Callable[[Driver], None]]:
    """A bar of the running level; one line a level where there is no terminal."""
    told: set[str] = set()
    with Progress(
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[said]}"),
        TimeElapsedColumn(), console=console, transient=True,
        disable=quiet or not console.is_terminal,
    ) as bar:  # fmt: skip
        task = bar.add_task("", total=None, said="")

        def show(driver: Driver) -> None:
            label = driver.step.label
            if not console.is_terminal and not quiet and label not in told:
                console.print(f"sending {label}")
            if label not in told:
                told.add(label)
                bar.reset(task, description=label, total=_total(driver), said="")
            said = f"{len(driver.samples)} sent, {driver.ended} ended, {driver.in_flight} in flight"
            bar.update(task, completed=driver.elapsed_s, said=said)

        yield show


def _total(driver: Driver) -> float | None:
    return None if driver.duration_s is None else driver.warmup_s + driver.duration_s


def render(result: BenchResult, console: Console) -> None:
    """The whole result: each level, the levels side by side, the search, the assumptions."""
    ascii_only = is_ascii(console)
    head = f"run {result.name}: {result.model} at {result.url}"
    console.print(Text(shown(head, ascii_only=ascii_only), "bold"))
    if result.interrupted:
        console.print(Text("interrupted: this is what there was until then", "bold"))
    for level in result.levels:
        _level(level, console)
    if len(result.levels) > 1:
        _side_by_side(result.levels, console)
    if result.search is not None:
        console.print(Text(shown(found_in_words(result.search), ascii_only=ascii_only), "bold"))
    if any(f.weak for level in result.levels for f in level.figures):
        console.print(Text(_WEAK, "dim"))
    for line in (result.server_note, *result.assumptions, _where(result)):
        console.print(Text(shown(f"* {line}", ascii_only=ascii_only), "dim"))


def _where(result: BenchResult) -> str:
    told = ", ".join(f"{name} {number}" for name, number in result.versions.items())
    return f"Client: {result.machine}; {told}."


def counts_in_words(level: Level) -> str:
    """What became of the level's requests."""
    counts = level.counts
    errors = "".join(f", {n} {kind}" for kind, n in counts.errors.items())
    cut = f", {counts.interrupted} interrupted" if counts.interrupted else ""
    primed = f", {counts.primers} to fill the prefix cache" if counts.primers else ""
    before = f"{counts.warmup - counts.primers} more as warm-up{primed}"
    return (
        f"{level.label}: {counts.sent} sent ({before}), {counts.ok} ok, "
        f"{counts.failed} failed{errors}{cut}"
    )


def rates_in_words(level: Level) -> list[str]:
    """What was sent and answered a second, and within the limits where there are any."""
    if not level.counts.sent:
        return ["nothing was measured"]
    rates = (
        f"{_per_s(level.offered_per_s, ' requests')} sent, {_per_s(level.done_per_s)} answered, "
        f"{_per_s(level.input_tokens_per_s, ' input tokens')}, "
        f"{_per_s(level.output_tokens_per_s, ' output tokens')}, "
        f"{_known(level.in_flight_mean)} in flight (peak {level.in_flight_peak}), cached "
        f"{'unknown' if level.cached_share is None else f'{level.cached_share:.0%}'}"
    )
    lines = [rates]
    if level.good is not None:
        lines.append(f"{level.good} within the limits: {_per_s(level.good_per_s)}{_untold(level)}")
    return [*lines, *(f"{kind}: {said}" for kind, said in level.counts.said.items())]


def _untold(level: Level) -> str:
    if not level.untold:
        return ""
    return (
        f"; of {level.untold} more it is not known, as the server did not stream or count their tokens: "
        "they are within none"
    )


def _per_s(value: float | None, what: str = "") -> str:
    """``2.00 requests/s``, ``2.00/s``; where it is not known, what is not."""
    return f"{_known(value)}{what}/s" if what or value is not None else "unknown"


def _known(value: float | None) -> str:
    return "unknown" if value is None else rate(value)


def server_in_words(side: ServerSide) -> list[str]:
    """How many of the level's requests the store has, and what their records say."""
    return [f"{side.found} of {side.asked} requests found in the store", *side.reading]


def _level(level: Level, console: Console) -> None:
    ascii_only = is_ascii(console)
    console.print(Text(shown(counts_in_words(level), ascii_only=ascii_only), "bold"))
    for line in rates_in_words(level):
        console.print(Text(shown(line, ascii_only=ascii_only)))
    rows = [_row(NAMES[f.measure], f) for f in level.figures if f.n or f.measure in {"ttft", "e2e"}]
    console.print(figure_table("client", rows, console.width))
    if (server := level.server) is not None:
        made = [_row(NAMES.get(f.measure, f.measure), f) for f in server.figures if f.n]
        console.print(figure_table("proxy's record", made, console.width))
        console.print(_outside_table(server, console.width))
        for line in server_in_words(server):
            console.print(Text(shown(line, ascii_only=ascii_only)))


def _outside_table(side: ServerSide, width: int) -> Table:
    """What the record does not hold. Alone of all times these may be below zero."""
    rows = {"outside of it": side.outside, "- before it": side.before}
    known = {name: one for name, one in rows.items() if one is not None}
    times = [getattr(one, f"{name}_ns") for one in known.values() for name in TIMES]
    unit = unit_for(None if ns is None else abs(ns) for ns in times)
    table = plain_table(width)
    table.add_column(Text("beside it"), no_wrap=True, min_width=NAME_CELLS, max_width=name_cells(width))
    for head in ("n", *(f"{name}\n{unit.name}" for name in TIMES)):
        table.add_column(Text(head), justify="right", no_wrap=True)
    for name, one in known.items():
        cells = [
            ("~" if at in one.weak else "") + in_unit(getattr(one, f"{at}_ns"), unit) for at in TIMES
        ]
        table.add_row(*map(Text, (name, number(one.n), *cells)))
    return table


def _row(name: str, one: Figures) -> FigureRow:
    shown_as = Distribution(
        n=one.n, no_data=one.no_data, p50_ns=_whole(one.p50_ns), p90_ns=_whole(one.p90_ns),
        p95_ns=_whole(one.p95_ns), p99_ns=_whole(one.p99_ns), max_ns=_whole(one.max_ns),
        weak=one.weak,
    )  # fmt: skip
    return FigureRow(Text(name), shown_as)


def _whole(ns: float | None) -> int | None:
    return None if ns is None else round(ns)


def _side_by_side(levels: tuple[Level, ...], console: Console) -> None:
    table = plain_table(console.width)
    table.add_column(Text("level"), no_wrap=True)
    for head in ("done/s", "out tok/s", "TTFT p50", "p99", "TPOT p50", "E2E p99", "failed", "good/s"):
        table.add_column(Text(head), justify="right", no_wrap=True)
    for one in levels:
        ttft, tpot, e2e = (one.figure(name) for name in ("ttft", "tpot", "e2e"))
        cells = (
            one.label, rate(one.done_per_s), rate(one.output_tokens_per_s), duration(ttft.p50_ns),
            duration(ttft.p99_ns), duration(tpot.p50_ns), duration(e2e.p99_ns),
            str(one.counts.failed), "-" if one.good_per_s is None else rate(one.good_per_s),
        )  # fmt: skip
        table.add_row(*map(Text, cells))
    console.print(table)


def found_in_words(search: Search) -> str:
    """The search's verdict, and why it ended where it came to none."""
    why = f" ({search.ended_by})" if search.ended_by else ""
    return _verdict(search) + why


def _verdict(search: Search) -> str:
    limits = ", ".join(f"{name} <= {seconds:g} s" for name, seconds in search.limits_s.items())
    at = f"at p{search.percentile:g}"
    if search.best_rate is None:
        return f"no rate that was tried meets {limits} {at}"
    if search.first_failed is None:
        best = told_rate(search.best_rate)
        return f"{best} requests/s still meets {limits} {at}; no higher rate has a verdict"
    return (
        f"highest rate that meets {limits} {at}: {told_rate(search.best_rate)} requests/s; "
        f"{told_rate(search.first_failed)} does not"
    )
