"""Arrivals, lengths, percentiles: what the load is drawn from and measured with."""

from __future__ import annotations

import random
import statistics
from itertools import islice, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagelens.bench.arrivals import schedule
from stagelens.bench.figures import figures, percentile
from stagelens.bench.lengths import parse_lengths

N = 20_000


def gaps(kind: str, rate: float, burstiness: float = 2.0) -> list[float]:
    times = islice(schedule(kind, rate, burstiness, random.Random(1)), N)
    return [b - a for a, b in pairwise(times)]


@pytest.mark.parametrize(
    ("kind", "burstiness", "deviation"),
    [("constant", 1, 0.0), ("poisson", 1, 1.0), ("gamma", 3.0, 3.0), ("gamma", 0.5, 0.5)],
)
def test_arrivals_have_the_rate_and_the_burstiness_that_were_asked_for(kind, burstiness, deviation):
    """Mean gap is 1/rate; the gaps' deviation over their mean is that of the kind."""
    found = gaps(kind, 50.0, burstiness)
    assert statistics.fmean(found) == pytest.approx(0.02, rel=0.06)
    assert statistics.pstdev(found) / 0.02 == pytest.approx(deviation, rel=0.1, abs=1e-6)


def test_the_same_seed_gives_the_same_schedule():
    """A run can be repeated."""
    one, two = (list(islice(schedule("gamma", 3, 2, random.Random(7)), 50)) for _ in range(2))
    assert one == two
    assert one != list(islice(schedule("gamma", 3, 2, random.Random(8)), 50))


@pytest.mark.parametrize(
    ("text", "mean"),
    [("256", 256), ("uniform:10,30", 20), ("normal:500,50", 500), ("lognormal:300,200", 300),
     ("exponential:80", 80), ("choice:10,20,60", 30)],
)  # fmt: skip
def test_lengths_have_the_mean_that_was_written(text, mean):
    """Each distribution's draws are whole numbers from 1 up with that mean."""
    rng, lengths = random.Random(3), parse_lengths(text)
    drawn = [lengths.draw(rng) for _ in range(N)]
    assert min(drawn) >= 1
    assert statistics.fmean(drawn) == pytest.approx(mean, rel=0.03)


@pytest.mark.parametrize(
    "text", ["", "0", "-3", "nan", "1,2", "uniform:5", "uniform:9,3", "lognormal:0,1", "poisson:3",
             "normal:1", "choice:", "1e99"],
)  # fmt: skip
def test_a_length_that_is_none_is_refused_in_a_sentence(text):
    """The sentence holds what was written and what can be."""
    with pytest.raises(ValueError, match="lognormal:MEAN,SD"):
        parse_lengths(text)


@settings(deadline=None)
@given(st.lists(st.floats(0, 1e12), min_size=1, max_size=200), st.floats(0, 100))
def test_percentiles_are_those_of_numpy(values, level):
    """Linear interpolation between the nearest two."""
    found = percentile(sorted(values), level)
    assert found == pytest.approx(float(np.percentile(values, level)), rel=1e-9, abs=1e-6)


def test_no_data_is_counted_and_never_zero():
    """Figures of nothing are None, with the number of requests that had none."""
    found = figures("ttft", [None, None])
    assert (found.n, found.no_data, found.p50_ns, found.max_ns) == (0, 2, None, None)
    assert figures("ttft", [5.0, None]).weak == ("p50", "p90", "p95", "p99")
