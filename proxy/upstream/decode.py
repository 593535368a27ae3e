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
        self._first = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        if not self._begun:  # its first two bytes together say whether there is a wrapper
            data = self._first = self._first + data
            if len(data) < 2:
                return
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
        more = True
        while more:
            try:
                piece: bytes = self._inner.process(data, output_buffer_limit=PIECE)
            except self._error:
                raise Unreadable from None
            data = b""
            more = bool(piece) and not self._inner.can_accept_more_data()
            if piece:
                yield piece


class Zstd:
    """Zstandard (several frames too), where a library for it is installed.

    The library gives all that an input makes, so the input goes in by a few bytes: a
    block of 128 KiB may be four of them.
    """

    STEP = 64

    def __init__(self) -> None:
        try:
            import zstandard
        except ImportError:
            raise Unreadable from None
        self._make = zstandard.ZstdDecompressor().decompressobj
        self._inner = self._make()
        self._error = zstandard.ZstdError

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data:
            step, data = data[: self.STEP], data[self.STEP :]
            try:
                piece: bytes = self._inner.decompress(step)
            except self._error:
                raise Unreadable from None
            if self._inner.eof:
                data = self._inner.unused_data + data
                self._inner = self._make()
            if piece:
                yield piece


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
    if name == "zstd":
        return Zstd()
    raise Unreadable
