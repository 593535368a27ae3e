"""One invocation: what is read before the run, the run, and its result with the server's side."""

from __future__ import annotations

import sys
from asyncio import CancelledError
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from collectors.store.errors import StoreError
from collectors.store.url import StoreUrl
from dashboards.analyses.compare import parse_side
from dashboards.errors import DashboardError
from dashboards.filters import Filters
from dashboards.queries.records import MOST_RECORDS
from dashboards.terminal.console import make_console
from dashboards.times import many
from dashboards.visible import visible
from stagelens.bench.assumptions import assumptions
from stagelens.bench.datafile import Item, read_items
from stagelens.bench.datanotes import data_notes
from stagelens.bench.export import to_csv, to_html
from stagelens.bench.interrupt import Interrupts
from stagelens.bench.machine import machine, versions
from stagelens.bench.models import BenchResult, Level, ServerSide
from stagelens.bench.one_clock import SharedClock
from stagelens.bench.probe import Prepared
from stagelens.bench.replay import Recorded, choose, prefix_notes
from stagelens.bench.run import Ran, Runner, run_fast
from stagelens.bench.server_side import DOUBT_S, note_for, server_side
from stagelens.bench.settings import BenchSettings
from stagelens.bench.terminal import progress, render
from stagelens.bench.wire import Target
from stagelens.errors import UserError
from stagelens.sources import open_source
from tracer.clock import SystemClock

_NOBODY = (
    "No server-side figures: the answers named no trace and no store holds these requests, so no "
    "Stagelens stands before this server (or --collector, --store or --data-dir must name its store)."
)

_NONE_OK = note_for(
    "no measured request was answered, and only answered ones are set beside the store's records; "
    "what a store holds of the others is in `stagelens report --run`."
)


@dataclass(frozen=True, slots=True)
class Where:
    """The source of server-side figures and of what is replayed, as the reading commands take it."""

    collector: str | None = None
    store: str | None = None
    data_dir: Path | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """A run that is over; ``levels`` are those of ``result``, with their samples."""

    result: BenchResult
    ran: Ran

    def shown(self, form: str) -> str:
        """As ``json``, ``csv``, ``html`` or the terminal's ``table``."""
        if form == "json":
            return self.result.model_dump_json(indent=2) + "\n"
        if form == "csv":
            return to_csv(self.ran.levels, self.ran.anchor)
        if form == "html":
            return to_html(self.result, self.ran.levels)
        out = sys.stdout if sys.stdout.isatty() else StringIO()
        render(self.result, make_console(out))
        return out.getvalue() if isinstance(out, StringIO) else ""


def run_bench(
    settings: BenchSettings, name: str, key: str | None, where: Where, quiet: bool = False,
    interrupts: Interrupts | None = None,
) -> Ended:  # fmt: skip
    """Send the load, then ask the store for the same requests.

    ``interrupts``, entered by the caller, is told what one does; it ends in ``keep``.

    Raises:
        UserError: the server, the data file or the recording cannot be used.
        KeyboardInterrupt, CancelledError: interrupted before anything was measured.
    """
    clock = SystemClock()
    interrupts = interrupts or Interrupts(clock)
    _check(where)
    items, notes = _items(settings)
    recorded = _recorded(settings, where, clock) if settings.replay else None
    if recorded is not None:
        notes += _replay_notes(recorded)
    with progress(make_console(sys.stderr), quiet=quiet) as show:
        runner = Runner(settings, name, key, clock, items, recorded, show, interrupts)
        ran = _ran(runner)
    assert ran.prepared is not None
    levels, server_note = _with_server_side(ran, settings, where, interrupts)
    result = BenchResult(
        name=name, url=settings.url, model=visible(ran.prepared.speech.model),
        started_unix_ns=ran.anchor.unix_ns, interrupted=ran.interrupted, levels=tuple(levels),
        search=ran.search, server_note=server_note,
        assumptions=assumptions(_as_sent(settings, ran.prepared), [*ran.prepared.notes, *notes], levels),
        settings=settings.model_dump(mode="json"), versions=versions(), machine=machine(),
    )  # fmt: skip
    return Ended(result, ran)


def _ran(runner: Runner) -> Ran:
    """What was measured, also where the loop's own end was interrupted."""
    try:
        return run_fast(runner.run())
    except (KeyboardInterrupt, CancelledError):
        if not runner.ran.levels:
            raise
        runner.ran.interrupted = True
        return runner.ran


