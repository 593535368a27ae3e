"""An upstream's answer on its way to the client: the bytes go first, the reading after."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from proxy.middleware import Send
from proxy.protocol import ConnectionMarks, run_now
from proxy.request.live import LiveRequest
from proxy.upstream.call import UpstreamCall
from proxy.upstream.client import Response
from proxy.upstream.cutter import UsageCutter
from proxy.upstream.headers import response_headers, value_of
from proxy.upstream.http1_message import NO_BODY, BadResponse
from proxy.upstream.repeats import Proven
from proxy.upstream.tap import Tap
from proxy.upstream.usage import read_headers
from tracer.clock import Clock

TIMING_HEADERS = frozenset({
    b"server-timing", b"openai-processing-ms", b"x-envoy-upstream-service-time", b"x-queue-time",
})  # fmt: skip


class UpstreamGone(Exception):
    """The upstream's body broke off after the client had its beginning."""


class Relay:
    """Passes one response on. Made for one response, ``run`` once."""

    def __init__(
        self,
        answer: Response,
        send: Send,
        writing: ConnectionMarks | None,
        call: UpstreamCall,
        live: LiveRequest | None,
        clock: Clock,
        readable: bool,
        cut_usage: bool,
        token_limit: asyncio.Timeout,
        proven: Proven,
    ) -> None:
        self._answer = answer
        self._send = send
        self._writing = writing
        self._call = call
        self._live = live
        self._clock = clock
        self._limit: asyncio.Timeout | None = token_limit
        self._headers = answer.raw_headers
        kind = value_of(self._headers, b"content-type") or b""
        self._stream = kind.lower().startswith(b"text/event-stream")
        coding = (value_of(self._headers, b"content-encoding") or b"").decode("latin-1")
        cut = cut_usage and self._stream and coding in ("", "identity")
        self._cutter = UsageCutter() if cut else None
        must_end = call.operation not in ("", "embeddings") and answer.status < 300
        must_end = must_end and answer.status not in NO_BODY
        self._write: Callable[[bytes], object] | None = None
        self._arrived_mono_ns: int | None = None
        self.tap = Tap(call, self._stream, coding, must_end, readable, proven)
        call.stream = self._stream
        call.http_status = answer.status
        if live is not None:
            live.clocks = self.tap

    async def run(self) -> None:
        """Send head, body and end.

        Raises:
            UpstreamGone: the body broke off, or was no whole answer; the end is not sent.
        """
        self._read_timings()
        drop = {b"content-length"} if self._cutter or self._tells_no_length() else set()
        headers = response_headers(self._headers, drop)
        unframed = self._unframed(headers)
        await self._send(
            {"type": "http.response.start", "status": self._answer.status, "headers": headers}
        )
        if not self.tap.tells_tokens:
            self._stop_limit()
        whole = False
        try:
            await self._pass_body()
            whole = True
        except (ConnectionError, BadResponse):
            raise UpstreamGone from None
        finally:
            self._call.read_mono_ns = self._read_at(whole)
            self._finish(whole)
        if self.tap.broken:
            raise UpstreamGone
        if unframed:
            unframed.end_unframed()
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    def _read_at(self, whole: bool) -> int:
        """When the last byte came: of a body of a told length the end follows a turn later."""
        told = whole and value_of(self._headers, b"content-length") is not None
        return (self._arrived_mono_ns if told else None) or self._clock.mono_ns()

    def _unframed(self, headers: list[tuple[bytes, bytes]]) -> ConnectionMarks | None:
        """The client's connection where only its end can tell the body's end."""
        writing = self._writing
        if writing is None or writing.knows_chunks or self._answer.status in NO_BODY:
            return None
        if value_of(headers, b"content-length") is not None:
            return None
        writing.unframe()
        return writing

    def _tells_no_length(self) -> bool:
        """The length is of a body that does not follow: the server would wait for it."""
        none = self._answer.status in NO_BODY
        return none and value_of(self._headers, b"content-length") not in (None, b"0")

    async def _pass_body(self) -> None:
        taker = lane = None
        if self._writing is not None:
            taker = self._take
            self._write = self._writing.chunk_writer() if self._stream else None
            lane = self._take_chunks if self._write is not None else None
        async for chunk in self._answer.content.iter_any(taker, lane):
            arrived = self._clock.mono_ns()
            if passed := self._passed(chunk):
                await self._send({"type": "http.response.body", "body": passed, "more_body": True})
            self._read(chunk, arrived)
        if self._cutter is not None and (left := self._cutter.flush()):
            await self._send({"type": "http.response.body", "body": left, "more_body": True})

    def _take(self, chunk: bytes) -> bool:
        """Send and read a part where it was read from the upstream, if the client takes it at once.

        That spares a wake-up of this request's task for each token.
        """
        assert self._writing is not None
        if self._writing.writing_waits:
            return False
        arrived = self._clock.mono_ns()
        if not (passed := self._passed(chunk)):
            pass
        elif self._write is not None and self._writing.lost_mono_ns is None:
            self._write(b"%x\r\n%b\r\n" % (len(passed), passed))
        else:
            run_now(self._send({"type": "http.response.body", "body": passed, "more_body": True}))
        self._read(chunk, arrived)
        return True

    def _take_chunks(self, parts: list[bytes], chunks: bytes) -> bool:
        """As :meth:`_take`, of parts that came as whole chunks, which go on as they came.

        They go past the layers of ``send``, which would read off and write the same frame again:
        that is most of what a token costs.
        """
        write, writing = self._write, self._writing
        assert write is not None
        assert writing is not None
        if writing.writing_waits or writing.lost_mono_ns is not None:
            return False
        if self._cutter is not None and not all(map(self._cutter.passes, parts)):
            return False
        arrived = self._clock.mono_ns()
        write(chunks)
        for part in parts:
            self._read(part, arrived)
        return True

    def _passed(self, chunk: bytes) -> bytes:
        return chunk if self._cutter is None else self._cutter.feed(chunk)

    def _read(self, chunk: bytes, arrived_mono_ns: int) -> None:
        self._arrived_mono_ns = arrived_mono_ns
        self.tap.feed(chunk, arrived_mono_ns, self._clock.mono_ns())
        if self._limit is not None and (
            self.tap.first_token_mono_ns is not None or not self.tap.tells_tokens
        ):
            self._stop_limit()

    def _stop_limit(self) -> None:
        if self._limit is not None:
            self._limit.reschedule(None)
            self._limit = None

    def _read_timings(self) -> None:
        told: dict[str, str] = {}
        for raw, value in self._headers:
            if (name := raw.lower()) in TIMING_HEADERS and value:
                key, text = name.decode(), value.decode("latin-1")
                told[key] = f"{told[key]}, {text}" if key in told else text
        if told:
            read_headers(self._call.answer.times, told)

    def _finish(self, whole: bool) -> None:
        self.tap.end(whole)
        call = self._call
        call.finished = whole and not self.tap.broken
        if self._live is not None:
            self._live.source_detail = call.source_detail
            if self._stream and self.tap.must_end:
                self._live.done_seen = self.tap.done_seen
