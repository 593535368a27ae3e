"""The current span's ``traceparent`` in what goes out, and the caller's in what comes in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any, TypeVar

from opentelemetry import context as otel_context
from opentelemetry import propagate

C = TypeVar("C")


def inject(headers: MutableMapping[str, str]) -> MutableMapping[str, str]:
    """Add ``traceparent`` and ``tracestate`` of the current span to outgoing ``headers``."""
    propagate.inject(headers)
    return headers


@contextmanager
def continue_from(headers: Mapping[str, str]) -> Iterator[None]:
    """Spans inside belong to the trace that ``headers`` name: a message's, a job's, a process's.

    The outermost task inside has a record of its own.
    """
    token = otel_context.attach(propagate.extract(headers, otel_context.Context()))
    try:
        yield
    finally:
        otel_context.detach(token)


def propagating(client: C) -> C:
    """``client`` itself, which from now on sends ``traceparent`` of the span it is called in.

    Takes ``httpx.Client`` and ``httpx.AsyncClient``, ``requests.Session``,
    ``aiohttp.ClientSession``, and the clients of ``openai`` and ``anthropic``.

    Raises:
        TypeError: a client of another kind; give :func:`inject` its headers instead.
    """
    at: Any = client
    if hasattr(at, "_client") and hasattr(getattr(at, "_client", None), "event_hooks"):
        at = at._client  # noqa: SLF001  openai's and anthropic's hold an httpx client
    if hasattr(at, "event_hooks"):
        _httpx(at)
    elif isinstance(getattr(at, "trace_configs", None), list):
        _aiohttp(at)
    elif hasattr(at, "get_adapter") and hasattr(at, "send"):
        _requests(at)
    else:
        kind = f"{type(client).__module__}.{type(client).__qualname__}"
        raise TypeError(
            f"a {kind} cannot be made to send traceparent: use tracer.inject on its headers"
        )
    return client


def _httpx(client: Any) -> None:
    hook = _httpx_async_hook if hasattr(client, "aclose") else _httpx_hook
    hooks = client.event_hooks
    if hook not in hooks["request"]:
        client.event_hooks = {**hooks, "request": [*hooks["request"], hook]}


def _httpx_hook(request: Any) -> None:
    propagate.inject(request.headers)


async def _httpx_async_hook(request: Any) -> None:
    propagate.inject(request.headers)


def _requests(session: Any) -> None:
    if getattr(session.send, "_stagelens", False):
        return
    send = session.send

    def traced(request: Any, **more: Any) -> Any:
        propagate.inject(request.headers)
        return send(request, **more)

    traced._stagelens = True  # type: ignore[attr-defined]  # noqa: SLF001
    session.send = traced


def _aiohttp(session: Any) -> None:
    import aiohttp  # the session is of it, so it is there

    async def started(_session: Any, _told: Any, params: Any) -> None:
        propagate.inject(params.headers)

    if any(getattr(one, "_stagelens", False) for one in session.trace_configs):
        return
    added = aiohttp.TraceConfig()
    added.on_request_start.append(started)
    added._stagelens = True  # type: ignore[attr-defined]  # noqa: SLF001
    added.freeze()
    session.trace_configs.append(added)
