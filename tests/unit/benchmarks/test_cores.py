"""Which cores a measurement takes."""

from __future__ import annotations

import os

import pytest

from benchmarks.cores import bind, two_cores


@pytest.mark.parametrize(
    ("allowed", "one", "other", "doubt"),
    [
        ({5, 7, 9}, {5}, {7}, ""),
        ({3}, {3}, {3}, "one core alone: both sides shared it"),
    ],
)
def test_cores_are_those_that_the_process_may_use(monkeypatch, allowed, one, other, doubt):
    """A container's are seldom 0 and 1; where there is one alone the load's words say so."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: allowed, raising=False)
    cores = two_cores()
    assert (cores.one, cores.other, cores.allowed) == (one, other, allowed)
    assert doubt in cores.told("load")
    assert (cores.told("load") == "load") is (doubt == "")


def test_a_system_that_binds_nothing_is_told(monkeypatch):
    """macOS has no such call."""
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    cores = two_cores()
    assert "binds no process to a core" in cores.told("load")
    bind(cores.one)
