"""One HTTP/1.1 response as its bytes come: head, body parts, end. Parsed by httptools."""

from __future__ import annotations

import httptools

HEAD_LIMIT = 64 * 1024
"""Most bytes of a response's head."""
NO_BODY = frozenset({204, 304})


class BadResponse(ValueError):
    """What the upstream sent is not HTTP/1.1 as it is written down."""


class ResponseMessage:
    """Feed it bytes; ``headed`` and ``complete`` say how far the response is.

    ``headless``: it answers HEAD, so no body follows whatever its head says.
    ``until_close``: its body ends with the connection. ``reusable``: the connection may
    carry another request afterwards.
    """

    def __init__(self, headless: bool) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.headed = self.complete = self.until_close = False
        self._headless = headless
        self._extra = self._keep_alive = False
        self._body: list[bytes] = []
        self._in_chunk = True
        self._at_line_end = False
        self._head_size = 0
        self._parser = httptools.HttpResponseParser(self)

    @property
    def reusable(self) -> bool:
        return self.complete and self._keep_alive and not self._extra

    @property
    def between_chunks(self) -> bool:
        """All that was fed ends with a chunk: another one may follow, and need not be fed."""
        return self._at_line_end and not (self._in_chunk or self.complete)

    def feed(self, data: bytes) -> bytes:
        """The part of the body that ``data`` holds.

        Raises:
            BadResponse: it is no HTTP, or the head is longer than ``HEAD_LIMIT``.
        """
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            if not self.complete:
                raise BadResponse("the upstream did not answer in HTTP") from None
            self._extra = True  # the answer is whole: what follows it is only not to be trusted
        self._at_line_end = data.endswith(b"\r\n")
        if not self.headed:
            self._head_size += len(data)
            if self._head_size > HEAD_LIMIT:
                raise BadResponse("the head of the upstream's answer is too long")
            return b""
        body = self._body
        if not body:
            return b""
        self._body = []
        return body[0] if len(body) == 1 else b"".join(body)

    # -- called by the parser --------------------------------------------------

    def on_message_begin(self) -> None:
        self._extra = self.complete  # a second answer to one request

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.headed:  # afterwards they are trailers
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self._extra:
            return
        status = self._parser.get_status_code()
        if status < 100:
            raise BadResponse("the upstream answered with no status of HTTP")
        if 100 <= status < 200:
            self.headers = []
            return
        self.status, self.headed = status, True
        names = {name.lower() for name, _ in self.headers}
        told = self._chunked() if b"transfer-encoding" in names else b"content-length" in names
        self.until_close = not (told or status in NO_BODY or self._headless)
        self.complete = self._headless

    def _chunked(self) -> bool:
        """The last of its codings is the one that tells where the body ends."""
        codings = [v.lower() for n, v in self.headers if n.lower() == b"transfer-encoding"]
        return codings[-1].rpartition(b",")[2].strip() == b"chunked"

    def on_body(self, body: bytes) -> None:
        if not (self._headless or self._extra):
            self._body.append(body)

    def on_chunk_header(self) -> None:
        self._in_chunk = True

    def on_chunk_complete(self) -> None:
        self._in_chunk = False

    def on_message_complete(self) -> None:
        if self.headed and not self._extra:
            self.complete = True
            self._keep_alive = self._parser.should_keep_alive() and not self._headless


def whole_chunks(data: bytes) -> list[bytes] | None:
    """The bodies of the chunks that ``data`` is made of; None if they are not whole and plain.

    Their sizes must be written as Python writes them, and none may be the last one: other
    forms are for the parser to read.
    """
    parts: list[bytes] = []
    at, end = 0, len(data)
    while at < end:
        line = data.find(b"\r\n", at, at + 10)
        told = data[at:line] if line > 0 else b""
        try:
            size = int(told, 16)
        except ValueError:
            return None
        stop = line + 2 + size
        if size <= 0 or told.lower() != b"%x" % size or data[stop : stop + 2] != b"\r\n":
            return None
        parts.append(data[line + 2 : stop])
        at = stop + 2
    return parts or None
