"""The embedded vLLM engine. Everything that touches vLLM's internals is in this module.

What is relied on, and held by ``tests/contract/proxy/test_vllm_contract.py``:

* ``AsyncLLM.generate`` and ``.encode`` are async generators that vLLM's own serving
  code calls with ``request_id``; parse, validation and chat template lie before.
* ``AsyncLLM.output_processor.add_request(request, prompt, parent, index, queue)`` runs
  in the task of the request, before the engine core hears of it.
* ``AsyncLLM.engine_core.get_output_async()`` brings each engine step's
  ``EngineCoreOutputs``: its time stamp, per-request events and new tokens, and the
  scheduler's statistics. The core's stamps are ``time.monotonic()`` of this host.
"""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from proxy.engine.startup import answered
from proxy.recorder import EngineLoad
from proxy.request.call import EngineCall
from proxy.request.live import CURRENT, LiveRequest
from tracer import semconv
from tracer.clock import Clock, Tie, seconds_to_ns
from tracer.otlp import LogRecordDraft

log = logging.getLogger("stagelens.engine")

TESTED_VERSIONS = ("0.32",)
"""Minor versions whose internals the contract test was run against."""


_BEAM = re.compile(r"-beam-\d+$")
"""Ids that vLLM's beam search gives to the calls it makes of one request."""


def version_warning(version: str) -> str | None:
    """One sentence for a vLLM version that was not tested; None for a tested one."""
    if any(version == t or version.startswith(t + ".") for t in TESTED_VERSIONS):
        return None
    tested = ", ".join(f"{v}.x" for v in TESTED_VERSIONS)
    return (
        f"vLLM {version} is not one that Stagelens was tested with ({tested}): requests are "
        "served, but stage times may be missing; install a tested version to be sure"
    )


