"""What a span of any tool stands for, in our words.

The first rule that fits decides (docs/ingest.md has the table): our own stage, the GenAI
operation, OpenInference, OpenLLMetry, Langfuse, an engine's own span, older GenAI spans,
calls to vector stores. All else is ``other`` and gives its time to what is in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from collectors.normalise import names
from collectors.normalise.span import Span
from tracer import semconv
from tracer.stages import Stage


class Kind(StrEnum):
    """What a span stands for."""

    RECORD = "record"  # a root of ours, which has its row already
    STAGE = "stage"  # a stage that its sender named in our words
    ENGINE = "engine"  # an inference engine's own span of one call
    LLM = "llm"
    EMBEDDING = "embedding"
    RETRIEVAL = "retrieval"
    TOOL = "tool"
    PROMPT = "prompt"
    OTHER = "other"


STAGES = frozenset(str(stage) for stage in Stage)
MODEL_CALLS = frozenset({Kind.LLM, Kind.ENGINE, Kind.EMBEDDING})
OPERATIONS: Mapping[str, Kind] = {
    "chat": Kind.LLM, "text_completion": Kind.LLM, "generate_content": Kind.LLM,
    "embeddings": Kind.EMBEDDING, "retrieval": Kind.RETRIEVAL, "search_memory": Kind.RETRIEVAL,
    "rerank": Kind.RETRIEVAL, "execute_tool": Kind.TOOL, "invoke_agent": Kind.OTHER,
    "create_agent": Kind.OTHER, "plan": Kind.OTHER, "invoke_workflow": Kind.OTHER,
}  # fmt: skip
OPENINFERENCE: Mapping[str, Kind] = {
    "LLM": Kind.LLM, "EMBEDDING": Kind.EMBEDDING, "RETRIEVER": Kind.RETRIEVAL,
    "RERANKER": Kind.RETRIEVAL, "TOOL": Kind.TOOL, "PROMPT": Kind.PROMPT,
}  # fmt: skip
LLM_TYPES: Mapping[str, Kind] = {
    "chat": Kind.LLM, "completion": Kind.LLM, "embedding": Kind.EMBEDDING,
    "rerank": Kind.RETRIEVAL,
}  # fmt: skip
LANGFUSE: Mapping[str, Kind] = {
    "generation": Kind.LLM, "embedding": Kind.EMBEDDING, "retriever": Kind.RETRIEVAL,
    "tool": Kind.TOOL,
}  # fmt: skip


def kind_of(span: Span) -> Kind:
    """The kind by the first rule that fits."""
    told = span.attributes
    if semconv.RECORD_VERSION in told:
        return Kind.RECORD
    if told.get(semconv.STAGE) in STAGES:
        return Kind.STAGE
    if operation := told.get(semconv.GEN_AI_OPERATION_NAME):
        return OPERATIONS.get(operation, Kind.OTHER)
    if openinference := told.get(names.OPENINFERENCE_KIND):
        return OPENINFERENCE.get(openinference.upper(), Kind.OTHER)
    for found in (_openllmetry(told), LANGFUSE.get(told.get(names.LANGFUSE_TYPE, ""))):
        if found is not None:
            return found
    return _unnamed(span)


def _openllmetry(told: Mapping[str, str]) -> Kind | None:
    kind = told.get(names.TRACELOOP_KIND, "unknown")
    if kind == "tool":
        return Kind.TOOL
    if kind != "unknown":
        return Kind.OTHER
    return LLM_TYPES.get(told.get(names.LLM_REQUEST_TYPE, ""))


def _unnamed(span: Span) -> Kind:
    """Spans without a word of any convention for what they are."""
    told = span.attributes
    if stage_by_name(span) is not None:
        return Kind.STAGE
    if span.name == names.VLLM_SPAN or any(key.startswith("gen_ai.latency.") for key in told):
        return Kind.ENGINE
    if span.name == names.DYNAMO_ROOT and names.DYNAMO_OUTPUT in told:
        return Kind.LLM
    called = semconv.GEN_AI_REQUEST_MODEL in told or semconv.GEN_AI_RESPONSE_MODEL in told
    if called and (names.GEN_AI_SYSTEM in told or semconv.GEN_AI_PROVIDER_NAME in told):
        return Kind.LLM
    if names.DB_VECTOR in told or span.text(names.DB_SYSTEM).lower() in names.VECTOR_STORES:
        return Kind.RETRIEVAL
    return Kind.OTHER


def stage_by_name(span: Span) -> Stage | None:
    """The stage of an engine's part that only its name tells."""
    if span.scope == names.SGLANG_SCOPE:
        found = names.SGLANG_STAGES.get(span.name)
    else:
        found = names.DYNAMO_STAGES.get(span.name)
    return Stage(found) if found else None


def stage_of(span: Span) -> Stage | None:
    """The stage of a span of kind STAGE."""
    told = span.attributes.get(semconv.STAGE)
    return Stage(told) if told in STAGES else stage_by_name(span)


def dialect_of(span: Span) -> str:
    """Whose words the span uses."""
    told = span.attributes
    marks = (
        ("openinference", names.OPENINFERENCE_KIND in told),
        ("langfuse", any(key.startswith("langfuse.") for key in told)),
        ("litellm", span.scope.startswith(names.LITELLM_SCOPE)),
        ("openllmetry", names.LLM_REQUEST_TYPE in told or names.TRACELOOP_KIND in told),
        ("sglang", span.scope == names.SGLANG_SCOPE),
        ("dynamo", span.name == names.DYNAMO_ROOT or span.name in names.DYNAMO_STAGES),
        ("vllm", span.name == names.VLLM_SPAN),
        ("gen_ai", any(key.startswith("gen_ai.") for key in told)),
    )
    return next((dialect for dialect, fits in marks if fits), "spans")