def _as_sent(settings: BenchSettings, prepared: Prepared) -> BenchSettings:
    """Without what the server refused."""
    return settings.model_copy(update={"ignore_eos": prepared.speech.ignore_eos})


def _items(settings: BenchSettings) -> tuple[Sequence[Item], list[str]]:
    if settings.data is None:
        return (), []
    found = read_items(settings.data)
    return found.items, data_notes(found, settings)


def _replay_notes(recorded: Recorded) -> list[str]:
    notes = prefix_notes(recorded)
    if recorded.left_out:
        notes.append(f"Replay: {many(recorded.left_out, 'request')} without known lengths left out.")
    if recorded.unread:
        notes.append(
            f"Replay: the {MOST_RECORDS:,} earliest requests; {recorded.unread:,} later ones are left out."
        )
    return notes


def _recorded(settings: BenchSettings, where: Where, clock: SystemClock) -> Recorded:
    side = parse_side(settings.replay or "", Filters(), clock.unix_ns())
    with open_source(where.collector, where.store, where.data_dir) as source:
        told = source.records(side.filters, limit=MOST_RECORDS, marks=True)
    found = choose(told.records, told.total)
    if not told.total:
        raise UserError(
            f"--replay {settings.replay}: the store holds no request of it; `stagelens requests` "
            "lists what there is, and a sweep's levels are runs of their own (NAME.rate4)"
        )
    if not found.records:
        raise UserError(
            f"--replay {settings.replay}: none of its {told.total} requests has known lengths; "
            "`stagelens requests` lists what there is"
        )
    return found


def _check(where: Where) -> None:
    """Before the load: a source that is written wrong is a mistake, and no missing store.

    Raises:
        UserError: exit code 2.
    """
    if where.collector and where.store:
        raise UserError("--collector and --store are two sources: give one of them", 2)
    if where.store:
        try:
            StoreUrl.parse(where.store)
        except StoreError as problem:
            raise UserError(str(problem), 2) from None


def _with_server_side(
    ran: Ran, settings: BenchSettings, where: Where, interrupts: Interrupts
) -> tuple[list[Level], str]:
    """The levels with the proxy's figures, and a sentence on where those are from or why not.

    Nothing that the store does, and no interrupt, costs the client's own figures.
    """
    plain = [level for level, _ in ran.levels]
    assert ran.prepared is not None
    if not any(samples for _, samples in ran.levels):
        return plain, note_for("no request was sent.")
    if not any(s.measured and not s.error for _, samples in ran.levels for s in samples):
        return plain, _NONE_OK
    told = not ran.prepared.speech.own_traces or any((where.collector, where.store, where.data_dir))
    try:
        sides = _asked(ran, settings, where, interrupts)
    except KeyboardInterrupt:
        ran.interrupted = True
        return plain, note_for("interrupted before the store had told them")
    except (DashboardError, UserError, StoreError) as problem:
        return plain, note_for(problem) if told else _NOBODY
    except Exception as problem:  # noqa: BLE001  the load was sent: its figures are told all the same
        return plain, note_for(f"{type(problem).__name__}: {problem}")
    if not any(sides):
        return plain, _NOBODY
    found = [
        level.model_copy(update={"server": side}) for level, side in zip(plain, sides, strict=True)
    ]
    runs = " ".join(dict.fromkeys(level.run for level in plain))
    return found, f"Server-side figures are of the store; see `stagelens report --run` with {runs}."


def _asked(
    ran: Ran, settings: BenchSettings, where: Where, interrupts: Interrupts
) -> list[ServerSide | None]:
    try:
        interrupts.then(interrupts.leave)
        return _sides(ran, settings, where)
    finally:
        interrupts.then(interrupts.keep)


def _sides(ran: Ran, settings: BenchSettings, where: Where) -> list[ServerSide | None]:
    """Of each level. Where the first ones are not in the store, nobody waits for the others."""
    assert ran.prepared is not None
    sure = not ran.prepared.speech.own_traces
    clock = SharedClock(ran.anchor, Target.parse(settings.url).is_here)
    sides: list[ServerSide | None] = []
    with open_source(where.collector, where.store, where.data_dir) as source:
        for level, samples in ran.levels:
            doubt_s = 0.0 if sides and not any(sides) else DOUBT_S
            sides.append(server_side(samples, level.run, source, clock, sure=sure, doubt_s=doubt_s))
    return sides
