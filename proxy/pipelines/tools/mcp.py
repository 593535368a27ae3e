"""Tools of an MCP server, by the official client, over stdio or streamable HTTP.

A server that went is started, or asked for a session, again by the next call.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

import mcp_types
from mcp import Client, MCPError
from opentelemetry import trace as otel_trace
from pydantic import TypeAdapter, ValidationError

from proxy.errors import ProxyError
from proxy.pipelines.callables import from_env, headers_from_env
from proxy.pipelines.problems import StageProblem
from proxy.pipelines.runs import Trace
from proxy.pipelines.settings import McpTools
from proxy.pipelines.settings_values import called
from proxy.pipelines.text import as_text, hidden
from proxy.pipelines.tools.kit import Call, ReadyTool, check_schema
from proxy.pipelines.tools.mcp_session import Session, label, strays, unreachable
from proxy.pipelines.tools.mcp_stdio import TOO_LARGE
from proxy.pipelines.tools.mcp_web import GONE, WATCH, Watch

MOST_PAGES = 50
Answer = mcp_types.CallToolResult | mcp_types.InputRequiredResult
_UNREADABLE = (mcp_types.PARSE_ERROR, mcp_types.INVALID_REQUEST)
_CLOSED = ("Connection closed", "SSE stream ")
"""How the official client's own words begin for a connection that closed."""
_ANSWER: TypeAdapter[Answer] = TypeAdapter(Answer)


class McpSource:
    """One MCP server and those of its tools that the settings name."""

    def __init__(self, settings: McpTools) -> None:
        # its own log quotes what tools say, and what it could not read of that
        logging.getLogger("mcp").setLevel(logging.CRITICAL + 1)
        self._settings = settings
        self._env = from_env(settings.env)
        self._headers = headers_from_env(settings.headers_env)
        self._session: Session | None = None
        self._lingering: list[Session] = []

    async def start(self) -> list[ReadyTool]:
        listed, odd = await self._listed()
        found = {tool.name: tool for tool in listed}
        if missing := [n for n in self._settings.tools if n not in found]:
            if missing[0] in odd:
                raise ProxyError(
                    f"tool {missing[0]} of MCP server {label(self._settings)} is not told as the "
                    f"protocol has it ({odd[missing[0]]}): leave it out of `tools` or mend the server"
                )
            raise ProxyError(
                f"MCP server {label(self._settings)} has no tool {missing[0]}: it has "
                f"{', '.join(sorted(found)[:20]) or 'none'}"
            )
        return [check_schema(self._ready(found[name])) for name in self._settings.tools]

    async def close(self) -> None:
        for session in (*self._lingering, self._session):
            if session is not None:
                await session.close()

    async def _listed(self) -> tuple[list[Any], dict[str, str]]:
        """The server's tools, and what is wrong with those that cannot be used."""
        session = self._current()
        client = await session.client()
        limit = self._settings.connect_timeout_s
        try:
            async with asyncio.timeout(limit):
                return await _list(client), session.said.odd_tools
        except TimeoutError:
            why = f"no list of tools within {limit:g} s"
        except (MCPError, ValidationError) as problem:
            told = f": {problem}"[:200] if isinstance(problem, MCPError) else ""
            why = self._hidden(StageProblem("", f"no list of tools: {type(problem).__name__}{told}")).text
        raise unreachable(self._settings, why)

    def _current(self) -> Session:
        """The session that calls use now; a new one where the last one is over."""
        before = self._session
        if before is None or not before.usable:
            self._lingering = [one for one in self._lingering if one.lingers]
            if before is not None and before.lingers:
                self._lingering.append(before)
                before = None
            self._session = Session(self._settings, self._env, self._headers, before)
            return self._session
        return before

    def _ready(self, tool: Any) -> ReadyTool:  # noqa: ANN401  the client's own type
        given = self._settings
        return ReadyTool(
            called(tool.name), tool.description or "", tool.input_schema, given.timeout_s,
            given.max_result_bytes, self._call_of(tool.name), "extension",
        )  # fmt: skip

    def _call_of(self, name: str) -> Call:
        async def call(arguments: dict[str, Any], trace: Trace) -> str:
            _check_sendable(name, arguments)
            try:
                return await self._call(name, arguments, trace)
            except _SessionLost:  # the server refused it unseen: it has forgotten the session
                return await self._call(name, arguments, trace)

        return call

    async def _call(self, name: str, arguments: dict[str, Any], trace: Trace) -> str:
        session = self._current()
        try:
            client = await session.client()
        except ProxyError:  # told at the start; a call has only a kind
            raise StageProblem("server_gone", "the tool's server cannot be reached") from None
        watch = Watch()
        strays_before = session.said.strays
        try:
            return await session.during(_ask(client, name, arguments, trace, watch))
        except asyncio.CancelledError:
            if found := session.said.strays - strays_before:
                trace.hints.append(f"meanwhile {strays(found)}")
            raise
        except MCPError as problem:
            if watch.unknown_session or self._unasked(problem, watch):
                session.retire()
                raise _SessionLost from None
            raise self._hidden(_told(problem, watch)) from None
        except ValidationError:
            raise StageProblem("bad_answer", "the tool's answer is not of the protocol") from None
        except StageProblem as problem:
            raise self._hidden(problem) from None

    def _hidden(self, problem: StageProblem) -> StageProblem:
        """The problem in words that hold none of the secrets which the server was given."""
        secrets = (*self._env.values(), *self._headers.values())
        return StageProblem(problem.kind, hidden(problem.text, secrets))

    def _unasked(self, problem: MCPError, watch: Watch) -> bool:
        """Whether the call met a session that was over already, and never went out."""
        closed = problem.code == mcp_types.CONNECTION_CLOSED
        return closed and bool(self._settings.url) and not watch.asked


