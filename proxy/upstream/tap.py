"""Reads an answer beside the stream: what it says goes to the call, its text nowhere.

The tap is fed after the client's socket took the bytes. It never raises, holds at most
one unfinished event or one whole body up to a limit, and keeps no text.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping

from proxy.request.call import ChoiceMarks
from proxy.stream.sse import SseReader
from proxy.upstream.call import UpstreamCall
from proxy.upstream.decode import Decoder, Identity, Unreadable, decoder_for
from proxy.upstream.dialects import Facts, read_body, read_error_event, read_event
from proxy.upstream.repeats import Proven, Repeats

log = logging.getLogger("stagelens.proxy")

EVENT_LIMIT = 4 * 1024 * 1024
WHOLE_LIMIT = 1024 * 1024
TAIL = 64 * 1024
_TAIL_MEMBER = re.compile(r'"(usage|metrics|timings)"\s*:\s*(?=\{)')


class Tap:
    """Clocks and facts of one answer; ``feed`` it each body part, then ``end`` it."""

    def __init__(
        self,
        call: UpstreamCall,
        stream: bool,
        content_encoding: str = "",
        must_end: bool = False,
        reads: bool = True,
        proven: Proven | None = None,
    ) -> None:
        self.first_chunk_mono_ns: int | None = None
        self.first_token_mono_ns: int | None = None
        self.first_answer_mono_ns: int | None = None
        self.error: str | None = None
        self.done_seen = False
        self._call = call
        self.must_end = must_end and stream
        self._reader = SseReader(EVENT_LIMIT) if stream else None
        self._repeats = Repeats(Proven() if proven is None else proven)
        self._whole: bytearray | None = None if stream else bytearray()
        self._cut = False
        self._counts: dict[int, int] | None = None
        self._begun = False
        self._at_rest = False
        self._decoder: Decoder | None = None
        self.broken = False
        if not reads:
            return
        try:
            self._decoder = decoder_for(content_encoding)
        except Unreadable:
            self._give_up("content_encoding")

    @property
    def tells_tokens(self) -> bool:
        """The answer is a stream in which a first token would be seen."""
        return self._reader is not None and self._decoder is not None and bool(self._call.operation)

    @property
    def complete(self) -> bool:
        """The answer said that it is whole: its end in words, or why each choice stopped."""
        return self.done_seen

    @property
    def finish(self) -> Mapping[int, str]:
        """Why each choice ended, as the upstream said and the client was told."""
        return self._call.finish_reasons

    def note(self, body: bytes, mono_ns: int, tokens_so_far: int | None) -> None:
        """The middleware's stamp of a sent part; the tap is fed by the forwarder instead."""

    def feed(self, body: bytes, arrived_mono_ns: int, sent_mono_ns: int) -> None:
        """Read a part that came at the one stamp and was taken by the client at the other."""
        if self._at_rest and (facts := self._repeats.known_piece(body)) is not None:
            self._tokens(facts, arrived_mono_ns, sent_mono_ns)
            return
        if not body:
            return
        if self.first_chunk_mono_ns is None:
            self.first_chunk_mono_ns = sent_mono_ns
        if self._decoder is None:
            return
        try:
            for piece in self._decoder.feed(body):
                self._read(piece, arrived_mono_ns, sent_mono_ns)
        except Unreadable:
            self._give_up("content_encoding")
        except Exception as fault:  # noqa: BLE001  a fault of the tap must not reach the request
            self._fault(fault)

    def _give_up(self, why: str) -> None:
        self._call.trouble = why
        self._decoder = None
        self._at_rest = False
        self.must_end = False

    def _read(self, piece: bytes, arrived: int, sent: int) -> None:
        if self._reader is not None:
            self._read_events(self._reader, piece, arrived, sent)
            return
        whole = self._whole
        assert whole is not None
        whole += piece
        if len(whole) > WHOLE_LIMIT:
            self._cut = True
            del whole[:-TAIL]

    def _read_events(self, reader: SseReader, piece: bytes, arrived: int, sent: int) -> None:
        """``_at_rest`` afterwards: a piece that repeats this one's event need not be cut."""
        rested, self._at_rest = reader.at_rest, False
        events = reader.feed(piece)
        alone = rested and len(events) == 1 and reader.at_rest
        for event in events:
            facts = self._facts(event.data, piece if alone else b"")
            if event.event == "error" and facts.error is None:
                facts = read_error_event(event.data)
            self._event(facts, arrived, sent)
        self._at_rest = reader.at_rest and isinstance(self._decoder, Identity)

    def _facts(self, data: bytes, piece: bytes) -> Facts:
        facts = self._repeats.known(data)
        if facts is None:
            facts = read_event(data, self._call.answer)
            if len(facts.choices) == 1:
                self._repeats.learn(data)
        elif piece:
            self._repeats.learn_piece(piece, data)
        return facts

    def _event(self, facts: Facts, arrived: int, sent: int) -> None:
        self._note_end(facts)
        self._tokens(facts, arrived, sent)

    def _tokens(self, facts: Facts, arrived: int, sent: int) -> None:
        if facts.choices and not self._begun:
            self._begun = True
            self._counts = {} if facts.counted is not None else None
        for index, said in facts.choices:
            if self._is_token(index, said.token, facts.counted):
                marks = self._call.choices.get(index)
                if marks is None:
                    marks = self._call.choices[index] = ChoiceMarks()
                marks.add(1, arrived)
                if self.first_token_mono_ns is None:
                    self.first_token_mono_ns = sent
            if said.answer and self.first_answer_mono_ns is None:
                self.first_answer_mono_ns = sent

    def _is_token(self, index: int, text: bool, counted: int | None) -> bool:
        """Text makes a token; where the server counts in each chunk, its first rise decides."""
        if self._counts is None or counted is None:
            return text
        before = self._counts.get(index, 0)
        self._counts[index] = max(before, counted)
        return counted > before or (text and before > 0)

    def _note_end(self, facts: Facts) -> None:
        self.done_seen = self.done_seen or facts.done
        if facts.error is not None and self.error is None:
            self.error = facts.error
        if facts.finish:
            self._call.finish_reasons.update(facts.finish)

    def end(self, whole: bool) -> None:
        """The upstream's body ended (``whole``) or broke off; call it once."""
        try:
            self._end(whole)
        except Exception as fault:  # noqa: BLE001  as in feed
            self._fault(fault)

    def _fault(self, fault: Exception) -> None:
        """Its text may quote the answer: only its type is told."""
        log.warning("an answer could not be read by the tap: %s", type(fault).__name__)
        self._give_up("tap_fault")

    def _end(self, whole: bool) -> None:
        if self._reader is not None:
            if self._reader.lost:
                self._call.trouble = "event_too_long"
                self.must_end = False  # its end may be what was skipped
            if whole and self._decoder is not None and (cut := self._reader.finish()) is not None:
                self._note_end(read_event(cut.data, self._call.answer))
            if whole and self.must_end and not (
                self.done_seen or self._call.finish_reasons or self.error
            ):
                self.error = "upstream_disconnect"
                self.broken = True
            return
        if self._whole and whole and self._decoder is not None:
            self._read_whole(bytes(self._whole))

    def _read_whole(self, body: bytes) -> None:
        if not self._cut:
            if body.lstrip()[:1] in (b"{", b"["):
                self._note_end(read_event(body, self._call.answer))
            return
        self._call.trouble = "body_too_long:only_its_end_was_read"
        text = body.decode("utf-8", "replace")
        found: dict[str, object] = {}
        for match in _TAIL_MEMBER.finditer(text):
            try:
                found[match.group(1)] = json.JSONDecoder().raw_decode(text, match.end())[0]
            except (ValueError, RecursionError):
                continue
        read_body(found, self._call.answer)
