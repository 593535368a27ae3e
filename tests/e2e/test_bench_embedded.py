"""`stagelens bench` before the real engine: both sides' figures, runs, and a replay."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from dashboards.filters import Filters

pytestmark = pytest.mark.engine


def bench(served, *options: str) -> dict[str, object]:
    made = subprocess.run(
        [sys.executable, "-m", "stagelens", "bench", "--url", served.proxy, "--collector", served.api,
         "--warmup", "0", "--format", "json", "--quiet", *options],
        check=True, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    return json.loads(made.stdout)


def test_a_run_is_in_the_store_and_both_sides_agree(served):
    """Each request is found by its trace; the proxy's E2E lies within the client's."""
    told = bench(served, "--rate", "4", "--requests", "12", "--name", "both", "--input", "uniform:400,460",
                 "--output", "uniform:2,6", "--prefix-share", "0.5", "--prefix-tokens", "300")  # fmt: skip
    [level] = told["levels"]
    assert (level["counts"]["ok"], level["outputs_as_meant"]) == (12, 12)
    server = level["server"]
    assert (server["asked"], server["found"]) == (12, 12)
    assert server["outside"]["p50_ns"] > 0
    assert server["before"]["p50_ns"] > 0
    report = served.source.report(Filters(run="both"))
    assert report.overall.counts.total == 12
    client = {one["measure"]: one for one in level["figures"]}
    stored = report.overall.measure("e2e")
    assert client["e2e_sent"]["p50_ns"] > stored.p50_ns


def test_a_replay_has_the_lengths_of_what_was_recorded(served):
    """As many prompt and answer tokens, request by request, whatever the tokenizer makes of it."""
    bench(served, "--rate", "5", "--requests", "10", "--name", "first", "--input", "uniform:400,460",
          "--output", "uniform:2,5", "--prefix-share", "0.6", "--prefix-tokens", "300")  # fmt: skip
    told = bench(served, "--replay", "first", "--name", "second", "--seed", "9")
    [level] = told["levels"]
    assert (level["counts"]["ok"], level["outputs_as_meant"]) == (10, 10)
    first, second = (served.source.records(Filters(run=name)).records for name in ("first", "second"))
    assert [r.output_tokens for r in first] == [r.output_tokens for r in second]
    off = [abs(a.input_tokens - b.input_tokens) for a, b in zip(first, second, strict=True)]
    assert max(off) <= (0 if "lengths are exact" in " ".join(told["assumptions"]) else 40)
    assert sum(bool(r.cached_tokens) for r in second) >= sum(bool(r.cached_tokens) for r in first) - 1
