"""The partition of a foreign tree, tokens counted once, and trees that are not whole."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.normalise.divide import MOST_INTERVALS
from collectors.normalise.span import Span
from tests.unit.collectors.normalise.build import MS, check_sum, only, rows, s, stages_ms

CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
TOOL = {"gen_ai.operation.name": "execute_tool"}
FIND = {"gen_ai.operation.name": "retrieval"}


def used(tokens: int) -> dict[str, object]:
    return {"gen_ai.usage.input_tokens": tokens, "gen_ai.usage.output_tokens": 1}


def test_parallel_tools_hold_the_instant_of_the_one_that_was_waited_for():
    """The critical path, as for records of our own."""
    row = only(
        s(1, None, "agent", 0, 1000, {"gen_ai.operation.name": "invoke_agent"}),
        s(2, 1, "chat m", 0, 200, CHAT),
        s(3, 1, "execute_tool a", 200, 500, TOOL),
        s(4, 1, "retrieval", 200, 700, FIND),
        s(5, 1, "chat m", 700, 1000, CHAT),
    )
    assert stages_ms(row) == {"retrieval": 500, "unattributed": 500}
    assert row["StageCounts"] == {"tool": 1, "retrieval": 1}


def test_a_model_call_inside_a_tool_is_not_the_tools_time():
    """An agent as a tool: the tool has what is left of its own span."""
    row = only(
        s(1, None, "agent", 0, 1000, {"gen_ai.operation.name": "invoke_agent"}),
        s(2, 1, "execute_tool ask", 100, 900, TOOL),
        s(3, 2, "chat m", 200, 700, {**CHAT, "gen_ai.response.time_to_first_chunk": 0.1}),
    )
    assert stages_ms(row) == {"tool": 300, "decode": 400, "unattributed": 300}


def test_spans_of_client_and_gateway_for_one_call_are_one_call():
    """The outer one saw the first token, the inner one not: the outer one's split stands."""
    row = only(
        s(1, None, "chat m", 0, 1000, {**CHAT, **used(9), "gen_ai.response.time_to_first_chunk": 0.3}),
        s(2, 1, "litellm_request", 50, 980, {"gen_ai.system": "x", "gen_ai.request.model": "m", **used(9)},
          service="litellm"),
    )  # fmt: skip
    assert stages_ms(row) == {"unattributed": 300, "decode": 700}
    assert (row["InputTokens"], row["StageCounts"]) == (9, {"decode": 1})


def test_usage_in_parent_and_children_is_counted_once():
    """29,899 tokens in the root and in its four calls are 29,899 (faults 34)."""
    parts = (3031, 4421, 10709, 11738)
    calls = [s(2 + n, 1, "chat m", n * 10, n * 10 + 9, {**CHAT, **used(p)}) for n, p in enumerate(parts)]
    root = s(1, None, "invoke_agent", 0, 100, {"gen_ai.operation.name": "invoke_agent", **used(29_899)})
    row = only(root, *calls)
    assert (row["InputTokens"], row["OutputTokens"]) == (29_899, 4)


def test_a_parent_that_tells_only_its_last_call_does_not_hide_the_others():
    """The children's sum is larger: it counts."""
    row = only(
        s(1, None, "agent", 0, 100, {"gen_ai.operation.name": "invoke_agent", **used(5)}),
        s(2, 1, "chat m", 0, 9, {**CHAT, **used(3)}),
        s(3, 1, "chat m", 10, 90, {**CHAT, **used(5)}),
    )
    assert row["InputTokens"] == 8


def test_choices_of_one_call_have_one_prompt():
    """n=2 gives two engine spans that began together: the prompt counts once, the output twice."""
    engine = {"gen_ai.latency.time_in_queue": 0.01, "gen_ai.latency.time_in_model_prefill": 0.02,
              "gen_ai.latency.time_in_model_decode": 0.03, "gen_ai.usage.prompt_tokens": 50,
              "gen_ai.usage.completion_tokens": 8}  # fmt: skip
    row = only(
        s(1, None, "chat m", 0, 100, CHAT),
        s(2, 1, "llm_request", 10, 90, engine, service="vllm"),
        s(3, 1, "llm_request", 10, 95, engine, service="vllm"),
    )
    assert (row["InputTokens"], row["OutputTokens"]) == (50, 16)
    assert row["StageCounts"]["decode"] == 1


def test_a_tree_whose_root_is_missing_counts_from_its_topmost_span():
    """Two orphans of one lost parent are two requests until it comes."""
    parts = (s(2, 1, "chat m", 0, 10, CHAT), s(3, 1, "chat m", 20, 50, CHAT))
    assert [row["E2ENs"] for row in rows(*parts)] == [10 * MS, 30 * MS]
    row = only(*parts, s(1, None, "agent", 0, 60))
    assert row["E2ENs"] == 60 * MS


