"""The decorators: bare, with arguments, or as context managers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, overload

from opentelemetry import context as otel_context
from opentelemetry.trace import SpanKind

from tracer import semconv
from tracer.sdk.arguments import whole
from tracer.sdk.content import note_content, note_documents
from tracer.sdk.items import usage_of
from tracer.sdk.kinds import is_plain
from tracer.sdk.live import Live, Spec
from tracer.sdk.runtime import Runtime, active
from tracer.sdk.sizes import size_of
from tracer.sdk.wrap import Begin, Finish, span_name, wrap
from tracer.stages import Stage

P = ParamSpec("P")
R = TypeVar("R")


class Instrument:
    """One use of a decorator: call it with a function, or enter it as a context manager."""

    def __init__(self, spec: Spec, begin: Begin, finish: Finish) -> None:
        self._spec = replace(spec, span_name=span_name(spec, None))
        self._begin, self._finish = begin, finish
        self._entered: list[tuple[Live, Any]] = []

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        made: Callable[P, R] = wrap(function, self._spec, self._begin, self._finish)
        return made

    def __enter__(self) -> Live | None:
        runtime = active()
        if runtime is None:
            return None
        try:
            live = Live(runtime, self._spec, self._spec.span_name)
            told = _given_name(self._spec)
            if told:
                live.span.set_attributes(told)
        except Exception:  # noqa: BLE001  telemetry never breaks the application
            runtime.lose()
            return None
        self._entered.append((live, live.enter()))
        return live

    def __exit__(
        self, _k: type[BaseException] | None, problem: BaseException | None, _t: TracebackType | None
    ) -> None:
        found = self._left()
        if found is not None:
            live, token = found
            if live.is_around(otel_context.get_current()):
                live.leave(token)
            live.end(problem)

    def _left(self) -> tuple[Live, Any] | None:
        """The one that is left: the current one, for threads and tasks may share this object."""
        current = otel_context.get_current()
        for n in range(len(self._entered) - 1, -1, -1):
            if self._entered[n][0].context is current:
                return self._entered.pop(n)
        return self._entered.pop() if self._entered else None

    async def __aenter__(self) -> Live | None:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, at: TracebackType | None
    ) -> None:
        self.__exit__(kind, problem, at)


def _given_name(spec: Spec) -> dict[str, Any]:
    """The tool's name, where no function has one."""
    return {semconv.GEN_AI_TOOL_NAME: spec.name} if spec.operation == "execute_tool" else {}


def _begun(
    runtime: Runtime, spec: Spec, _f: Any, _a: tuple[Any, ...], _k: dict[str, Any]
) -> Live:
    return Live(runtime, spec, spec.span_name)


def _nothing(_live: Live, _result: Any) -> None:
    return


def _use(given: Any, made: Instrument) -> Any:
    """``@decorator`` bare, or ``@decorator(…)`` and ``with decorator(…)``."""
    if callable(given) or isinstance(given, classmethod | staticmethod):
        return made(given)
    if not isinstance(given, str | None):
        raise TypeError(
            f"a {type(given).__name__} cannot be decorated: decorate a function or a method, or give a name"
        )
    return made


def _text(given: Any) -> str:
    return given if isinstance(given, str) else ""


@overload
def trace(name: Callable[P, R]) -> Callable[P, R]: ...
@overload
def trace(name: str = "") -> Instrument: ...
def trace(name: Any = "") -> Any:
    """A task of the application. The outermost one has the record: stages that add up.

    A stream it gives stops the first-token clock with its first item.
    """
    spec = Spec(root=True, name=_text(name), output=semconv.GEN_AI_OUTPUT_MESSAGES)
    return _use(name, Instrument(spec, _begun, _nothing))


def stage(name: str) -> Instrument:
    """A part of a task, by name; ``prompt``, ``retrieval`` and ``tool`` are stages by name."""
    if not isinstance(name, str):
        raise TypeError(f"a stage's name is a text, not {type(name).__name__}: stage(\"prompt\")")
    known = Stage(name) if name in Stage.__members__.values() else None
    return Instrument(Spec(stage=known, name=name), _begun, _nothing)


@overload
def retrieval(data_source: Callable[P, R]) -> Callable[P, R]: ...
@overload
def retrieval(data_source: str = "", *, top_k: int | None = None) -> Instrument: ...
def retrieval(data_source: Any = "", *, top_k: int | None = None) -> Any:
    """A search: how many documents, their ids and scores; ``k`` or ``top_k`` of the call."""
    told = {semconv.GEN_AI_DATA_SOURCE_ID: data_source} if isinstance(data_source, str) else {}
    spec = Spec("retrieval", Stage.RETRIEVAL, SpanKind.CLIENT, name=_text(data_source),
                attributes={k: v for k, v in told.items() if v})  # fmt: skip

    def begin(runtime: Runtime, spec: Spec, function: Any, args: Any, kwargs: Any) -> Live:
        live = _begun(runtime, spec, function, args, kwargs)
        if not live.span.is_recording():
            return live
        given = spec.arguments.named(args, kwargs)
        usual = spec.arguments.parameters.count
        most = whole(top_k if top_k is not None else given.get("top_k", given.get("k", usual)))
        if most is not None:
            live.span.set_attribute(semconv.GEN_AI_REQUEST_TOP_K, float(most))
        note_content(runtime, live.span, semconv.GEN_AI_RETRIEVAL_QUERY,
                     given.get("query", next(iter(given.values()), "")))  # fmt: skip
        return live

    def finish(live: Live, result: Any) -> None:
        if live.span.is_recording():
            note_documents(live.runtime, live.span, result)

    return _use(data_source, Instrument(spec, begin, finish))


