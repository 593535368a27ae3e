"""Bodies taken lately, so that one that is sent again is answered and not stored again.

A sender that got no answer in time sends the same bytes again (OTLP is at-least-once
by design); a collector that was slow or starting then has several copies before it.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict

from google.protobuf.message import Message

REMEMBERED = 16_384
"""Bodies remembered; at 8 a second from a proxy, half an hour of them."""


class RecentBodies:
    """Answers of the last ``limit`` taken bodies by digest. For one event loop."""

    def __init__(self, limit: int = REMEMBERED) -> None:
        self._limit = limit
        self._answers: OrderedDict[bytes, Message] = OrderedDict()

    @staticmethod
    def key(path: str, body: bytes) -> bytes:
        """What tells a body of ``path`` from others: a SHA-256 of both."""
        return hashlib.sha256(path.encode() + b"\0" + body).digest()

    def answer(self, key: bytes) -> Message | None:
        """What the same body was answered before, or None."""
        return self._answers.get(key)

    def remember(self, key: bytes, answer: Message) -> None:
        self._answers[key] = answer
        if len(self._answers) > self._limit:
            self._answers.popitem(last=False)
