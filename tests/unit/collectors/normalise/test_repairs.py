"""What another tool tells that cannot be so is left out or mended, and counted as repaired."""

from __future__ import annotations

import pytest

from tests.unit.collectors.normalise.build import only, s

CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
FIRST = "first_token_outside_the_span:left_out"
LATE = "2026-01-01T13:00:00Z"  # an hour after the spans
EARLY = "2026-01-01T11:00:00Z"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("chat m", {**CHAT, "gen_ai.response.time_to_first_chunk": 1.5}),
        ("chat m", {**CHAT, "gen_ai.response.time_to_first_chunk": 1e9}),
        ("chat m", {**CHAT, "gen_ai.latency.time_to_first_token": 2}),
        ("chat m", {**CHAT, "langfuse.observation.completion_start_time": LATE}),
        ("chat m", {**CHAT, "langfuse.observation.completion_start_time": EARLY}),
        ("http-request", {"output_tokens": 3, "input_tokens": 2, "ttft_ms": 1500}),
        ("llm_request", {"gen_ai.request.model": "m", "gen_ai.latency.time_to_first_token": 2}),
    ],
)
def test_a_first_token_outside_its_span_is_not_known(name, told):
    """In each dialect: null and not the whole duration, TPOT too, with the repair named."""
    row = only(s(1, None, name, 0, 1000, {**told, "gen_ai.usage.output_tokens": 5}))
    assert (row["FirstTokenNs"], row["FirstChunkNs"], row["TpotNs"]) == (None, None, None)
    assert row["Repairs"] == [FIRST]
    assert row["E2ENs"] == row["UnattributedNs"] == 1_000_000_000


def test_a_wrong_first_token_leaves_a_right_first_chunk():
    """The chunk stands for the token, which is said."""
    told = {
        "gen_ai.response.time_to_first_chunk": 0.4, "gen_ai.latency.time_to_first_token": 99,
    }  # fmt: skip
    row = only(s(1, None, "chat m", 0, 1000, {**CHAT, "gen_ai.operation.name": "chat", **told}))
    assert (row["FirstTokenNs"], row["Repairs"]) == (400_000_000, [FIRST])


def test_a_first_token_at_the_very_end_is_one():
    """An answer of one chunk: the first token is the end, or a rounding beyond it."""
    for told in (1.0, 1.0004):
        row = only(s(1, None, "chat m", 0, 1000, {**CHAT, "gen_ai.response.time_to_first_chunk": told}))
        assert (row["FirstTokenNs"], row["Repairs"]) == (1_000_000_000, [])


@pytest.mark.parametrize("number", [1, 2])
def test_a_span_that_the_receiver_mended_is_counted(number):
    """In the root or below it; words that are none of ours are not taken for repairs."""
    mended = {"stagelens.repair": "end_before_start:duration_0,made up"}
    attributes = [{}, {}]
    attributes[number - 1] = mended
    row = only(
        s(1, None, "POST /x", 0, 1000, attributes[0]),
        s(2, 1, "chat m", 500, 500, {**CHAT, **attributes[1]}),
    )
    assert row["Repairs"] == ["end_before_start:duration_0"]
