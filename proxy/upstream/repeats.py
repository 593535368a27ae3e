"""The chunk that is like the one before it but for its text, known without parsing it.

A stream is some hundred chunks of the same JSON around another few letters. Once one
has been parsed, its bytes are kept in two halves, before and after the text; a chunk
with the same halves and plain letters between them says the same. That the halves
really hold a text, and that nothing else of what they say depends on it, is not
guessed but tried: the chunk is read again with another text and with none. Streams of one
server differ in the answer's id and its second alone, so one trial serves them all.
"""

from __future__ import annotations

import re

from proxy.upstream.dialects import Answer, Facts, read_event

_TEXT = re.compile(rb'"(?:content|text|reasoning|reasoning_content|thinking)": ?"')
_NOT_PLAIN = re.compile(rb'["\\\x00-\x1f]')
_EVENT_ENDS = (b"\n\n", b"\r\n\r\n")
_OF_THE_ANSWER = re.compile(rb'"(id|created)": ?(?:"[\w.:-]{0,128}"|(?:0|[1-9]\d{0,18})(?![\d.eE]))')
"""Members that name an answer; no fact of a chunk is read from them, wherever they stand."""
LONGEST = 4096
"""Chunks longer than this are not worth keeping."""
FORMS = 64
"""Forms of chunks whose trial is remembered."""


class Proven:
    """What the trials of all streams showed, by the chunk's halves without the answer's names.

    The oldest form gives way when there are more than ``FORMS``.
    """

    def __init__(self) -> None:
        self._forms: dict[tuple[bytes, bytes], tuple[Facts, Facts]] = {}

    def facts(self, before: bytes, after: bytes) -> tuple[Facts, Facts] | None:
        """Facts of the chunk with a text and with white space in it; None if no text goes there."""
        form = _OF_THE_ANSWER.sub(rb"\1", before), _OF_THE_ANSWER.sub(rb"\1", after)
        facts = self._forms.get(form)
        if facts is None and (facts := _tried(before, after)) is not None:
            if len(self._forms) >= FORMS:
                del self._forms[next(iter(self._forms))]
            self._forms[form] = facts
        return facts


class Repeats:
    """Made for one stream. ``known`` first; what it does not know is parsed and may be learnt."""

    def __init__(self, proven: Proven) -> None:
        self._proven = proven
        self._before = b""
        self._after = b""
        self._head = b""
        self._tail = b""
        self._word = Facts()
        self._space = Facts()
        self._tries = 8

    def known(self, data: bytes) -> Facts | None:
        """What ``data`` says, if it is the learnt chunk with another text; not to be changed."""
        return self._match(data, self._before, self._after)

    def known_piece(self, piece: bytes) -> Facts | None:
        """As :meth:`known`, of a piece of the stream that is one event, framed as the learnt one."""
        return self._match(piece, self._head, self._tail) if len(piece) <= LONGEST else None

    def _match(self, data: bytes, before: bytes, after: bytes) -> Facts | None:
        if not before or not data.startswith(before) or not data.endswith(after):
            return None
        text = data[len(before) : -len(after)]
        if not text or _NOT_PLAIN.search(text):
            return None
        if text.isascii():
            return self._space if text.isspace() else self._word
        try:
            return self._space if text.decode().isspace() else self._word
        except UnicodeDecodeError:
            return None

    def learn(self, data: bytes) -> None:
        """Keep the halves of a chunk with one text in it, if they pass the trial."""
        if self._tries <= 0 or len(data) > LONGEST:
            return
        self._tries -= 1
        for found in _TEXT.finditer(data):
            end = _NOT_PLAIN.search(data, found.end())
            if end is not None and end.group() == b'"' and end.start() > found.end():
                halves = data[: found.end()], data[end.start() :]
                if self._try(*halves):
                    return

    def learn_piece(self, piece: bytes, data: bytes) -> None:
        """Keep what stands around the known ``data`` in ``piece``: a like one need not be cut.

        ``piece`` must be this event alone, from rest to rest of its reader.
        """
        at = piece.find(data)
        head, tail = piece[:at], piece[at + len(data) :]
        if at > 0 and head.endswith((b"data: ", b"data:")) and tail in _EVENT_ENDS:
            self._head, self._tail = head + self._before, self._after + tail

    def _try(self, before: bytes, after: bytes) -> bool:
        facts = self._proven.facts(before, after)
        if facts is None:
            return False
        self._before, self._after, (self._word, self._space) = before, after, facts
        self._head = self._tail = b""
        return True


def _tried(before: bytes, after: bytes) -> tuple[Facts, Facts] | None:
    answers = [Answer(), Answer(), Answer()]
    word, space, none = (
        read_event(before + text + after, answer)
        for text, answer in zip((b"x", b" ", b""), answers, strict=True)
    )
    plain = all(
        f.known and not (f.done or f.error or f.finish) and f.counted is None
        and len(f.choices) == 1
        for f in (word, space, none)
    )  # fmt: skip
    told = any(a.usage != Answer().usage or a.times != Answer().times for a in answers)
    if not plain or told or none.choices[0][1].token or not word.choices[0][1].token:
        return None
    return word, space
