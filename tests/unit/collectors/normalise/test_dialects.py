"""Each tool's own words land in the same stages and the same row."""

from __future__ import annotations

import json

import pytest

from tests.unit.collectors.normalise.build import MS, T0, at, only, rows, s, stages_ms

VLLM = {
    "gen_ai.latency.time_to_first_token": 0.310, "gen_ai.latency.e2e": 1.0,
    "gen_ai.latency.time_in_queue": 0.050, "gen_ai.latency.time_in_model_prefill": 0.250,
    "gen_ai.latency.time_in_model_decode": 0.680, "gen_ai.latency.time_in_model_inference": 0.930,
    "gen_ai.usage.prompt_tokens": 120, "gen_ai.usage.completion_tokens": 35,
    "gen_ai.request.id": "cmpl-1", "gen_ai.request.max_tokens": 64,
}  # fmt: skip


def vllm(number, parent, begin, **more):
    told = {**VLLM, **more}
    return s(number, parent, "llm_request", begin, begin + 1000, told, kind="Server",
             service="vllm", scope="vllm.tracing.otel")  # fmt: skip


def test_vllms_own_span_is_divided_by_its_engines_figures():
    """Queue, prefill and decode as told; before them the server's preparation, after them deliver."""
    row = only(vllm(1, None, 0))
    assert stages_ms(row) == {"prompt": 10, "queue": 50, "prefill": 250, "decode": 680, "deliver": 10}
    assert row["FirstTokenNs"] == 310 * MS
    assert row["TpotNs"] == pytest.approx(680 * MS / 34)
    assert (row["InputTokens"], row["OutputTokens"]) == (120, 35)
    assert (row["Source"], row["SourceDetail"]) == ("engine", "vllm")
    assert row["StageCounts"] == {
        "prompt": 1, "queue": 1, "prefill": 1, "decode": 1, "deliver": 1,
    }  # fmt: skip


def test_an_engine_that_tells_more_than_its_span_is_cut_and_flagged():
    """No stage runs past the span; the rule is named."""
    row = only(vllm(1, None, 0, **{"gen_ai.latency.time_in_model_decode": 5.0}))
    assert stages_ms(row) == {"queue": 50, "prefill": 250, "decode": 700}
    assert row["Repairs"] == ["engine_times_exceed_the_span:cut"]


def test_current_genai_conventions():
    """chat with time_to_first_chunk: the wait is not divided, the stream is decode."""
    row = only(
        s(1, None, "chat gpt-4o", 0, 1000, {
            "gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "gpt-4o", "gen_ai.response.model": "gpt-4o-2024-08-06",
            "gen_ai.request.stream": True, "gen_ai.response.time_to_first_chunk": 0.4,
            "gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 31,
            "gen_ai.usage.cache_read.input_tokens": 4, "gen_ai.usage.reasoning.output_tokens": 5,
            "gen_ai.response.finish_reasons": json.dumps(["stop"]),
        }, kind="Client", service="shop", instance="i-3"),
    )  # fmt: skip
    assert stages_ms(row) == {"unattributed": 400, "decode": 600}
    assert row["FirstChunkNs"] == row["FirstTokenNs"] == 400 * MS
    assert row["TpotNs"] == 600 * MS / 30
    wanted = {
        "Model": "gpt-4o-2024-08-06", "Operation": "chat", "Status": "ok", "ErrorType": "",
        "FinishReason": "stop", "Stream": True, "InputTokens": 10, "OutputTokens": 31,
        "CachedTokens": 4, "ReasoningTokens": 5, "ServiceName": "shop", "ServiceInstance": "i-3",
        "Source": "client", "Timestamp": T0, "StageCounts": {"decode": 1},
        "SourceDetail": "gen_ai,first_token=first_chunk,last_token=span_end",
    }  # fmt: skip
    assert {name: row[name] for name in wanted} == wanted


def test_genai_conventions_before_1_37():
    """gen_ai.system with prompt and completion tokens, no operation: one undivided call."""
    row = only(
        s(1, None, "openai.chat", 0, 800, {
            "gen_ai.system": "openai", "gen_ai.request.model": "gpt-4",
            "gen_ai.usage.prompt_tokens": 7, "gen_ai.usage.completion_tokens": 9,
        }, kind="Client"),
    )  # fmt: skip
    assert stages_ms(row) == {"unattributed": 800}
    assert (row["Model"], row["InputTokens"], row["OutputTokens"]) == ("gpt-4", 7, 9)
    assert (row["FirstTokenNs"], row["TpotNs"], row["StageCounts"]) == (None, None, {})


