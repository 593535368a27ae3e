"""Server-sent events, cut into events as bytes arrive.

Follows the HTML standard's event-stream format: lines end in LF, CRLF or a bare
CR, one leading space after the colon is dropped, colon-first lines are comments,
a blank line ends an event, one byte order mark may come first. Any split of the bytes gives the same events.
"""

from __future__ import annotations

from typing import NamedTuple

BOM = b"\xef\xbb\xbf"
EVENT_LIMIT = 16 * 1024 * 1024
"""Most bytes kept for one unfinished event; what is longer is skipped and counted."""


class SseEvent(NamedTuple):
    """One event: its type ("" if none was given) and its data lines joined by LF."""

    event: str
    data: bytes


class SseReader:
    """Feed it bytes, get whole events. It never raises and holds at most ``limit`` bytes."""

    def __init__(self, limit: int = EVENT_LIMIT) -> None:
        self._limit = limit
        self._line = bytearray()
        self._data: list[bytes] = []
        self._size = 0
        self._event = ""
        self._after_cr = False
        self._too_long = False
        self._begun = False
        self._first_line = True
        self.skipped = 0

    @property
    def lost(self) -> bool:
        """An event was too long to be kept, or is so far."""
        return self.skipped > 0 or self._too_long

    @property
    def at_rest(self) -> bool:
        """No event is begun: what comes next is read as if it came first."""
        return not (self._line or self._data or self._event or self._after_cr or self._too_long)

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """The events that ``chunk`` completes, in order."""
        if chunk.startswith(b"data: ") and self._is_whole_events(chunk):
            parts = chunk[:-2].split(b"\n\n")
            if all(part.startswith(b"data: ") and b"\n" not in part for part in parts):
                self._first_line = False
                return [SseEvent("", part[6:]) for part in parts]
        return self._feed(chunk)

    def finish(self) -> SseEvent | None:
        """The event that the end of the stream cut off before its blank line; call it once.

        By the standard it is none, but many who read line by line take it for one.
        """
        if self._line:
            self._end_line()
        return None if self._too_long else self._end_event()

    def _feed(self, chunk: bytes) -> list[SseEvent]:
        found: list[SseEvent] = []
        at = 0
        if self._after_cr and chunk:
            self._after_cr = False
            at = 1 if chunk[0] == 0x0A else 0
        end = len(chunk)
        while at < end:
            stop = _line_end(chunk, at)
            if stop < 0:
                self._keep(chunk[at:])
                break
            self._keep(chunk[at:stop])
            if (event := self._end_line()) is not None:
                found.append(event)
            at = stop + 1
            if chunk[stop] == 0x0D:
                if at == end:
                    self._after_cr = True
                elif chunk[at] == 0x0A:
                    at += 1
        return found

    def _is_whole_events(self, chunk: bytes) -> bool:
        """Nothing is begun and ``chunk`` ends with an event, in the plainest form of line ends."""
        return (
            chunk.endswith(b"\n\n")
            and len(chunk) <= self._limit
            and b"\r" not in chunk
            and self.at_rest
        )

    def _keep(self, part: bytes) -> None:
        if self._size + len(self._line) + len(part) > self._limit:
            self._too_long = True
            self._line.clear()
            self._data.clear()
            self._size = 0
            self._begun = True
        elif not self._too_long:
            self._line += part
        elif part:
            self._begun = True

    def _end_line(self) -> SseEvent | None:
        line = bytes(self._line)
        self._line.clear()
        if self._first_line:
            self._first_line = False
            line = line.removeprefix(BOM)
        if self._too_long:
            self._end_skipped_line()
            return None
        if not line:
            return self._end_event()
        self._field(line)
        return None

    def _end_skipped_line(self) -> None:
        """An over-long event is skipped up to its blank line."""
        if self._begun:
            self._begun = False
            return
        self.skipped += 1
        self._too_long = False
        self._event = ""

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if value.startswith(b" "):
            value = value[1:]
        if name == b"data":
            self._data.append(value)
            self._size += len(value)
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"error":  # llama.cpp's word for an event of that name
            self._event = "error"
            self._data.append(value)
            self._size += len(value)

    def _end_event(self) -> SseEvent | None:
        event, data = self._event, self._data
        self._event, self._data, self._size = "", [], 0
        return SseEvent(event, b"\n".join(data)) if data else None


def _line_end(chunk: bytes, at: int) -> int:
    """Index of the next CR or LF in ``chunk`` from ``at``, or -1."""
    lf = chunk.find(b"\n", at)
    cr = chunk.find(b"\r", at, lf if lf >= 0 else len(chunk))
    return cr if cr >= 0 else lf
