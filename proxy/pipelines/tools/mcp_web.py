"""HTTP for MCP servers: no answer longer than allowed, no name that leads to a hidden host.

The MCP client takes any transport of its HTTP client. This one is aiohttp, as for all else
that pipelines ask: one write for a request, a parser in C, names resolved under our eyes.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Collection
from contextvars import ContextVar
from dataclasses import dataclass

import aiohttp
import httpx2
from yarl import URL

from proxy.pipelines.problems import StageProblem
from proxy.pipelines.web import KEPT_S, REDIRECTS, PublicResolver

CONNECT_S = 30.0
READ_S = 300.0
"""A server may hold a stream open; each call has a time-out of its own."""
DRAIN_S = 0.1
ASIDE_S = 10.0
MOST_ASIDE = 32
"""Messages that are sent while others go on; more are dropped."""
_SMALL = 4096
GONE = -32_091
"""The code of the error that stands for a server that could not be asked."""
_OURS = frozenset({b"host", b"content-length", b"transfer-encoding", b"connection", b"accept-encoding"})
LOOKED_AT = 4096
_UNKNOWN = re.compile(
    rb"\b(?:no valid|unknown|invalid|no such|missing|expired|terminated)\b.{0,20}\bsession"
    rb"|\bsession\b.{0,60}\b(?:unknown|not found|invalid|not valid|expired|terminated|does not exist"
    rb"|no longer)\b",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(slots=True)
class Watch:
    """What the transport saw of one call."""

    asked: bool = False
    too_large: bool = False
    refused: StageProblem | None = None
    status: int = 0
    unknown_session: bool = False
    unreached: bool = False
    """No connection was had: the server did not end during the call."""


WATCH: ContextVar[Watch | None] = ContextVar("stagelens_mcp_watch", default=None)
"""Set by a call before it asks: the client runs the call's POST in a copy of its context."""


def make_client(
    headers: dict[str, str], most_bytes: int, private_hosts: Collection[str]
) -> httpx2.AsyncClient:
    """A client for one MCP server; redirects are the MCP client's, which stays within the origin."""
    return httpx2.AsyncClient(
        headers=headers, trust_env=False, transport=_Guarded(most_bytes, private_hosts)
    )


