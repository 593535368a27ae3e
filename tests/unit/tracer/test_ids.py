"""Ids are never zero and never repeat: not after seeding, not in a forked child (faults 58)."""

from __future__ import annotations

import os
import random

from tracer.ids import RandomIds


def test_ids_are_of_their_size_and_all_different():
    """Ten blocks' worth of them."""
    ids = RandomIds()
    traces = [ids.trace_id() for _ in range(1500)]
    spans = [ids.span_id() for _ in range(1500)]
    assert len(set(traces)) == len(set(spans)) == 1500
    assert all(0 < t < 2**128 for t in traces)
    assert all(0 < s < 2**64 for s in spans)


def test_seeding_changes_nothing_and_is_not_disturbed():
    """The user's own random numbers and our ids know nothing of each other."""
    ids = RandomIds()
    random.seed(1)
    first, own = ids.trace_id(), random.random()
    random.seed(1)
    assert random.random() == own
    assert ids.trace_id() != first


def test_a_forked_child_does_not_repeat_its_parents_ids():
    """Both go on from the same state; the child forgets the block."""
    ids = RandomIds()
    ids.span_id()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, b",".join(str(ids.span_id()).encode() for _ in range(20)))
        os._exit(0)
    os.waitpid(child, 0)
    theirs = set(os.read(reading, 4096).split(b","))
    ours = {str(ids.span_id()).encode() for _ in range(20)}
    os.close(reading)
    os.close(writing)
    assert len(theirs) == 20
    assert not theirs & ours
