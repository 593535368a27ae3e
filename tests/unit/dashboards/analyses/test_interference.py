"""Decode time lost to other requests' prefills."""

from __future__ import annotations

import io

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from dashboards.analyses import interfering_read
from dashboards.analyses.interference import Blame, MixedStep, Phase, Told, baseline, excesses
from dashboards.analyses.interfering import interference
from dashboards.analyses.stats import share_out
from dashboards.filters import Filters
from dashboards.terminal.causes import render_interference

MS = 1_000_000


def known_case(store):
    """Worked by hand, in ms.

    Decode alone takes 10 with two requests, 14 with four, so 12 with three. X runs from 100
    to 140 with two decoding (excess 30), Y from 200 to 232 with three (excess 20).
    V1 decodes in both, V2 in X alone. C1 prefills in X (100 tokens), C2 in X and Y (400 and
    100 cached: 150 a step; C1's 100 against it).
    """
    for i in range(5):
        store.steps({"start": (10 + i) * MS, "duration": 10 * MS, "decode": 2},
                    {"start": (30 + i) * MS, "duration": 14 * MS, "decode": 4})  # fmt: skip
    store.steps({"start": 100 * MS, "duration": 40 * MS, "decode": 2, "prefill": 2},
                {"start": 200 * MS, "duration": 32 * MS, "decode": 3, "prefill": 1})  # fmt: skip
    return [
        store.traced(1, prefill=(0, 5 * MS), decode=(5 * MS, 300 * MS), Model="v"),
        store.traced(2, prefill=(0, 5 * MS), decode=(5 * MS, 150 * MS), Model="v"),
        store.traced(3, prefill=(95 * MS, 140 * MS), InputTokens=100, CachedTokens=0),
        store.traced(4, prefill=(90 * MS, 232 * MS), InputTokens=400, CachedTokens=100),
    ]  # fmt: skip


def test_the_known_case_balances_to_the_nanosecond(store):
    """V1 loses 50 ms, V2 30; C1 causes 24 (12 to each), C2 56: 80 on both sides."""
    v1, v2, c1, c2 = known_case(store)
    found = interference(store, Filters(), ["model"])
    one = found.overall
    assert (found.steps, found.mixed_steps, found.without_baseline) == (12, 2, 0)
    assert {v.trace_id: v.lost_ns for v in one.worst_victims} == {v1: 50 * MS, v2: 30 * MS}
    assert {c.trace_id: c.caused_ns for c in one.worst_causers} == {c1: 24 * MS, c2: 56 * MS}
    assert one.lost_ns == one.caused_ns == 80 * MS
    assert (one.unknown_ns, one.victims, one.causers) == (0, 2, 2)
    assert [(c.trace_id, c.ns) for c in one.worst_victims[0].causes] == [(c2, 38 * MS), (c1, 12 * MS)]
    assert one.worst_causers[0].victims == 2
    assert one.decode_ns == 440 * MS
    assert f"Request {c2} caused most" in found.reading[1]
    by_model = {g.key["model"]: g.lost_ns for g in found.groups}
    assert by_model == {"v": 80 * MS, "m": 0}


def test_what_is_beyond_the_limits_is_counted_and_said(store, monkeypatch):
    """Of six spans and four requests the earliest are not read: the answer says how many."""
    known_case(store)
    whole = interference(store, Filters())
    assert (whole.requests_left_out, whole.spans_left_out) == (0, 0)
    assert not any("Not read" in line for line in whole.reading)
    monkeypatch.setattr(interfering_read, "MOST_SPANS", 4)
    found = interference(store, Filters())
    assert (found.spans_left_out, found.requests_left_out) == (2, 0)
    assert found.reading[-1].startswith(
        "Not read, the earliest of this time: 2 spans of prefill and decode."
    )
    monkeypatch.setattr(interfering_read, "MOST_REQUESTS", 3)
    monkeypatch.setattr(interfering_read, "MOST_STEPS", 1)
    found = interference(store, Filters())
    assert (found.mixed_left_out, found.requests_left_out) == (1, 1)
    assert "1 step that prefilled, 1 request. What was lost" in found.reading[-1]


