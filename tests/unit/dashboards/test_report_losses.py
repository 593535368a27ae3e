"""What is known to be lost stands beside the figures."""

from __future__ import annotations

from dashboards.filters import Filters
from dashboards.queries.base import QueryLimits
from dashboards.queries.losses import losses
from dashboards.queries.report import report
from tracer import semconv

BASE = 1_767_268_800_000_000_000
S = 1_000_000_000
DROPPED = semconv.METRIC_SPANS_DROPPED


def asked(store, filters=None, counts=None):
    return losses(store, filters or Filters(), counts, QueryLimits())


def test_with_no_sender_heard_the_losses_are_not_known(store):
    """Silence is no proof that nothing was lost."""
    found = asked(store)
    assert (found.senders, found.spans_in_window, found.spans_since_start) == (0, None, None)
    assert found.collector is None


def test_a_sender_that_lost_nothing_says_zero(store):
    """Counts received without drops are a known 0."""
    store.told(semconv.METRIC_SPANS_RECEIVED, 40, at=S)
    found = asked(store)
    assert (found.senders, found.spans_made, found.spans_since_start) == (1, 40, 0)


def test_the_latest_value_of_each_instance_counts_once(store):
    """Cumulative points are not added up over time, only over senders and restarts."""
    store.told(DROPPED, 2, at=1 * S, reason="queue_full")
    store.told(DROPPED, 5, at=2 * S, reason="queue_full")
    store.told(DROPPED, 1, at=2 * S, reason="unavailable")
    store.told(DROPPED, 7, at=2 * S, reason="queue_full", instance="b")
    store.told(DROPPED, 3, at=9 * S, reason="queue_full", started=str(8 * S))
    store.told(semconv.METRIC_STEPS_DROPPED, 4, at=2 * S, reason="queue_full")
    found = asked(store)
    assert found.senders == 2
    assert [(one.reason, one.since_start) for one in found.spans] == [
        ("queue_full", 15),
        ("unavailable", 1),
    ]
    assert (found.spans_since_start, found.steps_since_start) == (16, 4)


def test_what_was_lost_before_the_window_is_told_apart(store):
    """A loss of last week does not spoil this hour's report."""
    store.told(DROPPED, 10, at=-100 * S, reason="queue_full")
    store.told(DROPPED, 12, at=50 * S, reason="queue_full")
    store.told(DROPPED, 90, at=500 * S, reason="queue_full")
    found = asked(store, Filters(since_unix_ns=BASE, until_unix_ns=BASE + 60 * S))
    assert (found.spans_in_window, found.spans_since_start) == (2, 12)


def test_a_loss_told_just_after_the_window_still_counts(store):
    """Senders tell their losses every few seconds, so the last ones come late."""
    store.told(DROPPED, 3, at=64 * S, reason="queue_full")
    assert asked(store, Filters(until_unix_ns=BASE + 60 * S)).spans_in_window == 3


def test_the_collectors_own_counts_stand_beside_and_are_read_out(store):
    """What the collector refused is in the report and in its closing sentence."""
    counts = {"spans": {"received": 9, "written": 6, "refused": {"bad_id": 2}, "in_flight": 1}}
    store.requests({"decode": 5})
    store.told(DROPPED, 3, at=S, reason="queue_full")
    found = report(store, Filters(), now_unix_ns=BASE, counts=counts)
    assert found.losses.collector["spans"].refused == {"bad_id": 2}
    assert found.losses.collector["spans"].in_flight == 1
    assert "At least 5 spans" in found.reading[-1]