def test_openinference_chain_with_retriever_reranker_llm_and_tool():
    """Retrieval (its embedding inside), tool and stream of a RAG chain are its stages."""
    kind = "openinference.span.kind"
    row = only(
        s(1, None, "rag", 0, 2000, {kind: "CHAIN", "session.id": "s"}),
        s(2, 1, "retriever", 100, 500, {kind: "RETRIEVER"}),
        s(3, 2, "embed", 150, 250, {kind: "EMBEDDING", "embedding.model_name": "e5"}),
        s(4, 1, "rerank", 500, 600, {kind: "RERANKER"}),
        s(5, 1, "ChatCompletion", 700, 1500, {
            kind: "LLM", "llm.model_name": "gpt-4o-mini", "llm.token_count.prompt": 200,
            "llm.token_count.completion": 51, "llm.token_count.prompt_details.cache_read": 128,
            "llm.token_count.completion_details.reasoning": 3,
        }, first_chunk_ns=at(900)),
        s(6, 1, "lookup", 1600, 1900, {kind: "TOOL", "tool.name": "lookup"}),
    )  # fmt: skip
    assert stages_ms(row) == {
        "retrieval": 500, "decode": 600, "tool": 300, "unattributed": 600,
    }  # fmt: skip
    assert row["StageCounts"] == {"retrieval": 2, "decode": 1, "tool": 1}
    assert row["FirstTokenNs"] == 900 * MS
    assert (row["Model"], row["InputTokens"], row["OutputTokens"]) == ("gpt-4o-mini", 200, 51)
    assert (row["CachedTokens"], row["ReasoningTokens"]) == (128, 3)
    assert (row["Stream"], row["Operation"]) == (True, "chat")
    assert row["SourceDetail"].startswith("openinference")


def test_openllmetry_workflow_with_chunk_events():
    """Chunk events give the first and the last chunk; the workflow is the request."""
    row = only(
        s(1, None, "joke.workflow", 0, 1000, {"traceloop.span.kind": "workflow"}),
        s(2, 1, "tell.task", 10, 990, {"traceloop.span.kind": "task"}),
        s(3, 2, "search.tool", 20, 120, {"traceloop.span.kind": "tool"}),
        s(4, 2, "openai.chat", 150, 950, {
            "llm.request.type": "chat", "gen_ai.system": "OpenAI",
            "gen_ai.request.model": "gpt-3.5-turbo", "gen_ai.usage.input_tokens": 15,
            "gen_ai.usage.output_tokens": 21, "gen_ai.usage.cache_read_input_tokens": 2,
            "llm.usage.total_tokens": 36, "gen_ai.is_streaming": True,
        }, kind="Client", first_chunk_ns=at(350), last_chunk_ns=at(930)),
        s(5, 2, "pinecone.query", 960, 980, {"db.system": "pinecone"}, kind="Client"),
    )  # fmt: skip
    assert stages_ms(row) == {
        "tool": 100, "decode": 580, "retrieval": 20, "unattributed": 300,
    }  # fmt: skip
    assert row["TpotNs"] == 580 * MS / 20
    assert row["SourceDetail"] == "openllmetry,spans,first_token=first_chunk"


SGLANG = {"service": "sglang", "scope": "sglang server"}


def test_sglangs_slices_are_the_stages():
    """Tokenizer and scheduler slices; decode loops add nothing to how often decode ran."""
    row = only(
        s(1, None, " Req 1a2b3c4d", 0, 1000, {
            "rid": "1a2b3c4d", "module": "sglang::request", "gen_ai.usage.prompt_tokens": 40,
            "gen_ai.usage.completion_tokens": 12, "gen_ai.usage.cached_tokens": 8,
            "gen_ai.response.model": "qwen", "gen_ai.latency.e2e": 1.0,
            "gen_ai.latency.time_to_first_token": 0.4,
            "gen_ai.latency.time_in_model_prefill": 0.37,  # its queue is inside
            "gen_ai.latency.time_in_model_decode": 0.6,
        }, **SGLANG),
        s(2, 1, "Tokenizer (host:ab | pid:1)", 0, 30, **SGLANG),
        s(3, 2, "tokenize", 0, 20, **SGLANG),
        s(4, 2, "api_server_dispatch", 20, 30, **SGLANG),
        s(5, 1, "Scheduler [TP 0] (host:ab | pid:2)", 35, 990, **SGLANG),
        s(6, 5, "request_process", 35, 40, **SGLANG),
        s(7, 5, "prefill_waiting", 40, 140, **SGLANG),
        s(8, 5, "prefill_forward", 140, 390, **SGLANG),
        s(9, 5, "decode_forward", 390, 990, **SGLANG),
        s(10, 9, "decode_loop", 390, 700, **SGLANG),
        s(11, 9, "decode_loop", 700, 990, **SGLANG),
    )  # fmt: skip
    assert stages_ms(row) == {
        "prompt": 30, "queue": 105, "prefill": 250, "decode": 600, "unattributed": 15,
    }  # fmt: skip
    assert row["StageCounts"] == {"prompt": 1, "queue": 1, "prefill": 1, "decode": 1}
    assert (row["InputTokens"], row["OutputTokens"], row["CachedTokens"]) == (40, 12, 8)
    assert (row["FirstTokenNs"], row["Model"], row["Source"]) == (400 * MS, "qwen", "engine")