def test_causers_outside_the_filters_are_still_named(store):
    """Victims are chosen, causers may be anybody; a step nobody known prefills is unknown."""
    v1, _, _, c2 = known_case(store)
    store.steps({"start": 250 * MS, "duration": 20 * MS, "decode": 2, "prefill": 1})
    found = interference(store, Filters(model=("v",))).overall
    assert found.worst_causers[0].trace_id == c2
    assert (found.unknown_ns, found.lost_ns) == (10 * MS, 90 * MS)
    assert found.caused_ns == found.lost_ns
    assert {v.trace_id: v.lost_ns for v in found.worst_victims}[v1] == 60 * MS


def test_a_preempted_request_does_not_decode(store):
    """V away from the engine during X loses nothing in it."""
    for i in range(5):
        store.steps({"start": i * MS, "duration": 10 * MS, "decode": 2})
    store.steps({"start": 100 * MS, "duration": 40 * MS, "decode": 2, "prefill": 1})
    marks = [("preempted", 90 * MS), ("resumed", 180 * MS)]
    store.traced(1, decode=(0, 300 * MS), marks=marks)
    store.traced(2, decode=(0, 300 * MS))
    found = interference(store, Filters()).overall
    assert [v.trace_id for v in found.worst_victims] == [f"{2:032x}"]
    assert found.lost_ns == 30 * MS


def test_without_steps_or_baselines_it_is_not_known(store):
    """No data is said, never 0 % in silence; two engines in one process cannot be told apart."""
    assert "no request" in interference(store, Filters()).reading[0]
    store.traced(1, decode=(0, 300 * MS))
    assert "not known" in interference(store, Filters()).reading[0]
    store.steps({"start": 100 * MS, "duration": 40 * MS, "decode": 2, "prefill": 1})
    found = interference(store, Filters())
    assert (found.without_baseline, found.overall.lost_ns) == (1, 0)
    assert "interference is not known" in found.reading[0]
    store.steps({"start": 101 * MS, "duration": 40 * MS, "decode": 2, "prefill": 1, "engine": 1})
    assert interference(store, Filters()).several_engines == 2


def printed(found) -> str:
    """What the command line says."""
    console = Console(width=100, file=io.StringIO(), record=True)
    render_interference(found, console)
    return console.export_text()


def test_requests_without_spans_are_no_data_and_said(store):
    """Two records with 1 s decode each, engine steps and no span: not "0 s of 0 s decode (0.0 %)"."""
    for i in range(5):
        store.steps({"start": (10 + i) * MS, "duration": 10 * MS, "decode": 2})
    store.steps({"start": 100 * MS, "duration": 40 * MS, "decode": 2, "prefill": 1})
    store.requests({"decode": 1000 * MS, "Model": "bare"}, {"decode": 1000 * MS, "Model": "bare"})
    found = interference(store, Filters(), ["model"])
    assert (found.overall.without_spans, found.overall.share) == (2, None)
    assert "No decode of these requests is stored" in found.reading[0]
    assert "spans of 2 requests are not stored" in found.reading[1]
    rows = [line.split() for line in printed(found).splitlines() if line.startswith(("all", "bare"))]
    assert rows == [["all", "2", "2", *["-"] * 6], ["bare", "2", "2", *["-"] * 6]]
    store.traced(7, prefill=(0, 5 * MS), decode=(5 * MS, 300 * MS), Model="whole")
    found = interference(store, Filters(), ["model"])
    assert [(g.key["model"], g.without_spans, g.share is None) for g in found.groups] == [
        ("bare", 2, True), ("whole", 0, False),
    ]  # fmt: skip
    assert "spans of 2 requests of 3 are not stored: what they lost" in found.reading[-1]


def test_a_request_of_another_engine_is_not_told_as_one_without_spans(store):
    """Its spans are stored, but no step of its engine prefilled: it is counted beside, and said."""
    known_case(store)
    store.traced(9, decode=(0, 300 * MS), ServiceInstance="other")
    found = interference(store, Filters())
    assert (found.overall.without_spans, found.overall.elsewhere) == (0, 1)
    assert found.reading[-1].startswith("1 request of 5 ran where no step that prefilled")


