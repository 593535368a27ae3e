"""The words and the SDK: stages, names, clocks, spans, decorators. Imports none of the others."""

from tracer.sdk.decorators import agent, embedding, llm, rerank, retrieval, stage, tool, trace
from tracer.sdk.outcomes import current_trace_id, outcome
from tracer.sdk.pools import ProcessPoolExecutor
from tracer.sdk.propagation import continue_from, inject, propagating
from tracer.sdk.runtime import configure, flush, losses, shutdown
from tracer.sdk.threads import ThreadPoolExecutor, carry, run_in_thread

__all__ = [
    "ProcessPoolExecutor",
    "ThreadPoolExecutor",
    "agent",
    "carry",
    "configure",
    "continue_from",
    "current_trace_id",
    "embedding",
    "flush",
    "inject",
    "llm",
    "losses",
    "outcome",
    "propagating",
    "rerank",
    "retrieval",
    "run_in_thread",
    "shutdown",
    "stage",
    "tool",
    "trace",
]
