"""Takes the usage chunk that only the proxy asked for out of a stream again."""

from __future__ import annotations

import json
import re

_USAGE = re.compile(rb'"usage"\s*:\s*\{')
_LINE_END = re.compile(rb"[\r\n]")
HOLD_LIMIT = 64 * 1024


class UsageCutter:
    """Passes all bytes but those of events that are a usage chunk without choices.

    An event is held back until it is whole (a server writes one in one piece, so
    nothing waits); one longer than ``HOLD_LIMIT`` is no usage chunk and passes.
    """

    def __init__(self) -> None:
        self._held = bytearray()
        self._line_empty = True
        self._passing = False
        self._last_cr = False
        self._eat_lf = False
        self.cut = 0

    def passes(self, chunk: bytes) -> bool:
        """Nothing is held back, and ``chunk`` is whole events without a word of usage."""
        return (
            not (self._held or self._passing or self._last_cr)
            and chunk.endswith(b"\n\n")
            and not _USAGE.search(chunk)
        )

    def feed(self, chunk: bytes) -> bytes:
        """The bytes that may go to the client now."""
        if self.passes(chunk):
            return chunk
        out = bytearray()
        at = 0
        for found in _LINE_END.finditer(chunk):
            self._text(chunk[at : found.start()], out)
            self._line_end(found.group(), out)
            at = found.end()
        self._text(chunk[at:], out)
        return bytes(out)

    def _text(self, text: bytes, out: bytearray) -> None:
        if text:
            self._last_cr = self._eat_lf = self._line_empty = False
            self._keep(text, out)

    def _line_end(self, byte: bytes, out: bytearray) -> None:
        if self._last_cr and byte == b"\n":
            self._after_cr(out)
            return
        self._last_cr, self._eat_lf = byte == b"\r", False
        end, self._line_empty = self._line_empty, True
        self._keep(byte, out)
        if end:
            self._end_event(out)

    def _after_cr(self, out: bytearray) -> None:
        """The LF of a CRLF belongs to the event whose CR came before."""
        self._last_cr = False
        if self._eat_lf:
            self._eat_lf = False
        elif self._held:
            self._held += b"\n"
        else:
            out += b"\n"

    def _keep(self, part: bytes, out: bytearray) -> None:
        self._held += part
        if len(self._held) > HOLD_LIMIT:
            self._passing = True
        if self._passing:
            out += self._held
            self._held.clear()

    def _end_event(self, out: bytearray) -> None:
        if not self._passing and is_usage_chunk(bytes(self._held)):
            self.cut += 1
            self._eat_lf = self._last_cr
        else:
            out += self._held
        self._held.clear()
        self._passing = False

    def flush(self) -> bytes:
        """What is left at the end of the stream; a usage chunk without its blank line is one too."""
        left = bytes(self._held)
        self._held.clear()
        return b"" if is_usage_chunk(left) else left


def is_usage_chunk(event: bytes) -> bool:
    """An event whose data is an object with usage and an empty list of choices."""
    if not _USAGE.search(event):
        return False
    lines = event.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    data = b"\n".join(line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:"))
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        return False
    return isinstance(body, dict) and body.get("choices") == [] and bool(body.get("usage"))
