"""Runs a retrieval or a tool call as a stage of the request: stamped, limited, one span."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from opentelemetry.trace import SpanKind

from proxy.pipelines.problems import StageProblem
from proxy.request.live import LiveRequest
from proxy.request.work import StageRun
from tracer import semconv
from tracer.clock import Clock
from tracer.ids import IdSource
from tracer.spans import AttributeValue
from tracer.stages import Stage

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Trace:
    """Where a run's own callee hangs its spans."""

    trace_id: int
    span_id: int
    flags: int
    notes: dict[str, AttributeValue] = field(default_factory=dict, compare=False)
    """Attributes that the work adds to its span."""
    hints: list[str] = field(default_factory=list, compare=False)
    """What the work saw that may be why it was not done in time; no secret and no content."""

    @property
    def traceparent(self) -> str:
        """W3C Trace Context, version 00."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{self.flags:02x}"

    @contextmanager
    def timed(self, name: str, clock: Clock) -> Iterator[None]:
        """Note under ``name`` how long the work inside took, ns, also where it fails."""
        began = clock.mono_ns()
        try:
            yield
        finally:
            self.notes[name] = clock.mono_ns() - began


class Runs:
    """Starts the runs of one request."""

    def __init__(self, live: LiveRequest, clock: Clock, ids: IdSource) -> None:
        self._live = live
        self._clock = clock
        self._ids = ids

    async def retrieval(
        self, source: str, top_k: int, limit_s: float, work: Callable[[Trace], Awaitable[T]]
    ) -> T:
        """Run ``work`` as retrieval from ``source``; :class:`StageProblem` for whatever fails."""
        told: dict[str, AttributeValue] = {
            semconv.GEN_AI_OPERATION_NAME: "retrieval",
            semconv.GEN_AI_DATA_SOURCE_ID: source,
            semconv.GEN_AI_REQUEST_TOP_K: float(top_k),
        }
        run = self._begin(Stage.RETRIEVAL, f"retrieval {source}", SpanKind.CLIENT, told)
        found = await self._run(run, limit_s, work)
        if isinstance(found, list):
            run.attributes[semconv.DOCUMENTS] = len(found)
        return found

    async def tool(
        self,
        name: str,
        kind: str,
        call_id: str,
        limit_s: float,
        work: Callable[[Trace], Awaitable[str]],
    ) -> str:
        """Run ``work`` as one call of tool ``name``; :class:`StageProblem` for whatever fails."""
        told = {
            semconv.GEN_AI_OPERATION_NAME: "execute_tool",
            semconv.GEN_AI_TOOL_NAME: name,
            semconv.GEN_AI_TOOL_TYPE: kind,
            semconv.GEN_AI_TOOL_CALL_ID: call_id,
        }
        run = self._begin(Stage.TOOL, f"execute_tool {name}", SpanKind.INTERNAL, told)
        result = await self._run(run, limit_s, work)
        run.attributes[semconv.TOOL_RESULT_BYTES] = len(result.encode("utf-8", "replace"))
        return result

    def _begin(
        self, stage: Stage, name: str, kind: SpanKind, told: Mapping[str, AttributeValue]
    ) -> StageRun:
        run = StageRun(stage, name, self._ids.span_id(), self._clock.mono_ns(), kind=kind)
        run.attributes.update(told)
        self._live.runs.append(run)
        return run

    async def _run(
        self, run: StageRun, limit_s: float, work: Callable[[Trace], Awaitable[T]]
    ) -> T:
        trace = Trace(self._live.trace_id, run.span_id, self._live.trace_flags)
        try:
            async with asyncio.timeout(limit_s) as limit:
                return await work(trace)
        except asyncio.CancelledError:
            run.error_type = "cancelled"
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # nobody cancelled the request: a task that the work waited for was cancelled
            raise StageProblem("cancelled", "it cancelled itself") from None
        except StageProblem as problem:
            run.error_type = problem.kind
            raise
        except TimeoutError:
            run.error_type = "timeout"
            if limit.expired():
                told = "; ".join([f"no result within {limit_s:g} s", *trace.hints])
                raise StageProblem("timeout", told) from None
            raise StageProblem("timeout", "it timed out by itself") from None
        except Exception as problem:  # noqa: BLE001  a stranger's code raises anything
            run.error_type = type(problem).__name__
            raise StageProblem(run.error_type, f"it failed: {type(problem).__name__}") from None
        finally:
            run.end_mono_ns = self._clock.mono_ns()
            run.attributes.update(trace.notes)
