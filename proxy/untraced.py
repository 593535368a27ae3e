"""Requests without a record: a client that leaves and the time limit end them all the same."""

from __future__ import annotations

import asyncio

from proxy.asgi import App, Message, Receive, Scope, Send
from proxy.protocol import EXTENSION, ConnectionMarks
from proxy.upstream.answers import Refusal, answer


class Untraced:
    """Wraps an application. ``abandon_after_s``: how long it may take to notice by itself."""

    def __init__(self, app: App, request_timeout_s: float | None, abandon_after_s: float) -> None:
        self._app = app
        self._request_timeout_s = request_timeout_s
        self._abandon_after_s = abandon_after_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        marks = scope.get("extensions", {}).get(EXTENSION)
        if scope["type"] != "http" or marks is None:
            await self._app(scope, receive, send)
            return
        begun = False

        async def note(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            async with asyncio.timeout(self._request_timeout_s) as limit:
                await self._until_left(marks, scope, receive, note)
        except TimeoutError:
            if not limit.expired():
                raise
            await self._end(marks, send, begun)

    async def _until_left(
        self, marks: ConnectionMarks, scope: Scope, receive: Receive, send: Send
    ) -> None:
        task = asyncio.current_task()
        assert task is not None, "ASGI applications run in a task"
        left = False

        def leave() -> None:
            nonlocal left
            left = True
            task.cancel()

        leaving: list[asyncio.TimerHandle] = []
        loop = task.get_loop()
        marks.on_lost = lambda: leaving.append(loop.call_later(self._abandon_after_s, leave))
        try:
            await self._app(scope, receive, send)
        except asyncio.CancelledError:
            if not left:
                raise
            task.uncancel()
        finally:
            marks.on_lost = None
            for timer in leaving:
                timer.cancel()

    async def _end(self, marks: ConnectionMarks, send: Send, begun: bool) -> None:
        if begun:
            marks.abort()  # nothing more reaches the client, which shall see that
            await asyncio.sleep(0)  # the server hears of it
            return
        text = (f"the request took longer than the limit of {self._request_timeout_s:g} s "
                "(--request-timeout)")  # fmt: skip
        await answer(send, Refusal(504, "timeout", text), close=True)
