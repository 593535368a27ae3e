"""Requests within limits, what they cost, and tasks."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dashboards.analyses.goodput import goodput, parse_limits
from dashboards.errors import BadValueError
from dashboards.filters import ANY_OPERATION, Filters
from dashboards.models.goodput import Limits
from dashboards.prices import Price, Prices, make_prices, parse_prices

MS = 1_000_000
S = 1000 * MS
LIMITS = parse_limits("500ms", "50ms", "5s")
GOOD = {
    "prompt": 50 * MS, "prefill": 150 * MS, "decode": 1800 * MS, "FirstTokenNs": 200 * MS,
    "TpotNs": 20.0 * MS, "InputTokens": 1000, "CachedTokens": 400, "OutputTokens": 500,
}  # fmt: skip


def eight(store):
    """Two good, one late by queue, one long by decode, one off the engine, and three others."""
    store.requests(
        GOOD,
        GOOD,
        {**GOOD, "queue": 700 * MS, "FirstTokenNs": 900 * MS},
        {**GOOD, "decode": 7800 * MS},
        {**GOOD, "TpotNs": 80.0 * MS, "PreemptedNs": S, "OutputTokens": 21},
        {**GOOD, "Status": "error"},
        {**GOOD, "FirstTokenNs": None},
        {**GOOD, "TpotNs": None, "OutputTokens": 1},
    )


def test_goodput_and_the_stage_that_broke_each_miss(store):
    """Worked by hand: 3 good in 8 s; TTFT broken by queue, TPOT by preempted, E2E by decode."""
    eight(store)
    one = goodput(store, Filters(), LIMITS).overall
    assert (one.requests, one.good, one.missed, one.failed, one.unknown) == (8, 3, 3, 1, 1)
    assert (one.window_ns, one.requests_per_s, one.goodput_per_s) == (8 * S, 1, 3 / 8)
    assert {b.limit: (b.n, b.stages) for b in one.broken} == {
        "ttft": (1, {"queue": 1}), "tpot": (1, {"preempted": 1}), "e2e": (1, {"decode": 1}),
    }  # fmt: skip


def test_a_miss_on_the_way_to_the_client_is_the_rest_and_groups_share_the_window(store):
    """TTFT far above its stages: rest. Groups are rated over the whole's window."""
    store.requests(GOOD, {**GOOD, "FirstTokenNs": 800 * MS, "Model": "b"})
    found = goodput(store, Filters(), Limits(ttft_ns=500 * MS), ["model"])
    assert found.overall.broken[0].stages == {"rest": 1}
    assert {g.key["model"]: g.goodput_per_s for g in found.groups} == {"m": 0.5, "b": 0.0}
    assert found.reading[0] == "1 of 2 requests (50 %) met the limits: 0.5 a second."
    assert "no request" in goodput(store, Filters(model=("x",)), LIMITS).reading[0]


def test_nearly_all_and_hardly_any_are_not_told_as_all_and_none(store):
    """Each sentence about a share keeps a digit that says so."""
    store.requests(*[GOOD] * 999, {**GOOD, "Status": "error"})
    assert "999 of 1,000 requests (99.9 %) met" in goodput(store, Filters(), LIMITS).reading[0]
    few = Filters(model=("few",))
    store.requests(
        {**GOOD, "Model": "few"}, *[{**GOOD, "Model": "few", "Status": "error"}] * 239
    )
    assert "1 of 240 requests (0.4 %) met" in goodput(store, few, LIMITS).reading[0]


def test_without_a_good_one_the_largest_stage_broke_it(store):
    """The usual time is then 0."""
    store.requests({"queue": 3 * S, "decode": 4 * S})
    found = goodput(store, Filters(), Limits(e2e_ns=S))
    assert found.overall.broken[0].stages == {"decode": 1}