@overload
def tool(name: Callable[P, R]) -> Callable[P, R]: ...
@overload
def tool(name: str = "", *, call_id: str = "") -> Instrument: ...
def tool(name: Any = "", *, call_id: str = "") -> Any:
    """A tool's call: its name and id, and how long its arguments and result are."""
    told: dict[str, Any] = {semconv.GEN_AI_TOOL_TYPE: "function"}
    if call_id:
        told[semconv.GEN_AI_TOOL_CALL_ID] = str(call_id)
    spec = Spec("execute_tool", Stage.TOOL, name=_text(name), attributes=told,
                output=semconv.GEN_AI_TOOL_RESULT, named=semconv.GEN_AI_TOOL_NAME)  # fmt: skip

    def begin(runtime: Runtime, spec: Spec, _f: Any, args: Any, kwargs: Any) -> Live:
        size = spec.arguments.size(args, kwargs)
        more = {semconv.ARGUMENTS_SIZE: size} if size is not None else None
        live = Live(runtime, spec, spec.span_name, None, more)
        if runtime.capture_content:
            given = spec.arguments.named(args, kwargs)
            note_content(runtime, live.span, semconv.GEN_AI_TOOL_ARGUMENTS, given)
        return live

    def finish(live: Live, result: Any) -> None:
        if (size := size_of(result)) is not None:
            live.told[semconv.RESULT_SIZE] = size
        if live.runtime.capture_content:
            note_content(live.runtime, live.span, semconv.GEN_AI_TOOL_RESULT, result)

    return _use(name, Instrument(spec, begin, finish))


def _model_call(operation: str, given: Any, stage_: Stage | None) -> Any:
    model = _text(given)
    told = {semconv.GEN_AI_REQUEST_MODEL: model} if model else {}
    spec = Spec(
        operation, stage_, SpanKind.CLIENT, from_first_item=True, name=model, attributes=told,
        output=semconv.GEN_AI_OUTPUT_MESSAGES,
    )  # fmt: skip
    return _use(given, Instrument(spec, _model_begun, _model_answered))


def _model_begun(runtime: Runtime, spec: Spec, function: Any, args: Any, kwargs: Any) -> Live:
    live = _begun(runtime, spec, function, args, kwargs)
    if runtime.capture_content:
        given = spec.arguments.named(args, kwargs)
        asked = given.get("messages", given.get("prompt", next(iter(given.values()), "")))
        note_content(runtime, live.span, semconv.GEN_AI_INPUT_MESSAGES, asked)
    return live


def _model_answered(live: Live, result: Any) -> None:
    if type(result) is str:
        note_content(live.runtime, live.span, semconv.GEN_AI_OUTPUT_MESSAGES, result)
    elif not is_plain(result) or type(result) is dict:
        live.told.update(usage_of(result))


@overload
def llm(model: Callable[P, R]) -> Callable[P, R]: ...
@overload
def llm(model: str = "") -> Instrument: ...
def llm(model: Any = "") -> Any:
    """A model's call. Of a stream: first and last item and the gaps between; the time from
    the first item on is ``decode``, and nobody divides what lies before it.
    """
    return _model_call("chat", model, Stage.DECODE)


@overload
def embedding(model: Callable[P, R]) -> Callable[P, R]: ...
@overload
def embedding(model: str = "") -> Instrument: ...
def embedding(model: Any = "") -> Any:
    """An embedding model's call; part of the retrieval around it where there is one."""
    return _model_call("embeddings", model, None)


@overload
def rerank(model: Callable[P, R]) -> Callable[P, R]: ...
@overload
def rerank(model: str = "") -> Instrument: ...
def rerank(model: Any = "") -> Any:
    """Reordering of documents; the conventions have no such operation, it is a retrieval."""
    spec = Spec("", Stage.RETRIEVAL, SpanKind.CLIENT, name=_text(model) or "rerank")
    return _use(model, Instrument(spec, _begun, _nothing))


@overload
def agent(name: Callable[P, R]) -> Callable[P, R]: ...
@overload
def agent(name: str = "") -> Instrument: ...
def agent(name: Any = "") -> Any:
    """An agent's run; the outermost one has the record, as with :func:`trace`."""
    told = {semconv.GEN_AI_AGENT_NAME: name} if isinstance(name, str) and name else {}
    spec = Spec("invoke_agent", root=True, name=_text(name), attributes=told,
                output=semconv.GEN_AI_OUTPUT_MESSAGES)  # fmt: skip
    return _use(name, Instrument(spec, _begun, _nothing))
