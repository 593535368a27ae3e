"""How true the load client is: which figures are held against the server's own."""

from __future__ import annotations

import pytest

from benchmarks.load import run
from benchmarks.page import section


def test_each_figure_that_must_be_true_is_beside_the_truth(monkeypatch, tmp_path):
    """TTFT, ITL, E2E and TPOT at three percentiles; gaps are of all answers together."""
    truth = run.Truth(at=[0.0, 1.0], ttft=[0.1, 0.1], e2e=[0.4, 0.4], itl=[0.010, 0.010, 0.010])
    seen = {name: {50: 0.012, 90: 0.013, 99: 0.014}
            for name in ("ttft_sent", "e2e_sent", "itl", "tpot", "late")}  # fmt: skip
    monkeypatch.setattr(run, "ours", lambda *_: (seen, 0.001, truth))
    rows = run.accuracy(tmp_path, 500, 1)
    told = {row["what"]: row["values"][0] for row in rows}
    for name in ("TTFT", "ITL", "E2E", "TPOT"):
        assert {f"{name} p{level} at 500/s, off by" for level in (50, 90, 99)} <= told.keys()
    off = [told[f"ITL p{level} at 500/s, off by"] for level in (50, 90, 99)]
    assert off == pytest.approx([2.0, 3.0, 4.0])
    page = section("load", {"machine": "a box", "rows": rows})
    assert "| ITL p99 at 500/s, off by | ms |" in page