PRICES = Prices(
    currency="EUR",
    models={
        "m": Price(
            input_per_million=1, cached_input_per_million=0.5, output_per_million=2,
            gpu_per_hour=3.6, gpus=2,
        )
    },
)  # fmt: skip


def test_costs_by_tokens_and_by_gpus(store):
    """(600 x 1 + 400 x 0.5 + 500 x 2) / 1e6 = 0.0018 each; 2 GPUs x 2 s at 3.6 an hour = 0.004."""
    store.requests(GOOD, GOOD)
    cost = goodput(store, Filters(), LIMITS, prices=PRICES).overall.cost
    assert cost.tokens == pytest.approx(0.0036)
    assert cost.tokens_per_good_request == pytest.approx(0.0018)
    assert (cost.gpu, cost.gpu_seconds) == (pytest.approx(0.004), 4)
    assert cost.gpu_per_million_output_tokens == pytest.approx(4)
    assert (cost.currency, cost.priced, cost.not_priced) == ("EUR", 2, 0)


def test_what_has_no_price_is_counted_and_not_taken_for_free(store):
    """A model without a line, unknown tokens: no cost a request; a record's own cost is used."""
    store.requests(GOOD, {**GOOD, "Model": "x"}, {**GOOD, "OutputTokens": None, "TpotNs": None})
    cost = goodput(store, Filters(), LIMITS, prices=PRICES).overall.cost
    assert (cost.priced, cost.not_priced) == (1, 2)
    assert (cost.tokens_per_request, cost.gpu) == (None, None)
    assert goodput(store, Filters(), LIMITS).overall.cost.tokens is None
    store.empty()
    store.requests({**GOOD, "Cost": 0.25}, {**GOOD, "Model": "x"})
    others = Prices(models={"*": Price(input_per_million=10, output_per_million=0)})
    cost = goodput(store, Filters(), LIMITS, prices=others).overall.cost
    assert cost.tokens == pytest.approx(0.25 + 0.01)


def test_no_more_tokens_are_cached_than_came_in(store):
    """A source that tells 5000 cached of 1000: (0 x 1 + 1000 x 0.5 + 500 x 2) / 1e6."""
    store.requests({**GOOD, "CachedTokens": 5000})
    assert goodput(store, Filters(), LIMITS, prices=PRICES).overall.cost.tokens == pytest.approx(0.0015)


def outcome(store, trace, at, success, **more):
    attributes = {"stagelens.outcome.success": "true" if success else "false"}
    attributes |= {f"stagelens.outcome.{k}": str(v) for k, v in more.items()}
    store.spans({"TraceId": trace, "SpanId": f"o{at}", "SpanName": "outcome", "start": at,
                 "SpanAttributes": attributes})  # fmt: skip


def test_failed_tasks_are_paid_for_by_the_correct_ones(store):
    """2 s correct and 3 s failed: 5 s and both costs a correct task; the last outcome counts."""
    for trace, length in (("a" * 32, 2 * S), ("b" * 32, 3 * S), ("c" * 32, 9 * S)):
        app = {"TraceId": trace, "E2ENs": length, "Source": "app", "Operation": "invoke_workflow"}
        store.requests(app, {**GOOD, "TraceId": trace, "start": MS})
    outcome(store, "a" * 32, 5, success=False, reason="late")
    outcome(store, "a" * 32, 9, success=True, score=0.8)
    outcome(store, "b" * 32, 9, success=False, score=0.2, reason="wrong")
    tasks = goodput(store, Filters(), LIMITS, prices=PRICES).overall.tasks
    assert (tasks.tasks, tasks.correct, tasks.mean_score) == (2, 1, pytest.approx(0.5))
    assert (tasks.time_ns, tasks.time_per_correct_ns) == (5 * S + MS, 5 * S + MS)
    assert tasks.correct_p50_ns == 2 * S + MS
    assert tasks.cost_per_correct == pytest.approx(0.0036)
    assert tasks.failed_for == {"wrong": 1}
    whole = goodput(store, Filters(operation=ANY_OPERATION), LIMITS, prices=PRICES).overall
    assert whole.tasks == tasks


