"""Tools of an MCP server, by the official client, over stdio or streamable HTTP.

The session lives in a task of its own (the client's scopes must be left where they were
entered). A server that died is started again by the next call.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import mcp_types
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from opentelemetry import trace as otel_trace

from proxy.errors import ProxyError
from proxy.pipelines.callables import from_env
from proxy.pipelines.problems import StageProblem
from proxy.pipelines.runs import Trace
from proxy.pipelines.settings import McpTools
from proxy.pipelines.tools.kit import Call, ReadyTool, check_schema
from proxy.pipelines.tools.mcp_stdio import TOO_LARGE, limited_stdio
from proxy.pipelines.tools.mcp_web import WATCH, Watch, make_client

MOST_PAGES = 50
ENCODED = 16
"""Times a result's own size that its JSON may have: it is told twice, and escaped."""


class McpSource:
    """One MCP server and those of its tools that the settings name."""

    def __init__(self, settings: McpTools) -> None:
        self._settings = settings
        self._env = from_env(settings.env)
        self._headers = from_env(settings.headers_env)
        self._client: Client | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._leave = asyncio.Event()
        self._connecting = asyncio.Lock()

    @property
    def _label(self) -> str:
        return self._settings.url or self._settings.command[0]

    async def start(self) -> list[ReadyTool]:
        client = await self._connected()
        found = {tool.name: tool for tool in await _list(client)}
        if missing := [n for n in self._settings.tools if n not in found]:
            raise ProxyError(
                f"MCP server {self._label} has no tool {missing[0]}: it has "
                f"{', '.join(sorted(found)[:20]) or 'none'}"
            )
        return [check_schema(self._ready(found[name])) for name in self._settings.tools]

    async def close(self) -> None:
        self._leave.set()
        if self._keeper is not None:
            await asyncio.wait({self._keeper}, timeout=10)
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)

    def _ready(self, tool: Any) -> ReadyTool:  # noqa: ANN401  the client's own type
        given = self._settings
        return ReadyTool(
            tool.name, tool.description or "", tool.input_schema, given.timeout_s,
            given.max_result_bytes, self._call_of(tool.name), "extension",
        )  # fmt: skip

    def _call_of(self, name: str) -> Call:
        async def call(arguments: dict[str, Any], trace: Trace) -> str:
            return await self._call(name, arguments, trace)

        return call

    async def _call(self, name: str, arguments: dict[str, Any], trace: Trace) -> str:
        try:
            client = await self._connected()
        except ProxyError:  # told at the start; a call has only a kind
            raise StageProblem("server_gone", "the tool's server cannot be reached") from None
        watch = Watch()
        asking = asyncio.create_task(_ask(client, name, arguments, trace, watch))
        assert self._keeper is not None
        try:
            both: set[asyncio.Task[Any]] = {asking, self._keeper}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                raise StageProblem("server_gone", "the tool's server ended during the call")
            return await asking
        except MCPError as problem:
            if watch.too_large or problem.code == TOO_LARGE:
                raise StageProblem("result_too_large", "the tool's answer is too long") from None
            if watch.host_refused:
                raise StageProblem("host_refused", "the tool's server is not public") from None
            if problem.code == mcp_types.CONNECTION_CLOSED:
                self._leave.set()
                raise StageProblem("server_gone", "the tool's server ended during the call") from None
            raise StageProblem("tool_error", f"the tool's server refuses: {problem}"[:500]) from None
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    async def _connected(self) -> Client:
        """The session, begun again if it ended."""
        async with self._connecting:
            alive = self._keeper is not None and not self._keeper.done() and not self._leave.is_set()
            if alive and self._client is not None:
                return self._client
            if self._keeper is not None:
                await asyncio.wait({self._keeper}, timeout=10)
            self._leave = asyncio.Event()
            ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
            self._keeper = asyncio.create_task(self._keep(ready, self._leave))
            limit = self._settings.connect_timeout_s
            both: set[asyncio.Future[Any]] = {ready, self._keeper}
            await asyncio.wait(both, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            if not ready.done():
                self._keeper.cancel()
                await asyncio.gather(self._keeper, return_exceptions=True)
                raise _unreachable(self._label, f"no session within {limit:g} s")
            self._client = ready.result()
            return self._client

    async def _keep(self, ready: asyncio.Future[Client], leave: asyncio.Event) -> None:
        """Holds the session until told to leave; a failure to begin goes to ``ready``."""
        try:
            async with self._session() as client:
                ready.set_result(client)
                await leave.wait()
        except Exception as problem:  # noqa: BLE001  a stranger's server fails in any way
            if not ready.done():
                ready.set_exception(_unreachable(self._label, _root(problem)))

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[Client]:
        given = self._settings
        async with contextlib.AsyncExitStack() as stack:
            most = given.max_result_bytes * ENCODED + 65_536
            transport: Any
            if given.command:
                transport = limited_stdio(given.command, self._env, most)
            else:
                client = make_client(self._headers, most, given.private_hosts)
                http = await stack.enter_async_context(client)
                transport = streamable_http_client(
                    given.url, http_client=http, max_sse_event_size=most
                )
            yield await stack.enter_async_context(Client(transport))


async def _ask(
    client: Client, name: str, arguments: dict[str, Any], trace: Trace, watch: Watch
) -> str:
    WATCH.set(watch)
    span = otel_trace.NonRecordingSpan(
        otel_trace.SpanContext(
            trace.trace_id, trace.span_id, False, otel_trace.TraceFlags(trace.flags)
        )
    )
    with otel_trace.use_span(span):  # the client puts the current span into `_meta`
        meta = cast("mcp_types.RequestParamsMeta", {"traceparent": trace.traceparent})
        result = await client.call_tool(name, arguments, meta=meta)
    text = "\n".join(
        part.text if isinstance(part, mcp_types.TextContent) else f"[{part.type}]"
        for part in result.content
    )
    if result.is_error:
        raise StageProblem("tool_error", text[:500] or "the tool failed")
    return text


async def _list(client: Client) -> list[Any]:
    found: list[Any] = []
    cursor = None
    for _ in range(MOST_PAGES):
        page = await client.list_tools(cursor=cursor)
        found += page.tools
        cursor = page.next_cursor
        if cursor is None:
            break
    return found


def _unreachable(label: str, why: str) -> ProxyError:
    return ProxyError(f"MCP server {label} cannot be reached ({why}): check its command or URL")


def _root(problem: BaseException) -> str:
    while isinstance(problem, BaseExceptionGroup):
        problem = problem.exceptions[0]
    return type(problem).__name__
