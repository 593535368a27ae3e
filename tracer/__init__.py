"""The words and the SDK: stages, names, clocks, spans, decorators. Imports none of the others."""

from tracer.sdk.decorators import agent, embedding, llm, rerank, retrieval, stage, tool, trace
from tracer.sdk.runtime import configure, losses, shutdown
from tracer.sdk.threads import ThreadPoolExecutor, inject, run_in_thread

__all__ = [
    "ThreadPoolExecutor",
    "agent",
    "configure",
    "embedding",
    "inject",
    "llm",
    "losses",
    "rerank",
    "retrieval",
    "run_in_thread",
    "shutdown",
    "stage",
    "tool",
    "trace",
]
