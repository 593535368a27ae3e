"""The proxy's records beside the client's figures: which are compared, and whether by one clock."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from dashboards.errors import UnavailableError
from dashboards.filters import Filters
from dashboards.models.records import Record, Records
from dashboards.models.trace import RequestRecord, Span, Trace
from stagelens.bench.one_clock import SharedClock
from stagelens.bench.sample import Sample
from stagelens.bench.server_side import server_side
from stagelens.bench.stored import all_records, wait_for
from stagelens.bench.terminal import _outside_table
from tracer.clock import Anchor

MS = 1_000_000


def here(own: str | None = "this", *, is_here: bool = True) -> SharedClock:
    return SharedClock(Anchor(0, 0), is_here=is_here, own=own)


class Stored:
    """A source whose records arrive late; ``boot`` is what their spans say of their clock."""

    def __init__(self, *rounds: list[Record], boot: str | None = None) -> None:
        self.rounds = list(rounds)
        self.boot = boot
        self.reads = 0

    def records(self, filters: Filters, *, limit: int, marks: bool = False) -> Records:
        """As a store does: by their start, those since a time, ``limit`` of them. A look at how
        many there are (``limit`` 1) begins another round."""
        if limit == 1 or marks:
            self.now = self.rounds.pop(0) if len(self.rounds) > 1 else self.rounds[0]
        else:
            self.reads += 1
        since = filters.since_unix_ns or 0
        found = [one for one in self.now if one.start_unix_ns >= since]
        return Records(total=len(found), records=tuple(found[:limit]))

    def trace(self, trace_id: str) -> Trace:
        """A request span, and another one before it."""
        [record] = [one for one in self.now if one.trace_id == trace_id]
        at = {"start_unix_ns": record.start_unix_ns, "offset_ns": 0}
        plain = {"depth": 0, "orphan": False, "name": "", "kind": "", "service": "", "status": "",
                 "status_message": "", "duration_ns": 0, "stage": None, "parent_span_id": None,
                 "attributes": {}, "events": (), **at}  # fmt: skip
        spans = (Span(span_id="a", boot_id="another", **plain), Span(span_id="b", boot_id=self.boot, **plain))
        request = RequestRecord.model_construct(span_id="b", start_unix_ns=record.start_unix_ns)
        return Trace.model_construct(trace_id=trace_id, spans=spans, requests=(request,))


def pair(n: int) -> tuple[Sample, Record]:
    """Sent at 1 s on both clocks; the proxy saw 2 ms later, and 5 ms less in all."""
    sample = Sample(n, 1_000 * MS, True, sent_ns=1_001 * MS, first_token_ns=1_050 * MS,
                    last_token_ns=1_100 * MS, end_ns=1_101 * MS, trace_id=f"{n:032x}")  # fmt: skip
    times = dict.fromkeys(("prompt_ns", "queue_ns", "prefill_ns", "decode_ns", "deliver_ns"), MS)
    record = Record(
        trace_id=sample.trace_id, start_unix_ns=1_003 * MS, stream=True, status="ok",
        e2e_ns=95 * MS, ttft_ns=46 * MS, tpot_ns=None, input_tokens=1, output_tokens=1,
        cached_tokens=0, **times,
    )  # fmt: skip
    return sample, record


def test_both_sides_are_told_for_the_same_requests_and_what_lies_between():
    """The last records are waited for; the difference is divided into before and the rest."""
    samples, found = zip(*(pair(n) for n in range(1, 5)), strict=True)
    waits: list[float] = []
    stored = Stored([], list(found[:2]), list(found), boot="this")
    side = server_side(samples, "r", stored, here(), waits.append)
    assert len(waits) == 2
    assert (side.asked, side.found) == (4, 4)
    assert (side.outside.p50_ns, side.before.p50_ns) == (5 * MS, 2 * MS)
    assert "5.00 ms (p50)" in side.reading[0]
    assert "waits inside of the record, in prompt" in side.reading[0]
    assert "2.00 ms (p50)" in side.reading[1]
    assert "1.00 ms (p50)" in side.reading[2]


def test_another_machines_clock_divides_nothing():
    """Without a common clock there is no time before, only what lies outside."""
    sample, record = pair(1)
    side = server_side([sample], "r", Stored([record]), None)
    assert side.before is None
    assert side.outside.n == 1
    assert server_side([], "r", Stored([]), None) is None


def test_without_a_named_trace_a_store_that_knows_nothing_is_soon_left():
    """Requests that brought their own trace to a server that may be no Stagelens."""
    waits: list[float] = []
    side = server_side([pair(1)[0]], "r", Stored([]), None, waits.append, sure=False)
    assert (side, sum(waits)) == (None, 4.0)


def test_records_that_never_come_are_missed_and_said():
    """The wait ends."""
    waits: list[float] = []
    side = server_side([pair(1)[0]], "r", Stored([]), None, waits.append)
    assert (side.found, sum(waits)) == (0, 15.0)
    assert "holds none of these requests" in side.reading[0]


@pytest.mark.parametrize(
    ("boot", "clock", "before", "said"),
    [
        ("this", here(), 2 * MS, ""),
        ("this", here(is_here=False), 2 * MS, ""),
        ("other", here(), None, "are of another clock than this client's"),
        ("other", here(is_here=False), None, ""),
        (None, here(), 2 * MS, "taken to have this client's clock because its address"),
        (None, here(is_here=False), None, ""),
        ("this", here(own=None), 2 * MS, "taken to have this client's clock because its address"),
    ],
)
def test_the_time_before_the_first_byte_is_told_only_by_one_clock(boot, clock, before, said):
    """A tunnel's end is at 127.0.0.1 too: the boot decides, and where none is told the reader may."""
    sample, record = pair(1)
    side = server_side([sample], "r", Stored([record], boot=boot), clock)
    assert (side.before and side.before.p50_ns) == before
    told = " ".join(side.reading)
    assert said in told
    assert bool(said) is ("clock" in told)