limit = st.none() | st.integers(0, 3000)
rows = st.lists(
    st.fixed_dictionaries({
        "decode": st.integers(0, 3000),
        "FirstTokenNs": st.none() | st.integers(0, 3000),
        "TpotNs": st.none() | st.floats(0, 3000),
        "OutputTokens": st.none() | st.integers(0, 3),
        "Status": st.sampled_from(["ok", "error"]),
    }),
    min_size=1, max_size=8,
)  # fmt: skip


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(rows=rows, given_limits=st.tuples(limit, limit, limit), wider=st.integers(0, 2000))
def test_wider_limits_never_lose_a_good_request(store, rows, given_limits, wider):
    """Goodput is monotone in each limit, and the four kinds always add up."""
    store.empty()
    store.requests(*rows)
    names = ("ttft_ns", "tpot_ns", "e2e_ns")
    tight = Limits(**dict(zip(names, given_limits, strict=True)))
    last = goodput(store, Filters(), tight).overall
    assert last.requests == last.good + last.missed + last.failed + last.unknown
    for name, value in zip(names, given_limits, strict=True):
        more = value + wider if value is not None else None
        found = goodput(store, Filters(), tight.model_copy(update={name: more})).overall
        assert found.good >= last.good
        assert found.missed <= last.missed


@pytest.mark.parametrize(
    ("given_texts", "says"),
    [((None, None, None), "no limit was given"), (("5", None, None), "write it as 500ms"),
     ((None, "-1ms", None), "tpot '-1ms' is not a limit"),
     ((None, None, "inf"), "e2e 'inf' is not a limit"), (("nans", None, None), "ttft 'nans' is not"),
     (("1e9s", None, None), "write it as 500ms"),
     (("999999999999999s", None, None), "ttft '999999999999999s' is out of range: give 0s to 1,000,000,000s"),
     ((None, "9223372036854775808ns", None), "tpot '9223372036854775808ns' is out of range"),
     ((None, None, "1000000000.000001s"), "or leave the limit out")],
)  # fmt: skip
def test_limits_that_cannot_be_used_are_named(given_texts, says):
    """One sentence with the rule."""
    with pytest.raises(BadValueError, match=says):
        parse_limits(*given_texts)


def test_the_largest_limit_and_none_are_answered(store):
    """0 s, which nothing meets, and 31 years to the nanosecond, which all do."""
    store.requests(GOOD)
    most = parse_limits("1000000000s", "999999999999999999ns", "0ms")
    assert most == Limits(ttft_ns=10**18, tpot_ns=10**18 - 1, e2e_ns=0)
    assert goodput(store, Filters(), most).overall.missed == 1
    assert goodput(store, Filters(), most.model_copy(update={"e2e_ns": None})).overall.good == 1


def test_price_tables_are_made_and_checked():
    """Of a mapping and of JSON alike; an unknown key is named with its place."""
    line = {"input_per_million": 1, "output_per_million": 2}
    found = make_prices({"currency": "EUR", "models": {"m": line}}, "price file f")
    assert found.of("m").output_per_million == 2
    assert found.of("x") is None
    assert parse_prices(found.model_dump_json()) == found
    with pytest.raises(BadValueError, match=r"price file f: models\.m\.imput cannot be used"):
        make_prices({"models": {"m": {"imput": 1}}}, "price file f")
    for wrong in ({"input_per_million": 1e308}, {"gpu_per_hour": -1}, {"gpus": 10**21}):
        with pytest.raises(BadValueError, match=r"models\.m\.\w+ cannot be used"):
            make_prices({"models": {"m": wrong}}, "f")
    with pytest.raises(BadValueError, match="prices: the table cannot be used"):
        parse_prices("nonsense")
