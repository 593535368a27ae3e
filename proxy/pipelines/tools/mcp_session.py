"""One session with an MCP server: begun in a task of its own and shared by the calls.

The client's scopes must be left where they were entered, so a task holds the session; calls
run in their callers' tasks and are cut off when the session ends.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio
import mcp_types
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

from proxy.errors import ProxyError
from proxy.pipelines.problems import StageProblem
from proxy.pipelines.settings import McpTools
from proxy.pipelines.text import hidden, printable
from proxy.pipelines.tools.mcp_sift import Said, sifted
from proxy.pipelines.tools.mcp_stdio import limited_stdio
from proxy.pipelines.tools.mcp_web import GONE, make_client

T = TypeVar("T")
ENCODED = 16
"""Times a result's own size that its JSON may have: it is told twice, and escaped."""
_GONE = (mcp_types.CONNECTION_CLOSED, GONE)
END_S = 10.0
"""What a session gets to end in order."""


class Session:
    """Begins when it is made. A server that ended leaves a session that is not ``usable``."""

    def __init__(
        self, settings: McpTools, env: dict[str, str], headers: dict[str, str],
        before: Session | None = None,
    ) -> None:  # fmt: skip
        """``before`` is closed first: no server is started beside the one whose place it takes."""
        self._settings = settings
        self._env = env
        self._headers = headers
        self._secrets = [*env.values(), *headers.values()]
        self.said = Said()
        """What the server said besides answers."""
        self._leave = asyncio.Event()
        self._retired = False
        self._calls: set[anyio.CancelScope] = set()
        self._last_words: deque[str] = deque(maxlen=5)
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._ready.add_done_callback(_seen)
        self._keeper = asyncio.create_task(self._keep(before))

    @property
    def usable(self) -> bool:
        """Whether a call may still be tried in it."""
        return not (self._retired or self._leave.is_set() or self._keeper.done())

    @property
    def lingers(self) -> bool:
        """Whether it is retired, and calls of it go on."""
        return self._retired and not self._keeper.done()

    async def client(self) -> Client:
        """The client, once the session has begun; a caller that leaves does not end that.

        Raises:
            ProxyError: the server cannot be reached.
        """
        return await asyncio.shield(self._ready)

    async def during(self, work: Awaitable[T]) -> T:
        """What ``work`` gives.

        Raises:
            StageProblem: the session ended meanwhile.
        """
        with anyio.CancelScope() as scope:
            self._calls.add(scope)
            try:
                return await work
            finally:
                self._calls.discard(scope)
                if self._retired and not self._calls:
                    self.leave()
        raise StageProblem("server_gone", "the tool's server ended during the call")

    def leave(self) -> None:
        """End it soon: the next call begins another one."""
        self._leave.set()

    def retire(self) -> None:
        """Begin no call in it any more, and end it with the last that runs: a server may refuse one
        call's session and still answer those that it began to.
        """
        self._retired = True
        if not self._calls:
            self.leave()

    async def close(self) -> None:
        """End it and wait for that."""
        self.leave()
        try:
            if self._ready.done():
                await asyncio.wait({self._keeper}, timeout=END_S)
        finally:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)

    async def _keep(self, before: Session | None) -> None:
        """Holds the session until told to leave; a failure to begin goes to ``_ready``."""
        if before is not None:
            await before.close()
        limit = self._settings.connect_timeout_s
        why, answers = "it was closed", False
        try:
            async with asyncio.timeout(limit) as within, self._open() as client:
                within.reschedule(None)
                self._ready.set_result(client)
                await self._leave.wait()
        except TimeoutError:
            why = f"no session within {limit:g} s"
        except Exception as problem:  # noqa: BLE001  a stranger's server fails in any way
            root = _root(problem)
            why = hidden(printable(_words(root)), self._secrets)
            answers = isinstance(root, MCPError) and root.code not in _GONE
        finally:
            for scope in list(self._calls):
                scope.cancel()
            if not self._ready.done():
                said = next((line for line in reversed(self._last_words) if line), "")
                said = hidden(printable(said), self._secrets)
                why += f"; it said: {said}" if said else ""
                why += f"; {strays(self.said.strays)}" if self.said.strays else ""
                self._ready.set_exception(unreachable(self._settings, why, answers=answers))

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Client]:
        given = self._settings
        most = given.max_result_bytes * ENCODED + 65_536
        async with contextlib.AsyncExitStack() as stack:
            transport: Any
            if given.command:
                transport = limited_stdio(
                    given.command, self._env, most, self.leave, self._last_words, self.said
                )
            else:
                client = make_client(self._headers, most, given.private_hosts)
                http = await stack.enter_async_context(client)
                transport = streamable_http_client(
                    given.url, http_client=http, max_sse_event_size=most
                )
            yield await stack.enter_async_context(Client(sifted(transport, self.said)))


def label(settings: McpTools) -> str:
    """What the server is called in messages: its URL without the query, where some want a key."""
    return settings.url.partition("?")[0] or settings.command[0]


def unreachable(settings: McpTools, why: str, *, answers: bool = False) -> ProxyError:
    """The sentence for a server that gives no session; ``answers``: it is there, and refuses one."""
    what = "begins no session as the protocol has it" if answers else "cannot be reached"
    return ProxyError(f"MCP server {label(settings)} {what} ({why}): check its command or URL")


def strays(count: int) -> str:
    """What is told of ``count`` lines or events that nobody could read."""
    return f"its output had {count} lines or events that are no messages of the protocol"


def _seen(ready: asyncio.Future[Client]) -> None:
    """A failure that nobody waits for any more is no fault of the program."""
    if not ready.cancelled():
        ready.exception()


def _root(problem: BaseException) -> BaseException:
    while isinstance(problem, BaseExceptionGroup):
        problem = problem.exceptions[0]
    return problem


def _words(problem: BaseException) -> str:
    if not isinstance(problem, MCPError):
        return type(problem).__name__
    return f"its answer: {problem}"[:200]
