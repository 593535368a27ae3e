"""An upstream vLLM's own span joined into the proxy's record of the same trace."""

from __future__ import annotations

from collectors.normalise.join import joined
from collectors.normalise.row import Row
from collectors.normalise.span import Span
from collectors.normalise.tree import forest
from tests.unit.collectors.normalise.build import MS, check_sum, s, stages_ms

ROOT = {"stagelens.record.version": 1, "stagelens.source": "upstream",
        "stagelens.source_detail": "usage"}  # fmt: skip
BEFORE: Row = {
    "Source": "upstream", "SourceDetail": "", "E2ENs": 1000 * MS, "Repairs": ["x:y"],
    "InputTokens": None, "OutputTokens": 20, "CachedTokens": None, "Model": "m",
}  # fmt: skip


def engine(number: int, parent: int, queue: float, prefill: float, decode: float, **more: object) -> Span:
    told = {
        "gen_ai.latency.time_in_queue": queue / 1e3, "gen_ai.latency.time_in_model_prefill": prefill / 1e3,
        "gen_ai.latency.time_in_model_decode": decode / 1e3,
        "gen_ai.latency.time_to_first_token": (queue + prefill + 5) / 1e3,
        "gen_ai.usage.prompt_tokens": 70, "gen_ai.usage.completion_tokens": 20, **more,
    }  # fmt: skip
    return s(number, parent, "llm_request", 30, 960, told, service="vllm")


def streamed(*engines: Span) -> Row | None:
    """Handed over at 20 ms, first token at 400, last at 950, delivered until 1000."""
    ours = (
        s(1, None, "POST /v1/chat/completions", 0, 1000, ROOT, kind="Server"),
        s(2, 1, "prompt", 0, 20, {"stagelens.stage": "prompt"}),
        s(3, 1, "chat m", 20, 960, {"gen_ai.operation.name": "chat", "stagelens.attempt": 1}),
        s(4, 3, "time-to-first-token", 20, 400, {"stagelens.divisible": False}),
        s(5, 3, "decode", 400, 950, {"stagelens.stage": "decode"}),
        s(6, 1, "deliver", 950, 1000, {"stagelens.stage": "deliver"}),
    )
    (root,) = forest((*ours, *engines))
    return joined(root, BEFORE)


def test_queue_prefill_and_decode_take_the_place_of_the_undivided_wait():
    """The engine's lengths end at the proxy's first token; the way there and back is not theirs."""
    row = streamed(engine(7, 3, queue=100, prefill=250, decode=545))
    assert row is not None
    check_sum(row)
    assert stages_ms(row) == {
        "prompt": 20, "queue": 100, "prefill": 250, "decode": 545, "deliver": 55,
        "unattributed": 30,
    }  # fmt: skip
    assert row["SourceDetail"] == "usage,engine_span"
    assert row["StageCounts"] == {"prompt": 1, "queue": 1, "prefill": 1, "decode": 1, "deliver": 1}
    assert (row["InputTokens"], "OutputTokens" in row) == (70, False)
    assert row["Repairs"] == ["x:y"]


def test_an_engine_that_says_more_than_the_proxy_saw_is_cut_and_flagged():
    """Nothing before the hand-over and nothing after the last token."""
    row = streamed(engine(7, 3, queue=500, prefill=900, decode=545))
    assert row is not None
    check_sum(row)
    assert row["Repairs"] == ["engine_times_exceed_the_span:cut", "x:y"]
    assert stages_ms(row)["queue"] == 500


def test_choices_share_one_queue_and_decode_to_the_last_of_all():
    """n=2: first scheduling of any, first token of any, last token of any."""
    row = streamed(engine(7, 3, 100, 250, 500), engine(8, 3, 120, 250, 520))
    assert row is not None
    check_sum(row)
    assert {k: v for k, v in stages_ms(row).items() if k in ("queue", "prefill", "decode")} == {
        "queue": 100, "prefill": 250, "decode": 540,
    }  # fmt: skip


def test_a_whole_answer_is_divided_backwards_from_its_end():
    """Not streamed: the proxy saw only the response."""
    root, *_ = forest(
        (
            s(1, None, "POST /v1/chat/completions", 0, 1000, ROOT),
            s(3, 1, "chat m", 20, 960, {"stagelens.attempt": 1, "gen_ai.operation.name": "chat"}),
            s(4, 3, "time-to-response", 20, 950, {"stagelens.divisible": False}),
            engine(7, 3, queue=100, prefill=250, decode=500),
        )
    )
    row = joined(root, BEFORE)
    assert row is not None
    check_sum(row)
    assert stages_ms(row) == {"queue": 100, "prefill": 250, "decode": 500, "unattributed": 150}


def test_records_that_are_no_upstreams_and_traces_without_an_engine_stay():
    """The embedded engine's own stamps are better than any span."""
    assert streamed() is None
    (root,) = forest((s(1, None, "POST /", 0, 1000, ROOT), engine(7, 1, 1, 1, 1)))
    assert joined(root, BEFORE) is None
    assert joined(root, {**BEFORE, "Source": "engine"}) is None
