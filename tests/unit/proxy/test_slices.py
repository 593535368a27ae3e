"""The event loop's slices of a core."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
import threading

import pytest

from proxy import slices
from proxy.slices import SLICE_NS, shorten_slice

GET = {"x86_64": 315, "aarch64": 275}
ATTR = slices._ATTR
KNOWN = pytest.mark.skipif(
    not sys.platform.startswith("linux") or platform.machine() not in GET,
    reason="Linux on x86-64 or ARM alone has the calls by these numbers",
)


def told() -> tuple[int, int, int]:
    """Policy, nice and slice of the calling thread, as the system tells them."""
    attr = ctypes.create_string_buffer(ATTR.size)
    if ctypes.CDLL(None).syscall(GET[platform.machine()], 0, attr, ATTR.size, 0):
        pytest.skip("the system does not tell a thread's slices")
    _, policy, _, nice, _, slice_ns, _, _ = ATTR.unpack(attr.raw)
    return policy, nice, slice_ns


def in_a_thread(work):
    """What ``work`` gives, in a thread that ends with it."""
    found = []
    one = threading.Thread(target=lambda: found.append(work()))
    one.start()
    one.join()
    return found[0]


@KNOWN
def test_a_thread_gets_the_shortest_slices_and_its_children_the_usual_ones():
    """Policy and nice stay. A system before 6.12 takes the call and changes nothing, others may refuse it."""

    def work():
        before = told()
        taken = shorten_slice()
        return before, taken, told(), in_a_thread(told)

    told()
    before, taken, after, child = in_a_thread(work)
    assert after[:2] == before[:2]
    assert after[2] == (SLICE_NS if taken and release() >= (6, 12) else before[2])
    assert child == before


def release() -> tuple[int, ...]:
    return tuple(int(part) for part in platform.release().split("-")[0].split(".")[:2])


@KNOWN
def test_a_thread_that_runs_with_another_policy_keeps_it(monkeypatch):
    """Who was given real time is not made an ordinary thread."""
    monkeypatch.setattr(os, "sched_getscheduler", lambda _: os.SCHED_FIFO)
    assert not in_a_thread(shorten_slice)


def test_where_the_system_has_no_such_call_nothing_is_asked(monkeypatch):
    """Another system or processor: the loop runs as before."""
    monkeypatch.setattr(slices.platform, "machine", lambda: "riscv64")
    assert shorten_slice() is False
