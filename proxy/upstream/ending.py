"""Ending a client's connection so that the client learns what it must."""

from __future__ import annotations

import asyncio
import contextlib

from proxy.middleware import Receive, Scope
from proxy.protocol import EXTENSION

CLOSE_WAIT_S = 5.0
"""How long a slow client may take what is already written when its stream is broken off."""
DRAIN_BYTES = 1024 * 1024
DRAIN_S = 0.5


async def drain(receive: Receive) -> bool:
    """Read on for a moment, and whether the body ended; bounded in bytes and in time.

    A connection closed while its client still sends is reset, and the reset takes
    the answer with it.
    """
    size = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_S):
            while size < DRAIN_BYTES:
                message = await receive()
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return bool(message["type"] != "http.disconnect")
                size += len(message.get("body", b""))
    return False


async def break_off(scope: Scope, receive: Receive) -> None:
    """Close the client's connection without the response's end, so that it can tell."""
    marks = scope.get("extensions", {}).get(EXTENSION)
    if marks is None:
        return
    marks.close()
    try:
        async with asyncio.timeout(CLOSE_WAIT_S):
            while (await receive())["type"] != "http.disconnect":
                pass
    except TimeoutError:
        marks.abort()