@dataclass(slots=True)
class EngineTap:
    """Listens to one ``AsyncLLM``: gives each model call its stamps, and reports steps.

    Lives in the engine client's event loop. A fault in here is counted and logged
    and never reaches the engine. ``put_step`` must not block.
    """

    clock: Clock
    put_step: Callable[[LogRecordDraft], None]
    model: str = ""
    failures: int = 0
    _bound: dict[str, tuple[EngineCall, int]] = field(default_factory=dict)
    _load: EngineLoad = field(default_factory=lambda: EngineLoad(0, 0))
    _engine: Any = None
    tie: Tie = field(init=False)

    def __post_init__(self) -> None:
        self.tie = Tie(self.clock)

    def attach(self, engine: Any) -> None:
        """Wrap the four places; do it before the engine's first request."""
        self._engine = engine
        chat, embeddings = self._wrap_call("chat"), self._wrap_call("embeddings")
        places = (
            (engine, "generate", chat),
            (engine, "encode", embeddings),
            (getattr(engine, "output_processor", None), "add_request", self._wrap_add),
            (getattr(engine, "engine_core", None), "get_output_async", self._wrap_outputs),
        )
        missing = [name for owner, name, _ in places if not hasattr(owner, name)]
        for owner, name, wrap in places:
            if name not in missing:
                setattr(owner, name, wrap(getattr(owner, name)))
        if missing:
            log.warning(
                "this vLLM has no %s where Stagelens listens: requests are served, "
                "some stage times will be missing", ", ".join(missing),
            )  # fmt: skip

    def load(self) -> EngineLoad:
        """Running and waiting requests as of the last step; both 0 when the engine is idle."""
        known = getattr(getattr(self._engine, "output_processor", None), "request_states", None)
        if known is None:
            return EngineLoad()
        return self._load if known else EngineLoad(0, 0)

    # -- the request's side ----------------------------------------------------

    def _wrap_call(self, default_operation: str) -> Callable[[Any], Any]:
        def wrap(original: Any) -> Any:
            def traced(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
                live = CURRENT.get()
                inner = original(*args, **kwargs)
                if live is None:
                    return inner  # type: ignore[no-any-return]
                return self._follow(live, inner, args, kwargs, default_operation)

            return traced

        return wrap

    async def _follow(
        self,
        live: LiveRequest,
        inner: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        default_operation: str,
    ) -> AsyncGenerator[Any, None]:
        """Pass the engine's outputs on, noting what they say; ends with the inner generator."""
        call = self._begin(live, args, kwargs, default_operation)
        try:
            async for output in inner:
                if call is not None and not call.sealed:
                    self._note(call, output)
                yield output
        except Exception as problem:
            if call is not None:
                call.error_type = type(problem).__name__
            raise
        finally:
            if call is not None:
                if not call.sealed:
                    call.ended_mono_ns = self.clock.mono_ns()
                self._unbind(call)
            await inner.aclose()

    def _begin(
        self, live: LiveRequest, args: tuple[Any, ...], kwargs: dict[str, Any], default_operation: str
    ) -> EngineCall | None:
        try:
            call = EngineCall(
                request_id=str(_argument(args, kwargs, 2, "request_id")),
                operation=live.operation or default_operation,
                handed_mono_ns=self.clock.mono_ns(),
                model=self._model_of(kwargs),
                generates=default_operation == "chat",
            )
            call.internal = _BEAM.search(call.request_id) is not None
            _note_params(call, _argument(args, kwargs, 1, "sampling_params"))
        except Exception:  # noqa: BLE001  a tap's fault must not reach the request
            self._fault()
            return None
        task = asyncio.current_task()
        call.cancel = task.cancel if task is not None else None
        live.calls.append(call)
        return call

    def _note(self, call: EngineCall, output: Any) -> None:
        try:
            _note_output(call, output)
        except Exception:  # noqa: BLE001  a tap's fault must not reach the request
            self._fault()

    def _model_of(self, kwargs: dict[str, Any]) -> str:
        adapter = getattr(kwargs.get("lora_request"), "lora_name", None)
        return str(adapter) if adapter else self.model

    def _wrap_add(self, original: Any) -> Any:
        def add_request(request: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                self._bind(request, args, kwargs)
            except Exception:  # noqa: BLE001  a tap's fault must not reach the engine
                self._fault()
            return original(request, *args, **kwargs)

        return add_request

    def _bind(self, request: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        live = CURRENT.get()
        if live is None:
            return
        outer_id = getattr(request, "external_req_id", None) or request.request_id
        calls = (c for c in reversed(live.calls) if isinstance(c, EngineCall))
        call = next((c for c in calls if c.request_id == outer_id), None)
        if call is None:
            return
        index = args[2] if len(args) > 2 else kwargs.get("request_index", 0)
        self._bound[request.request_id] = (call, int(index))
        if call.input_tokens is None and request.prompt_token_ids is not None:
            call.input_tokens = len(request.prompt_token_ids)
            call.prompt = request.prompt_token_ids

    def _unbind(self, call: EngineCall) -> None:
        for internal_id in [i for i, (c, _) in self._bound.items() if c is call]:
            del self._bound[internal_id]

    # -- the engine's side -----------------------------------------------------

    def _wrap_outputs(self, original: Any) -> Any:
        async def get_output_async() -> Any:
            outputs = await original()
            try:
                self._observe(outputs)
            except Exception:  # noqa: BLE001  a tap's fault must not reach the engine
                self._fault()
            return outputs

        return get_output_async

    def _observe(self, outputs: Any) -> None:
        ready_mono_ns = seconds_to_ns(outputs.timestamp)
        known = self._engine.output_processor.request_states
        for output in outputs.outputs:
            bound = self._bound.get(output.request_id)
            if bound is not None and not bound[0].sealed and output.request_id in known:
                _note_core_output(*bound, output, ready_mono_ns)
        if (stats := outputs.scheduler_stats) is not None:
            self._load = EngineLoad(stats.num_running_reqs, stats.num_waiting_reqs)
            self._step(stats, outputs.engine_index, ready_mono_ns)

    def _step(self, stats: Any, engine_index: int, end_mono_ns: int) -> None:
        details = getattr(stats, "iteration_details", None)
        if details is None or details.is_dummy:
            return
        duration_ns = round(details.elapsed_ms * 1e6)
        attributes: dict[str, str | bool | int | float] = {
            semconv.MODEL: self.model,
            semconv.STEP_ENGINE: engine_index,
            semconv.STEP_DURATION_NS: duration_ns,
            semconv.STEP_PREFILL_REQUESTS: details.num_ctx_requests,
            semconv.STEP_PREFILL_TOKENS: details.num_ctx_tokens,
            semconv.STEP_DECODE_REQUESTS: details.num_generation_requests,
            semconv.STEP_DECODE_TOKENS: details.num_generation_tokens,
            semconv.STEP_RUNNING: stats.num_running_reqs,
            semconv.STEP_WAITING: stats.num_waiting_reqs,
            semconv.STEP_KV_CACHE_USAGE: float(stats.kv_cache_usage),
        }
        start = self.tie.anchor().to_unix_ns(end_mono_ns - duration_ns)
        self.put_step(LogRecordDraft(semconv.EVENT_ENGINE_STEP, start, attributes))

    def _fault(self) -> None:
        self.failures += 1
        if self.failures in {1, 10, 100} or self.failures % 10_000 == 0:
            log.error(
                "engine stamps could not be read (%d times so far): %r",
                self.failures,
                sys.exc_info()[1],
            )


def _argument(args: tuple[Any, ...], kwargs: dict[str, Any], at: int, name: str) -> Any:
    return args[at] if len(args) > at else kwargs.get(name)


def _note_params(call: EngineCall, params: Any) -> None:
    call.n = int(getattr(params, "n", 1) or 1)
    most = getattr(params, "max_tokens", None)
    call.max_tokens = int(most) if most is not None else None


def _note_output(call: EngineCall, output: Any) -> None:
    """What the frontend says: finish reasons (stop strings are found there) and the end."""
    call.finished = bool(output.finished)
    choices = getattr(output, "outputs", None)
    for choice in choices if isinstance(choices, list | tuple) else ():  # an embedding has none
        reason = getattr(choice, "finish_reason", None)
        if reason is not None:
            call.finish_reasons[int(choice.index)] = str(reason)
    if call.cached_tokens is None:
        cached = getattr(output, "num_cached_tokens", None)
        call.cached_tokens = int(cached) if cached is not None else None
    if call.finished and call.queued_mono_ns is None:
        _note_metrics(call, getattr(output, "metrics", None))


def _note_metrics(call: EngineCall, metrics: Any) -> None:
    """The stamps that the answer itself carries, where the engine core's were not heard."""
    queued, scheduled, first, last = (
        getattr(metrics, name, 0.0) or 0.0
        for name in ("queued_ts", "scheduled_ts", "first_token_ts", "last_token_ts")
    )
    if not (queued and scheduled and first):
        return
    call.repairs.append("core_not_heard:stamps_of_the_answer_used")
    call.note_queued(seconds_to_ns(queued))
    call.note_scheduled(seconds_to_ns(scheduled))
    tokens = int(getattr(metrics, "num_generation_tokens", 0))
    call.note_output(0, min(1, tokens), seconds_to_ns(first))
    if tokens > 1:
        call.note_output(0, tokens - 1, seconds_to_ns(last))


def _note_core_output(call: EngineCall, index: int, output: Any, ready_mono_ns: int) -> None:
    """What the engine core says: when it queued, scheduled, preempted and produced."""
    for event in output.events or ():
        at = seconds_to_ns(event.timestamp)
        kind = event.type.name
        if kind == "QUEUED":
            call.note_queued(at)
        elif kind == "SCHEDULED":
            call.note_scheduled(at)
        elif kind == "PREEMPTED":
            call.note_preempted(at)
    call.note_output(index, len(output.new_token_ids), ready_mono_ns)


@dataclass(frozen=True, slots=True)
class EmbeddedEngine:
    """A started engine with vLLM's own OpenAI-compatible application around it."""

    app: Any
    engine: Any
    tap: EngineTap
    served_model: str

    def errored(self) -> bool:
        """Whether the engine core has died."""
        return bool(self.engine.errored)


@asynccontextmanager
async def embedded_engine(args: Any, tap: EngineTap) -> AsyncIterator[EmbeddedEngine]:
    """Start the engine for vLLM's parsed ``args`` and build its application.

    Raises whatever vLLM raises when the engine cannot start; the caller turns that
    into one sentence (:mod:`proxy.engine.startup`).
    """
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.entrypoints.launchers.api_server.app_state import init_app_state
    from vllm.entrypoints.launchers.app import build_app
    from vllm.usage.usage_lib import UsageContext
    from vllm.v1.engine.async_llm import AsyncLLM

    engine_args = AsyncEngineArgs.from_cli_args(args)
    config = engine_args.create_engine_config(usage_context=UsageContext.OPENAI_API_SERVER)
    engine = AsyncLLM.from_vllm_config(
        vllm_config=config,
        usage_context=UsageContext.OPENAI_API_SERVER,
        enable_log_requests=engine_args.enable_log_requests,
        aggregate_engine_logging=engine_args.aggregate_engine_logging,
        disable_log_stats=engine_args.disable_log_stats,
    )
    try:
        tap.model = _served_name(args)
        tap.attach(engine)
        await answered(engine, engine.reset_mm_cache())
        tasks = await answered(engine, engine.get_supported_tasks())
        app = build_app(args, tasks, engine.model_config)
        await answered(engine, init_app_state(engine, app.state, args, tasks))
        # vLLM's handler of a dead engine tells this server to stop; ours watches the engine
        app.state.server = SimpleNamespace(should_exit=False)
        yield EmbeddedEngine(app, engine, tap, tap.model)
    finally:
        engine.shutdown(timeout=config.shutdown_timeout)


def _served_name(args: Any) -> str:
    names = args.served_model_name
    return str(names[0] if isinstance(names, list) else names or args.model)
