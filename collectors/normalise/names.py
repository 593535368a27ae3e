"""Names that other conventions use: read here, never written. Ours are in ``tracer.semconv``.

Sources: OpenTelemetry GenAI (new names and those before 1.37), vLLM, SGLang, Dynamo,
OpenInference, OpenLLMetry, Langfuse, LiteLLM.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tracer import semconv

# --- GenAI conventions, older names ---------------------------------------------
GEN_AI_SYSTEM: Final = "gen_ai.system"
GEN_AI_CONVERSATION: Final = "gen_ai.conversation.id"
LATENCY_QUEUE: Final = "gen_ai.latency.time_in_queue"  # these in seconds
LATENCY_PREFILL: Final = "gen_ai.latency.time_in_model_prefill"
LATENCY_DECODE: Final = "gen_ai.latency.time_in_model_decode"
LATENCY_FIRST_TOKEN: Final = "gen_ai.latency.time_to_first_token"  # noqa: S105
LATENCY_E2E: Final = "gen_ai.latency.e2e"
# --- OpenInference, OpenLLMetry, Langfuse ----------------------------------------
OPENINFERENCE_KIND: Final = "openinference.span.kind"
TRACELOOP_KIND: Final = "traceloop.span.kind"
LLM_REQUEST_TYPE: Final = "llm.request.type"
LANGFUSE_TYPE: Final = "langfuse.observation.type"
LANGFUSE_USAGE: Final = "langfuse.observation.usage_details"  # JSON
LANGFUSE_COST: Final = "langfuse.observation.cost_details"  # JSON
LANGFUSE_FIRST: Final = "langfuse.observation.completion_start_time"  # JSON: ISO 8601
LANGFUSE_LEVEL: Final = "langfuse.observation.level"
# --- what the receiver says of a span that it mended -------------------------------
SPAN_REPAIR: Final = "stagelens.repair"
SPAN_REPAIRS: Final = frozenset({"end_before_start:duration_0", "bad_parent_id:ignored"})
# --- others -----------------------------------------------------------------------
DB_SYSTEM: Final = ("db.system", "db.system.name")
DB_VECTOR: Final = "db.vector.query.top_k"
DYNAMO_FIRST_MS: Final = "ttft_ms"
DYNAMO_INPUT: Final = "input_tokens"
DYNAMO_OUTPUT: Final = "output_tokens"
VLLM_SPAN: Final = "llm_request"
SGLANG_SCOPE: Final = "sglang server"
DYNAMO_ROOT: Final = "http-request"
LITELLM_SCOPE: Final = "litellm"

VECTOR_STORES: Final = frozenset(
    {"chroma", "pinecone", "qdrant", "weaviate", "milvus", "lancedb", "marqo", "pgvector", "vespa"}
)
CHUNK_EVENTS: Final = (
    "First Token Stream Event",  # OpenInference, once
    "llm.content.completion.chunk",  # OpenLLMetry, each chunk
    "gen_ai.content.completion.chunk",
)
"""Events at a streamed answer's chunks: the first of them is the first chunk."""
EVERY_CHUNK: Final = CHUNK_EVENTS[1:]

MODEL: Final = (
    semconv.GEN_AI_RESPONSE_MODEL, semconv.GEN_AI_REQUEST_MODEL, "llm.response.model_name",
    "llm.model_name", "llm.request.model_name", "embedding.model_name",
    "langfuse.observation.model.name", "model",
)  # fmt: skip
INPUT_TOKENS: Final = (
    semconv.GEN_AI_USAGE_INPUT_TOKENS, "gen_ai.usage.prompt_tokens", "llm.token_count.prompt",
    "llm.usage.prompt_tokens",
)  # fmt: skip
OUTPUT_TOKENS: Final = (
    semconv.GEN_AI_USAGE_OUTPUT_TOKENS, "gen_ai.usage.completion_tokens",
    "llm.token_count.completion", "llm.usage.completion_tokens",
)  # fmt: skip
CACHED_TOKENS: Final = (
    semconv.GEN_AI_USAGE_CACHE_READ, "gen_ai.usage.cache_read_input_tokens",
    "gen_ai.usage.cached_tokens", "llm.token_count.prompt_details.cache_read",
)  # fmt: skip
REASONING_TOKENS: Final = (
    semconv.GEN_AI_USAGE_REASONING, "gen_ai.usage.reasoning_tokens",
    "llm.token_count.completion_details.reasoning",
)  # fmt: skip
STREAM: Final = (semconv.GEN_AI_REQUEST_STREAM, "gen_ai.is_streaming", "llm.is_streaming")
FINISH: Final = (
    semconv.GEN_AI_RESPONSE_FINISH_REASONS, "gen_ai.response.finish_reason", "llm.finish_reason",
    "llm.response.finish_reason", "gen_ai.completion.0.finish_reason",
)  # fmt: skip
COST: Final = ("gen_ai.usage.cost", "llm.cost.total", "gen_ai.cost.total_cost")

WANTED: Final = frozenset(
    {
        semconv.RECORD_VERSION, semconv.STAGE, semconv.DIVISIBLE, semconv.SOURCE, semconv.E2E_NS,
        semconv.SOURCE_DETAIL, semconv.GEN_AI_OPERATION_NAME, semconv.GEN_AI_PROVIDER_NAME,
        semconv.GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK, semconv.ERROR_TYPE, semconv.HTTP_ROUTE,
        semconv.HTTP_RESPONSE_STATUS_CODE, semconv.ATTEMPT, "http.status_code",
        SPAN_REPAIR, GEN_AI_SYSTEM, LATENCY_QUEUE, LATENCY_PREFILL, LATENCY_DECODE,
        LATENCY_FIRST_TOKEN, LATENCY_E2E, OPENINFERENCE_KIND, TRACELOOP_KIND, LLM_REQUEST_TYPE,
        LANGFUSE_TYPE, LANGFUSE_USAGE, LANGFUSE_COST, LANGFUSE_FIRST, LANGFUSE_LEVEL, DB_VECTOR,
        DYNAMO_FIRST_MS, DYNAMO_INPUT, DYNAMO_OUTPUT, *DB_SYSTEM, *MODEL, *INPUT_TOKENS,
        *OUTPUT_TOKENS, *CACHED_TOKENS, *REASONING_TOKENS, *STREAM, *FINISH, *COST,
    }
)  # fmt: skip
"""All attributes that are read; content is never among them."""

SGLANG_STAGES: Final[Mapping[str, str]] = {
    "tokenize": "prompt", "api_server_dispatch": "prompt", "dpc_dispatch": "prompt",
    "request_process": "queue", "prefill_prepare": "queue", "prefill_bootstrap": "queue",
    "prefill_waiting": "queue", "prefill_forward": "prefill", "chunked_prefill": "prefill",
    "prefill_transfer_kv_cache": "decode", "decode_prepare": "decode",
    "decode_bootstrap": "decode", "decode_transferred": "decode", "decode_waiting": "decode",
    "decode_forward": "decode", "decode_loop": "decode", "fake_output": "decode",
}  # fmt: skip
"""SGLang's slices. Its prefill makes the first token, so all that follows is decode."""
DYNAMO_STAGES: Final[Mapping[str, str]] = {"kv_router.select_worker": "queue"}
"""Dynamo's router: a request waits there until a worker is free for it."""