def test_sglangs_request_span_alone_does_not_divide_its_prefill():
    """Without slices its prefill has the queue inside: the wait stays whole."""
    row = only(
        s(1, None, " Req 1a2b3c4d", 0, 1000, {
            "gen_ai.latency.time_to_first_token": 0.4,
            "gen_ai.latency.time_in_model_prefill": 0.37,
            "gen_ai.latency.time_in_model_decode": 0.6,
        }, **SGLANG),
    )  # fmt: skip
    assert stages_ms(row) == {"unattributed": 400, "decode": 600}


def test_dynamos_request_with_router_and_a_vllm_worker():
    """The router's wait is queue; the worker's engine span divides the rest."""
    row = only(
        s(1, None, "http-request", 0, 1200, {
            "method": "POST", "uri": "/v1/chat/completions", "model": "llama",
            "input_tokens": 120, "output_tokens": 35, "ttft_ms": 420.5, "avg_itl_ms": 20,
        }, service="dynamo-frontend", scope="opentelemetry-otlp"),
        s(2, 1, "kv_router.select_worker", 20, 60, service="dynamo-frontend"),
        s(3, 1, "handle_payload", 70, 1180, service="dynamo-worker"),
        vllm(4, 3, 80),
    )  # fmt: skip
    assert stages_ms(row) == {
        "queue": 90, "prompt": 10, "prefill": 250, "decode": 680, "deliver": 10,
        "unattributed": 160,
    }  # fmt: skip
    assert row["FirstTokenNs"] == round(420.5 * MS)
    assert (row["InputTokens"], row["OutputTokens"]) == (120, 35)
    assert row["StageCounts"]["queue"] == 1
    assert (row["Model"], row["SourceDetail"]) == ("llama", "dynamo,vllm")


def test_dynamo_without_a_worker_that_exports():
    """Its own time to the first token divides wait and stream."""
    row = only(
        s(1, None, "http-request", 0, 1000, {"output_tokens": 11, "ttft_ms": 300, "model": "m"}),
        s(2, 1, "kv_router.select_worker", 20, 60),
    )
    assert stages_ms(row) == {"queue": 40, "decode": 700, "unattributed": 260}


@pytest.mark.parametrize("told", [1e308, -1, float("inf"), 10**300, "x"])
def test_a_first_token_that_cannot_be_is_none(told):
    """No trace is lost for it, nor a figure made of it."""
    row = only(s(1, None, "http-request", 0, 1000, {"output_tokens": 11, "ttft_ms": told, "model": "m"}))
    assert (row["FirstTokenNs"], row["OutputTokens"]) == (None, 11)
    assert stages_ms(row) == {"unattributed": 1000}


def test_litellms_proxy_request_is_counted_once():
    """The server span is the request; litellm_request and its raw child are one call."""
    llm = {
        "gen_ai.system": "openai", "gen_ai.request.model": "gpt-4o", "llm.is_streaming": "True",
        "gen_ai.usage.prompt_tokens": 11, "gen_ai.usage.completion_tokens": 22,
        "llm.usage.total_tokens": 33, "metadata.user_api_key_hash": "x",
    }  # fmt: skip
    row = only(
        s(1, None, "Received Proxy Server Request", 0, 900, {"http.route": "/chat/completions"},
          kind="Server", service="litellm", scope="litellm"),
        s(2, 1, "auth", 5, 15, {"call_type": "add"}, service="litellm", scope="litellm"),
        s(3, 1, "litellm_request", 50, 850, llm, service="litellm", scope="litellm"),
        s(4, 3, "raw_gen_ai_request", 50, 850, {"llm.openai.model": "gpt-4o"}, scope="litellm"),
    )  # fmt: skip
    assert stages_ms(row) == {"unattributed": 900}
    assert (row["InputTokens"], row["OutputTokens"], row["Stream"]) == (11, 22, True)
    assert (row["Model"], row["Route"]) == ("gpt-4o", "/chat/completions")
    assert row["SourceDetail"] == "litellm"