def test_another_hosts_clock_is_straightened_and_said():
    """An engine span that begins before its cause is moved into it."""
    engine = {"gen_ai.latency.time_in_queue": 0.1, "gen_ai.latency.time_in_model_prefill": 0.2,
              "gen_ai.latency.time_in_model_decode": 0.3}  # fmt: skip
    row = only(
        s(1, None, "chat m", 0, 1000, CHAT),
        s(2, 1, "llm_request", -5000, -4300, engine, service="vllm"),
    )
    assert stages_ms(row) == {
        "queue": 100, "prefill": 200, "decode": 300, "deliver": 100, "unattributed": 300,
    }  # fmt: skip
    assert row["Repairs"] == ["clock_skew:moved_into_parent"]


def test_a_task_around_requests_of_ours_is_kept_out_of_model_requests():
    """Our record inside has its own row; the task's has source app, as the SDK's own tasks."""
    row = only(
        s(1, None, "rag", 0, 1000, {"openinference.span.kind": "CHAIN"}),
        s(2, 1, "retriever", 0, 100, {"openinference.span.kind": "RETRIEVER"}),
        s(3, 1, "POST /v1/chat/completions", 150, 950, {"stagelens.record.version": 1}),
        s(4, 3, "chat m", 200, 900, {**CHAT, **used(7)}),
        s(5, 4, "queue", 200, 300, {"stagelens.stage": "queue"}),
        s(6, 4, "prefill", 300, 400, {"stagelens.stage": "prefill"}),
        s(7, 4, "decode", 400, 900, {"stagelens.stage": "decode"}),
        s(8, 3, "deliver", 900, 950, {"stagelens.stage": "deliver"}),
    )
    assert (row["Source"], row["Operation"], row["Model"]) == ("app", "invoke_workflow", "")
    assert stages_ms(row) == {
        "retrieval": 100, "queue": 100, "prefill": 100, "decode": 500, "deliver": 50,
        "unattributed": 150,
    }  # fmt: skip
    assert row["InputTokens"] == 7


def test_a_circle_of_parents_and_twice_told_ids_are_no_trouble():
    """Hostile trees end, and each makes a row or none."""
    found = rows(
        s(1, 2, "a", 0, 10, CHAT), s(2, 1, "b", 0, 20, CHAT), s(3, 3, "c", 0, 30, CHAT),
        s(4, None, "d", 0, 5, CHAT), s(4, None, "d", 0, 40, CHAT),
    )  # fmt: skip
    assert max(int(str(row["E2ENs"])) for row in found) == 40 * MS
    for row in found:
        check_sum(row)


def test_thousands_of_parts_are_merged_and_still_add_up():
    """An engine that exports a span a step cannot make a trace slow."""
    steps = [
        s(10 + n, 1, "decode_loop", n, n + 1, scope="sglang server")
        for n in range(3 * MOST_INTERVALS)
    ]
    row = only(s(1, None, "r", 0, 3 * MOST_INTERVALS, CHAT), *steps)
    assert stages_ms(row) == {"decode": 3 * MOST_INTERVALS}


words = st.sampled_from(
    [{}, CHAT, TOOL, FIND, {"openinference.span.kind": "EMBEDDING"}, {"stagelens.record.version": 1},
     {**CHAT, "gen_ai.response.time_to_first_chunk": 0.01, **used(3)},
     {"gen_ai.latency.time_in_queue": 0.01, "gen_ai.latency.time_in_model_prefill": 0.02,
      "gen_ai.latency.time_in_model_decode": 99, "gen_ai.latency.time_to_first_token": 0.015},
     {"stagelens.stage": "decode"}, {"stagelens.stage": "no such"}, {"gen_ai.latency.e2e": "x"}]
)  # fmt: skip


@st.composite
def any_span(draw, number: int) -> Span:
    begin = draw(st.integers(0, 200))
    parent = draw(st.none() | st.integers(1, 14))
    return s(number, parent, draw(st.sampled_from(["x", "llm_request", "tokenize"])), begin,
             begin + draw(st.integers(0, 200)), draw(words),
             service=draw(st.sampled_from(["a", "b"])),
             scope=draw(st.sampled_from(["", "sglang server"])))  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.data(), st.integers(1, 12), st.randoms(use_true_random=False))
def test_any_tree_in_any_order_adds_up_and_gives_the_same_rows(data, n, order):
    """The law holds for every tree, and the order in which spans came changes nothing."""
    spans = [data.draw(any_span(number)) for number in range(1, n + 1)]
    found = rows(*spans)
    for row in found:
        check_sum(row)
        assert all(ms >= 0 for ms in stages_ms(row).values())
    order.shuffle(spans)
    key = lambda row: str(row["SpanId"])  # noqa: E731
    assert sorted(rows(*spans), key=key) == sorted(found, key=key)