def test_stage_spans_right_below_the_root_count(store):
    """Without a call's span between them and the root: the same figures."""
    known_case(store)
    whole = interference(store, Filters()).overall
    spans = f"{store.database}.otel_traces"
    store.raw.command(
        f"ALTER TABLE {spans} UPDATE ParentSpanId = substring(TraceId, 17) "
        "WHERE startsWith(ParentSpanId, 'c') SETTINGS mutations_sync = 1"
    )
    store.raw.command(
        f"ALTER TABLE {spans} DELETE WHERE startsWith(SpanId, 'c') SETTINGS mutations_sync = 1"
    )
    assert interference(store, Filters()).overall == whole


def test_baselines_between_and_beyond_known_sizes():
    """A straight line between two sizes, the outermost beyond them."""
    known = {2: 10, 4: 14}
    assert [baseline(known, n) for n in (1, 2, 3, 4, 9)] == [10, 10, 12, 14, 14]
    assert baseline({}, 1) is None


phases = st.lists(
    st.builds(
        lambda who, start, length, weight, away: Phase(
            who, start, start + length, weight, ((start + away, start + 2 * away),) if away else ()
        ),
        st.integers(0, 6), st.integers(0, 200), st.integers(0, 200),
        st.floats(0, 1e6, allow_nan=False), st.integers(0, 120),
    ),
    max_size=12,
)  # fmt: skip
mixed = st.lists(
    st.builds(MixedStep, st.integers(0, 300), st.integers(1, 50), st.integers(1, 8)), max_size=20
)


def one_by_one(steps, excess, decodes, prefills):
    """Who lost how much to whom, by the rule word by word: each decode in each step."""
    inside = lambda step, phase: (  # noqa: E731
        phase.start_ns <= step.middle_ns <= phase.end_ns
        and not any(a <= step.middle_ns < b for a, b in phase.away)
    )
    spread = [sum(inside(step, p) for step in steps) for p in prefills]
    pairs = {}
    for step, amount in zip(steps, excess, strict=True):
        who = [(p.request, p.weight / n) for p, n in zip(prefills, spread, strict=True) if inside(step, p)]
        parts = share_out(amount, [w for _, w in who]) if who else [amount]
        for phase in decodes:
            for causer, part in zip([c for c, _ in who] or [None], parts, strict=True):
                if inside(step, phase) and causer != phase.request and part:
                    key = (phase.request, causer)
                    pairs[key] = pairs.get(key, 0) + part
    return pairs


@settings(deadline=None)
@given(mixed, phases, phases)
def test_what_is_lost_is_what_is_caused(steps, decodes, prefills):
    """Of any steps and spans: sums and pairs are those of the rule, and both sums are equal."""
    steps = sorted(steps, key=lambda one: one.middle_ns)
    excess = excesses(steps, {1: 5, 6: 9})
    engine, told = Blame(steps, excess, decodes, prefills), Told()
    engine.add_to(told)
    assert sum(told.lost_ns.values()) == sum(told.caused_ns.values())
    pairs = one_by_one(steps, excess, decodes, prefills)
    for victim in {p.request for p in decodes}:
        mine = {c: ns for (v, c), ns in pairs.items() if v == victim}
        assert engine.causes(victim) == mine
        assert told.lost_ns[victim] == sum(mine.values())
        assert (told.lost_steps[victim] > 0) == bool(mine)
    for causer in {None, *(p.request for p in prefills)}:
        assert told.caused_ns[causer] == sum(ns for (_, c), ns in pairs.items() if c == causer)
        assert engine.victims(causer) == {v for v, c in pairs if c == causer}
        assert (told.caused_steps[causer] > 0) == (told.caused_ns[causer] > 0)


@settings(deadline=None)
@given(st.integers(0, 10**12), st.lists(st.floats(0, 1e9), min_size=1, max_size=9))
def test_parts_add_up_and_are_none_below_zero(amount, weights):
    """Largest remainder: whole numbers that add up, each within one of its share."""
    parts = share_out(amount, weights)
    assert sum(parts) == amount
    assert min(parts) >= 0
