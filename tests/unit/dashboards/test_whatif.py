"""What a change of a stage would have done."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dashboards.analyses.whatif import parse_changes, whatif
from dashboards.errors import BadValueError
from dashboards.filters import Filters

S = 1_000_000_000
KNOWN = {"queue": 4 * S // 10, "retrieval": 6 * S // 10, "prefill": S, "decode": 3 * S}


def effect(found, measure, percentile="p50"):
    return next(e for e in found.effects if (e.measure, e.percentile) == (measure, percentile))


def test_a_fifth_less_decode_is_worth_a_fifth_of_decode_alone(store):
    """0.4 s queue, 0.6 s retrieval, 1 s prefill, 3 s decode: 4.4 s, not 4.0 s; TTFT stays 2 s."""
    store.requests({**KNOWN, "FirstTokenNs": 2 * S})
    found = whatif(store, Filters(), parse_changes(["decode=-20%"]))
    assert (effect(found, "e2e").before_ns, effect(found, "e2e").after_ns) == (5 * S, 44 * S // 10)
    assert (effect(found, "ttft").before_ns, effect(found, "ttft").after_ns) == (2 * S, 2 * S)
    assert "Queueing feedback is not modelled" in found.assumptions[0]


def test_an_amount_never_makes_a_stage_negative_and_skips_who_did_not_run_it(store):
    """-2 s of a prefill of 1 s takes 1 s; a request without retrieval gains none."""
    store.requests({**KNOWN, "retrieval": 0, "FirstTokenNs": 14 * S // 10})
    found = whatif(store, Filters(), parse_changes(["prefill=-2s", "retrieval=+5s"]))
    assert effect(found, "e2e").after_ns == 34 * S // 10
    assert effect(found, "ttft").after_ns == 4 * S // 10


def test_no_requests_and_unclear_first_tokens(store):
    """No data is null; a request with a tool is left out of TTFT and counted."""
    assert effect(whatif(store, Filters(), parse_changes(["tool=+1s"])), "e2e").after_ns is None
    store.requests({**KNOWN, "tool": 1, "FirstTokenNs": 2 * S})
    found = whatif(store, Filters(), parse_changes(["decode=-20%"]))
    assert (found.requests, found.ttft_left_out) == (1, 1)
    assert effect(found, "ttft").after_ns is None


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(rows=st.lists(st.tuples(*[st.integers(0, 2**52)] * 4), min_size=1, max_size=8))
def test_no_change_is_the_identity(store, rows):
    """+0% and +0ms of every stage leave every percentile as it was, to the nanosecond."""
    store.empty()
    store.requests(*({"queue": q, "prefill": p, "decode": d, "tool": t} for q, p, d, t in rows))
    for change in ("+0%", "+0ms"):
        stages = ("queue", "prefill", "decode", "tool", "unattributed")
        found = whatif(store, Filters(), parse_changes([f"{s}={change}" for s in stages]))
        assert all(e.before_ns == e.after_ns for e in found.effects)


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        ([], "no change"),
        (["sleep=-1%"], "'sleep' is not known"),
        (["decode=-101%"], "at least -100%"),
        (["decode=fast"], "write decode=-20%"),
        (["decode=-1%", "decode=+1s"], "twice"),
    ],
)
def test_changes_that_cannot_be_used_are_named(texts, says):
    """One sentence with the rule."""
    with pytest.raises(BadValueError, match=says):
        parse_changes(texts)


@pytest.mark.parametrize("change", ["+999999999%", "+999999999s"])
def test_no_change_is_so_large_that_it_turns_round(store, change):
    """1000 s made ten million times as long are longer, also with every stage at once."""
    store.requests(dict.fromkeys(("prompt", "queue", "prefill", "decode", "tool", "deliver"), 10**12))
    stages = ("prompt", "queue", "prefill", "decode", "tool", "deliver")
    found = whatif(store, Filters(), parse_changes([f"{stage}={change}" for stage in stages]))
    assert effect(found, "e2e").after_ns == pytest.approx(6 * 10**18)