class _SessionLost(StageProblem):
    def __init__(self) -> None:
        super().__init__("server_gone", "the tool's server ended the session")


def _check_sendable(name: str, arguments: dict[str, Any]) -> None:
    """StageProblem where the client cannot write the call down. It finds that out with the message
    in its hands, and over HTTP ends the session by it, with the calls of other requests.
    """
    params = {"name": name, "arguments": arguments}
    try:
        mcp_types.JSONRPCRequest(
            jsonrpc="2.0", id=0, method="tools/call", params=params
        ).model_dump_json(by_alias=True, exclude_unset=True)
    except (ValueError, RecursionError):
        raise StageProblem("bad_arguments", "the arguments are too deep to be sent") from None


def _told(problem: MCPError, watch: Watch) -> StageProblem:
    """What the caller is told of an error that the client raised."""
    if watch.too_large or problem.code == TOO_LARGE:
        return StageProblem("result_too_large", "the tool's answer is too long")
    if watch.refused is not None:
        return watch.refused
    if watch.unreached:
        return StageProblem("server_gone", "the tool's server cannot be reached")
    # servers use the code of a closed connection for errors of their own
    closed = problem.code == mcp_types.CONNECTION_CLOSED and str(problem).startswith(_CLOSED)
    if closed or problem.code == GONE:
        return StageProblem("server_gone", "the tool's server ended during the call")
    if watch.status >= 400 and problem.code == mcp_types.INTERNAL_ERROR:
        return StageProblem(str(watch.status), f"the tool's server answered {watch.status}")
    if problem.code in _UNREADABLE:
        return StageProblem("bad_answer", "the tool's answer is not of the protocol")
    return StageProblem("tool_error", f"the tool's server refuses: {problem}"[:500])


async def _ask(
    client: Client, name: str, arguments: dict[str, Any], trace: Trace, watch: Watch
) -> str:
    """The call in the client's own words, one level below ``call_tool``: no check of the
    structured part against the tool's output schema, since the text is what goes on.
    """
    meta = cast("mcp_types.RequestParamsMeta", {"traceparent": trace.traceparent})
    request = mcp_types.CallToolRequest(
        params=mcp_types.CallToolRequestParams(name=name, arguments=arguments, _meta=meta)
    )
    span = otel_trace.NonRecordingSpan(
        otel_trace.SpanContext(
            trace.trace_id, trace.span_id, False, otel_trace.TraceFlags(trace.flags)
        )
    )
    token = WATCH.set(watch)
    try:
        with otel_trace.use_span(span):  # the client puts the current span into `_meta`
            try:
                result = await client.session.send_request(request, _ANSWER)
            except MCPError as problem:
                if problem.code != mcp_types.HEADER_MISMATCH:
                    raise
                result = await client.call_tool(name, arguments, meta=meta)  # lists tools anew
    finally:
        WATCH.reset(token)
    if not isinstance(result, mcp_types.CallToolResult):
        raise StageProblem("tool_error", "the tool asks a person, and here is none")
    text = _text(result)
    if result.is_error:
        raise StageProblem("tool_error", text[:500] or "the tool failed")
    return text


def _text(result: mcp_types.CallToolResult) -> str:
    """The result for the model: texts as they are, other parts by their kind."""
    if not result.content and result.structured_content is not None:
        return as_text(result.structured_content)
    return "\n".join(_part(part) for part in result.content)


def _part(part: object) -> str:
    if isinstance(part, mcp_types.TextContent):
        return part.text
    if isinstance(part, mcp_types.EmbeddedResource) and isinstance(
        part.resource, mcp_types.TextResourceContents
    ):
        return part.resource.text
    if isinstance(part, mcp_types.ResourceLink):
        return f"[resource {part.uri}]"
    return f"[{getattr(part, 'type', 'part')}]"


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
