"""A retriever whose faults are told: where they are skipped, nobody else would see them."""

from __future__ import annotations

import asyncio
import logging

from proxy.pipelines.documents import Document, Retrieves
from proxy.pipelines.problems import StageProblem
from proxy.pipelines.runs import Trace
from tracer.clock import Clock

log = logging.getLogger("stagelens.proxy")
TOLD_EVERY_S = 60
NEARLY_NS = 990_000_000
"""Of a second: the limit was set a little before the work began."""


class Watched:
    """``inner``, of whose faults a warning tells at most once in ``TOLD_EVERY_S``."""

    def __init__(self, inner: Retrieves, pipeline: str, clock: Clock) -> None:
        self.name, self.top_k = inner.name, inner.top_k
        self.timeout_s, self.skips = inner.timeout_s, inner.skips
        self._inner = inner
        self._pipeline = pipeline
        self._clock = clock
        self._next_mono_ns = 0
        self._untold = 0

    async def find(self, query: str, trace: Trace) -> list[Document]:
        began = self._clock.mono_ns()
        try:
            return await self._inner.find(query, trace)
        except StageProblem as problem:
            self._tell(problem.kind, problem.text)
            raise
        except asyncio.CancelledError:
            # the limit, which is set outside, or a client that left before it
            if self._clock.mono_ns() - began >= self.timeout_s * NEARLY_NS:
                self._tell("timeout", f"no result within {self.timeout_s:g} s")
            raise
        except Exception as problem:
            self._tell(type(problem).__name__, "it raised this")  # its text may be content
            raise

    def _tell(self, kind: str, text: str) -> None:
        now = self._clock.mono_ns()
        if now < self._next_mono_ns:
            self._untold += 1
            return
        more = f" ({self._untold} more since the last time)" if self._untold else ""
        log.warning("pipeline %s: retriever %s fails (%s): %s%s",
                    self._pipeline, self.name, kind, text, more)  # fmt: skip
        self._untold, self._next_mono_ns = 0, now + TOLD_EVERY_S * 1_000_000_000
