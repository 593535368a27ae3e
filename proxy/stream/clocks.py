"""The three first-token clocks of a streamed answer, read off the bytes as they leave."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Protocol

from proxy.stream.sse import SseReader
from proxy.upstream.dialects import Answer, read_event

_WORTH_READING = re.compile(
    rb'"error"|\[DONE\]|"(?:finish|stop)_reason" ?: ?"|"message_stop"|"response\.[a-z]+ed"'
)
"""What may still tell something once the clocks have stopped."""


class Clocks(Protocol):
    """The first-token clocks of one answer and what it said of its end.

    ``complete``: the answer said that it is whole, so that a client that leaves
    before the connection's last byte has missed nothing. ``finish``: why each choice
    ended, as the client was told.
    """

    first_chunk_mono_ns: int | None
    first_token_mono_ns: int | None
    first_answer_mono_ns: int | None
    error: str | None

    @property
    def complete(self) -> bool: ...

    @property
    def finish(self) -> Mapping[int, str]: ...

    def note(self, body: bytes, mono_ns: int, tokens_so_far: int | None) -> None:
        """``body`` was taken by the client's socket at ``mono_ns``."""
        ...


class StreamClocks:
    """First chunk, first token and first answer of one stream, in ``_mono_ns`` stamps.

    ``note`` is told of each body part after the socket took it. Reading stops once
    all three clocks have stopped, except for a look at errors and ends.
    """

    def __init__(self) -> None:
        self.first_chunk_mono_ns: int | None = None
        self.first_token_mono_ns: int | None = None
        self.first_answer_mono_ns: int | None = None
        self.error: str | None = None
        self.done_seen = False
        self._finish: dict[int, str] = {}
        self._reader = SseReader()
        self._answer = Answer()

    @property
    def complete(self) -> bool:
        """Never said: an embedded handler is given time to end by itself."""
        return False

    @property
    def finish(self) -> Mapping[int, str]:
        return self._finish

    def note(self, body: bytes, mono_ns: int, tokens_so_far: int | None) -> None:
        """Read one body part.

        ``tokens_so_far`` is the number of tokens the engine has made for this
        request, where it is known: it decides whether an empty text is a token.
        """
        if not body:
            return
        if self.first_chunk_mono_ns is None:
            self.first_chunk_mono_ns = mono_ns
        if self.first_answer_mono_ns is not None and not _WORTH_READING.search(body):
            return
        for event in self._reader.feed(body):
            self._event(event.data, mono_ns, tokens_so_far)

    def _event(self, data: bytes, mono_ns: int, tokens_so_far: int | None) -> None:
        facts = read_event(data, self._answer)
        self.done_seen = self.done_seen or facts.done
        self._finish.update(facts.finish)
        if facts.error is not None and self.error is None:
            self.error = facts.error
        for _, said in facts.choices:
            blank_token = said.blank and bool(tokens_so_far)
            if self.first_token_mono_ns is None and (said.token or blank_token):
                self.first_token_mono_ns = mono_ns
            if self.first_answer_mono_ns is None and said.answer:
                self.first_answer_mono_ns = mono_ns
