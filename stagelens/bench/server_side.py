"""The same requests as the proxy recorded them, beside the client's figures."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from dashboards.models.records import Record
from dashboards.source import Source
from dashboards.terminal.text import duration
from stagelens.bench.figures import figures
from stagelens.bench.models import Figures, ServerSide
from stagelens.bench.one_clock import SharedClock
from stagelens.bench.sample import Sample
from stagelens.bench.stored import PATIENCE_S, wait_for

DOUBT_S = 4.0
_ENDS_LATE = (
    "A time below zero says that the record ends after this client had the last byte: the proxy "
    "stamped its end late, or the spans are of something that does not stamp as Stagelens does."
)
_SHOWN = ("ttft", "e2e", "tpot", "prompt", "queue", "prefill", "decode", "deliver")


def server_side(
    samples: Sequence[Sample],
    run: str,
    source: Source,
    clock: SharedClock | None,
    sleep: Callable[[float], None] = time.sleep,
    *,
    sure: bool = True,
    doubt_s: float = DOUBT_S,
) -> ServerSide | None:
    """The records of ``samples`` by their trace ids; None where there are no ids.

    Waits up to ``PATIENCE_S`` for the last of them to be stored; for the first one only
    ``doubt_s`` unless it is ``sure`` that Stagelens answered, and None when none comes.
    ``clock`` decides whether the client's stamps and the proxy's are of one clock; None: they
    are not.

    Raises:
        DashboardError: the source does not answer.
    """
    asked = {s.trace_id: s for s in samples if s.measured and not s.error and s.trace_id}
    if not asked:
        return None
    found, total = wait_for(asked, run, source, sleep, PATIENCE_S if sure else doubt_s)
    if not found and not sure:
        return None
    pairs = [(asked[one.trace_id], one) for one in found]
    outside = figures("outside", [(s.e2e_sent_ns or 0) - r.e2e_ns for s, r in pairs])
    gaps, doubt = clock.before(pairs, source) if clock is not None else (None, "")
    before = None if gaps is None else figures("before", gaps)
    return ServerSide(
        asked=len(asked), found=len(found),
        figures=tuple(figures(name, [_ran(r, name) for r in found]) for name in _SHOWN),
        outside=outside, before=before,
        reading=(
            *_reading([s for s, _ in pairs], found, outside, before, doubt),
            *_others(run, total, sum(s.measured for s in samples)),
        ),
    )  # fmt: skip


def _ran(one: Record, name: str) -> float | None:
    """A stage that took no time did not run there: no data."""
    return getattr(one, f"{name}_ns") or None


def _reading(
    samples: Sequence[Sample], found: Sequence[Record], outside: Figures, before: Figures | None,
    doubt: str,
) -> tuple[str, ...]:
    if not found:
        return ("The store holds none of these requests: is it the one of this server?",)
    client = figures("", [s.e2e_sent_ns for s in samples])
    server = figures("", [r.e2e_ns for r in found])
    late = figures("", [s.late_ns for s in samples])
    first = (
        f"E2E p50 is {duration(client.p50_ns)} from the client's send and "
        f"{duration(server.p50_ns)} in the proxy's record. Per request "
        f"{_signed(outside.p50_ns)} (p50) and {_signed(outside.p99_ns)} (p99) lie outside of "
        "the record: the network, and this client after the last byte. A request that waits for "
        "the proxy to read it waits inside of the record, in prompt, where the proxy's kernel "
        "stamps arrivals (on Linux), and outside of it elsewhere."
    )
    lines = [first]
    if before is not None:
        lines.append(
            f"Of that, {_signed(before.p50_ns)} (p50) and {_signed(before.p99_ns)} (p99) passed "
            "between the client's send and the proxy's first byte."
        )
    if outside.p50_ns is not None and outside.p50_ns < 0:
        lines.append(_ENDS_LATE)
    lines += [doubt] if doubt else []
    lines.append(
        f"Before the send, {duration(late.p50_ns)} (p50) and {duration(late.p99_ns)} (p99) passed "
        "from the intended time: this client's own delay, with new connections."
    )
    return tuple(lines)


def _others(run: str, total: int, sent: int) -> tuple[str, ...]:
    """Said where the run's name is not this load's alone."""
    if total <= sent:
        return ()
    told = (
        f"The store holds {total - sent} more requests of a run {run}, of another load: report, "
        "compare and what-if take all of them together. Give each load a --name of its own."
    )
    return (told,)


def _signed(ns: float | None) -> str:
    return f"-{duration(-ns)}" if ns is not None and ns < 0 else duration(ns)


def note_for(problem: object) -> str:
    """Why there are no server-side figures."""
    return f"No server-side figures: {problem}"