def test_langfuse_observations():
    """Types, usage details in JSON and the completion's start time."""
    row = only(
        s(1, None, "handle-question", 0, 1000, {"langfuse.observation.type": "agent"}),
        s(2, 1, "search", 50, 250, {"langfuse.observation.type": "retriever"}),
        s(3, 1, "answer", 300, 950, {
            "langfuse.observation.type": "generation",
            "langfuse.observation.model.name": "claude",
            "langfuse.observation.usage_details": json.dumps({"input": 5, "output": 11, "total": 16}),
            "langfuse.observation.cost_details": json.dumps({"total": 0.25}),
            "langfuse.observation.completion_start_time": '"2026-01-01T12:00:00.450Z"',
        }),
        s(4, 1, "call", 960, 990, {"langfuse.observation.type": "tool"}),
    )  # fmt: skip
    assert stages_ms(row) == {
        "retrieval": 200, "decode": 500, "tool": 30, "unattributed": 270,
    }  # fmt: skip
    assert (row["InputTokens"], row["OutputTokens"], row["Cost"]) == (5, 11, 0.25)
    assert (row["Model"], row["FirstTokenNs"]) == ("claude", 450 * MS)


def test_embeddings_alone_are_a_request_and_beside_a_model_call_a_retrieval():
    """An embedding of a query is a part of retrieval; asked for alone it is the request."""
    told = {"gen_ai.operation.name": "embeddings", "gen_ai.request.model": "e5",
            "gen_ai.usage.input_tokens": 4}  # fmt: skip
    row = only(s(1, None, "embeddings e5", 0, 80, told))
    assert (stages_ms(row), row["Operation"]) == ({"unattributed": 80}, "embeddings")
    row = only(
        s(1, None, "ask", 0, 500),
        s(2, 1, "embeddings e5", 0, 80, told),
        s(3, 1, "chat m", 100, 500, {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}),
    )
    assert stages_ms(row) == {"retrieval": 80, "unattributed": 420}
    assert (row["StageCounts"], row["Model"]) == ({"retrieval": 1}, "m")


def test_a_trace_without_a_model_call_makes_no_request():
    """A plain web request or a lone tool is nothing of ours to count."""
    assert rows(s(1, None, "GET /", 0, 5, kind="Server"), s(2, 1, "SELECT", 1, 2)) == []
    assert rows(s(1, None, "t", 0, 5, {"gen_ai.operation.name": "execute_tool"})) == []


@pytest.mark.parametrize(
    ("root", "status", "error"),
    [
        ({}, "ok", ""),
        ({"error.type": "timeout"}, "error", "timeout"),
        ({"http.response.status_code": 502}, "error", "502"),
        ({"error.type": "asyncio.CancelledError"}, "cancelled", "asyncio.CancelledError"),
    ],
)
def test_the_roots_end_is_the_requests_end(root, status, error):
    """A call that failed and was tried again well is no failed request."""
    row = only(
        s(1, None, "POST /ask", 0, 500, root, kind="Server"),
        s(2, 1, "chat m", 0, 90, {"gen_ai.operation.name": "chat", "error.type": "429"}, failed=True),
        s(3, 1, "chat m", 100, 500, {"gen_ai.operation.name": "chat"}),
    )
    assert (row["Status"], row["ErrorType"]) == (status, error)


def test_a_failed_span_without_a_type_says_what_it_raised():
    """The exception event's type, else the conventions' _OTHER."""
    chat = {"gen_ai.operation.name": "chat"}
    assert only(s(1, None, "c", 0, 9, chat, failed=True))["ErrorType"] == "_OTHER"
    assert only(s(1, None, "c", 0, 9, chat, failed=True, exception="E"))["ErrorType"] == "E"


def test_content_is_never_read():
    """No attribute that may hold a prompt or an answer is among those read from the store."""
    from collectors.normalise.names import WANTED

    holds = ("message", "prompt.", "completion.0.content", "input.value", "output.value", "documents",
             "arguments", "result", "query.text", "header", "authorization")  # fmt: skip
    assert not [name for name in WANTED if any(word in name for word in holds)]