@pytest.mark.parametrize("shift_ms", [-4, 5])
def test_records_that_lie_outside_of_their_requests_are_of_no_common_clock(shift_ms):
    """Begun before the send, or ended after the answer: nothing is subtracted."""
    sample, record = pair(1)
    record = record.model_copy(update={"start_unix_ns": record.start_unix_ns + shift_ms * MS})
    side = server_side([sample], "r", Stored([record], boot="this"), here())
    assert side.before is None
    assert "the proxy's clock is not this client's, or was set" in " ".join(side.reading)


def test_a_record_that_ends_after_its_answer_is_shown_below_zero():
    """Half a millisecond too long: in the table and in words, and what that means is said."""
    sample, record = pair(1)
    record = record.model_copy(update={"e2e_ns": 100 * MS + MS // 2})
    side = server_side([sample], "r", Stored([record]), None)
    console = Console(file=StringIO(), width=100)
    console.print(_outside_table(side, 100))
    [row] = [line for line in console.file.getvalue().splitlines() if "outside of it" in line]
    assert row.split()[-1] == "-0.500"
    assert "-0.500 ms (p50)" in side.reading[0]
    assert "ends after this client had the last byte" in side.reading[1]


def test_a_store_that_cannot_tell_the_trace_leaves_the_address():
    """The figures do not fail by it."""
    class Silent(Stored):
        def trace(self, trace_id: str) -> Trace:
            raise UnavailableError("busy")

    sample, record = pair(1)
    side = server_side([sample], "r", Silent([record]), here())
    assert side.before.p50_ns == 2 * MS
    assert "because its address is this machine's" in " ".join(side.reading)


def at(n: int, start_ns: int, trace: int | None = None) -> Record:
    _, record = pair(n if trace is None else trace)
    return record.model_copy(update={"start_unix_ns": start_ns, "e2e_ns": n})


def test_records_are_read_in_parts_to_the_last_one():
    """Two of one nanosecond that a part divides are both there."""
    made = [at(n, start) for n, start in enumerate([10, 20, 20, 30, 30, 40, 50])]
    stored = Stored(made)
    stored.records(Filters(), limit=1)
    told = list(all_records(Filters(), stored, part=3))
    assert {one.trace_id for one in told} == {one.trace_id for one in made}
    assert told[-1] == made[-1]


def test_a_part_of_one_nanosecond_ends_the_reading():
    """It would be read for ever."""
    stored = Stored([at(n, 10) for n in range(5)])
    stored.records(Filters(), limit=1)
    assert len(list(all_records(Filters(), stored, part=3))) == 6


def test_the_outer_request_of_a_trace_is_the_one_that_is_compared():
    """A proxy behind the first proxy has a record of the same trace, which began later."""
    stored = Stored([at(1, 10, trace=7), at(2, 20, trace=7), at(3, 30, trace=8)])
    found, total = wait_for({f"{n:032x}": n for n in (7, 8)}, "r", stored, lambda _: None, 4.0)
    assert ([one.e2e_ns for one in found], total) == ([1, 3], 3)


def test_records_are_read_again_only_when_the_missing_ones_may_be_there():
    """Of a large run each look at all of it takes seconds."""
    made = [at(n, n) for n in range(10)]
    rounds = [made[:1], made[:3], made[:3], made[:9], made]
    stored = Stored(*rounds)
    found, _ = wait_for({one.trace_id: one for one in made}, "r", stored, lambda _: None, 4.0)
    assert (len(found), stored.reads) == (10, 2)