class _Guarded(httpx2.AsyncBaseTransport):
    """Connects to the very address that was checked, and counts what answers to a POST."""

    def __init__(self, most_bytes: int, private_hosts: Collection[str]) -> None:
        self._most = most_bytes
        connector = aiohttp.TCPConnector(
            limit=0, keepalive_timeout=KEPT_S, resolver=PublicResolver([*private_hosts, "localhost"])
        )
        self._session = aiohttp.ClientSession(
            connector=connector, trust_env=False, cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False, skip_auto_headers=("User-Agent", "Accept", "Content-Type"),
            timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_S, sock_read=READ_S),
        )  # fmt: skip
        self._aside: set[asyncio.Task[None]] = set()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if _needs_no_answer(await request.aread()):
            self._send_aside(request)
            return httpx2.Response(202)
        watch = WATCH.get()
        if watch is not None:
            watch.asked = True
        try:
            return await self._ask(request, watch)
        except StageProblem as problem:
            if watch is None:
                raise httpx2.ConnectError(problem.text) from None
            watch.refused = problem
        except (aiohttp.ClientError, OSError) as problem:  # a time-out is an OSError
            if watch is None:
                raise httpx2.ConnectError(type(problem).__name__) from problem
            watch.unreached = isinstance(problem, aiohttp.ClientConnectorError)
        # An exception would end the session, and with it the calls of other requests.
        told = {"jsonrpc": "2.0", "id": None, "error": {"code": GONE, "message": "no answer"}}
        return httpx2.Response(503, content=json.dumps(told), headers={"content-type": "application/json"})

    async def _ask(self, request: httpx2.Request, watch: Watch | None) -> httpx2.Response:
        headers = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in request.headers.raw
            if name.lower() not in _OURS
        ]
        headers.append(("accept-encoding", "identity"))
        body = await request.aread()
        answer = await self._session.request(
            request.method, URL(str(request.url), encoded=True), data=body or None,
            headers=headers, allow_redirects=False,
        )  # fmt: skip
        if watch is not None:
            watch.status = answer.status
            if 300 <= answer.status < 400:
                answer.close()
                if answer.status in REDIRECTS:
                    raise StageProblem("redirect_refused", "the tool's server redirects, which is refused")
                raise StageProblem(str(answer.status), f"the tool's server answered {answer.status}")
        in_session = watch is not None and "mcp-session-id" in request.headers
        if watch is not None and in_session and answer.status == 404:
            watch.unknown_session = True
        if answer.headers.get("content-encoding", "identity").lower() != "identity":
            answer.close()
            raise StageProblem("bad_answer", "the server packs its answer, unasked")
        most = self._most if request.method == "POST" else None
        if watch is not None and in_session and answer.status == 400:
            data = await httpx2.Response(400, stream=_Body(answer, most)).aread()
            watch.unknown_session = _says_unknown(data)
            return httpx2.Response(400, headers={"content-type": answer.content_type}, content=data)
        return httpx2.Response(
            answer.status, headers=list(answer.raw_headers), stream=_Body(answer, most)
        )

    def _send_aside(self, request: httpx2.Request) -> None:
        """Without waiting: the client sends one message after the other, and a server that is slow
        to take this one would hold up the calls of other requests.
        """
        if len(self._aside) < MOST_ASIDE:
            task = asyncio.create_task(self._send(request))
            self._aside.add(task)
            task.add_done_callback(self._aside.discard)

    async def _send(self, request: httpx2.Request) -> None:
        try:
            async with asyncio.timeout(ASIDE_S):
                await (await self._ask(request, None)).aclose()
        except (StageProblem, httpx2.HTTPError, aiohttp.ClientError, OSError):
            pass  # nobody waits for it

    async def aclose(self) -> None:
        for task in (left := list(self._aside)):
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self._session.close()


def _needs_no_answer(body: bytes) -> bool:
    """Whether a message says that a call was given up, or answers the server; they are short."""
    if not 0 < len(body) <= _SMALL:
        return False
    try:
        told = json.loads(body)
    except ValueError:
        return False
    if not isinstance(told, dict):
        return False
    return told.get("method") == "notifications/cancelled" or bool({"result", "error"} & told.keys())


def _says_unknown(data: bytes) -> bool:
    """Whether a 400 says that there is no such session, which some servers do in place of 404.

    Not if it answers the call by its id, which only one that ran would be.
    """
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        message = None
    if isinstance(message, dict) and message.get("id") is not None:
        return False
    return _UNKNOWN.search(data[:LOOKED_AT]) is not None


class _Body(httpx2.AsyncByteStream):
    """An answer's bytes, at most ``most`` of them."""

    def __init__(self, answer: aiohttp.ClientResponse, most: int | None) -> None:
        self._answer = answer
        self._most = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        try:
            async for part in self._answer.content.iter_any():
                size += len(part)
                if self._most is not None and size > self._most:
                    if (watch := WATCH.get()) is not None:
                        watch.too_large = True
                    raise httpx2.StreamError(f"the answer is longer than {self._most} bytes")
                yield part
        except (aiohttp.ClientError, OSError) as problem:
            raise httpx2.ReadError(type(problem).__name__) from problem

    async def aclose(self) -> None:
        """Let the connection be used again where the rest of the answer comes at once."""
        try:
            if self._most is not None and not self._answer.content.at_eof():
                async with asyncio.timeout(DRAIN_S):
                    await self._answer.content.read(1)
        except (TimeoutError, aiohttp.ClientError, OSError):
            pass
        finally:
            self._answer.release()
