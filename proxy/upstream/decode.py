"""A copy of an encoded body made readable, a bounded piece at a time."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Protocol

PIECE = 64 * 1024


class Unreadable(Exception):
    """The bytes are not what their content-encoding says, or it is one we cannot read."""


class Decoder(Protocol):
    def feed(self, data: bytes) -> Iterator[bytes]:
        """Decoded pieces of at most about ``PIECE`` bytes; raises :class:`Unreadable`."""
        ...


class Identity:
    """Bytes as they are."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        yield data


class Inflate:
    """gzip (several members too) or deflate, with or without its wrapper."""

    def __init__(self, wbits: int) -> None:
        self._wbits = wbits
        self._inner = zlib.decompressobj(wbits)
        self._begun = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._inner.eof:
                self._inner = zlib.decompressobj(self._wbits)
            piece = self._inflate(data)
            data = self._inner.unconsumed_tail or self._inner.unused_data
            self._begun = True
            if piece:
                yield piece

    def _inflate(self, data: bytes) -> bytes:
        try:
            return self._inner.decompress(data, PIECE)
        except zlib.error:
            if self._begun or self._wbits != zlib.MAX_WBITS:
                raise Unreadable from None
        self._inner = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            return self._inner.decompress(data, PIECE)
        except zlib.error:
            raise Unreadable from None


class Brotli:
    """Brotli, where a library for it is installed."""

    def __init__(self) -> None:
        try:
            import brotli
        except ImportError:
            raise Unreadable from None
        self._inner = brotli.Decompressor()
        self._error = brotli.error

    def feed(self, data: bytes) -> Iterator[bytes]:
        try:
            piece: bytes = self._inner.process(data)
        except self._error:
            raise Unreadable from None
        for at in range(0, len(piece), PIECE):
            yield piece[at : at + PIECE]


def decoder_for(content_encoding: str) -> Decoder:
    """Raises :class:`Unreadable` for a coding (or a chain of them) that is not known here."""
    name = content_encoding.strip().lower()
    if name in ("", "identity"):
        return Identity()
    if name in ("gzip", "x-gzip"):
        return Inflate(16 + zlib.MAX_WBITS)
    if name == "deflate":
        return Inflate(zlib.MAX_WBITS)
    if name == "br":
        return Brotli()
    raise Unreadable
