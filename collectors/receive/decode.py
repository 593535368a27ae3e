"""Bodies of OTLP/HTTP requests as messages: protobuf or JSON, compressed or not, bounded."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from typing import Any

import zstandard
from google.protobuf.message import Message

from collectors.receive.json_tree import to_proto3_json
from collectors.receive.salvage import (
    UNREADABLE,
    read_tree,
    read_wire,
    salvage_tree,
    salvage_wire,
)

PROTOBUF = "application/x-protobuf"
JSON = "application/json"


MOST_MEMBERS = 64
"""A compressed body may be several, one after another; more than this is no honest sender."""


ZSTD_WINDOW = 8 << 20
"""The largest window that RFC 8878 asks every decoder to take."""
ZSTD_PIECE = 1024
"""A piece of zstd this long is at most 32 MiB of plain bytes: a block of 4 makes 128 KiB."""


class BadBody(Exception):
    """A body that is refused whole, with the HTTP status that says why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def decompress(body: bytes, encoding: str, limit: int) -> bytes:
    """The plain body.

    Raises:
        BadBody: 415 for an unknown encoding, 400 for a broken one, 413 over ``limit``
            bytes, noticed before more than that is held.
    """
    name = encoding.strip().lower()
    if name not in ("", "identity", "gzip", "deflate", "zstd"):
        raise BadBody(
            415, f"Content-Encoding {name[:40]} is not known: use gzip, deflate, zstd or none"
        )
    plain = body
    if body and name == "zstd":
        plain = _unzstd(body, limit)
    elif body and name in ("gzip", "deflate"):
        plain = _inflate(body, name, limit)
    if len(plain) > limit:
        raise BadBody(413, f"the body has more than {limit} bytes: send smaller batches")
    return plain


def _unzstd(body: bytes, limit: int) -> bytes:
    """All frames of a zstd body, in pieces, so that a bomb is noticed early."""
    parts: list[bytes] = []
    size = 0
    for _ in range(MOST_MEMBERS):
        if not body:
            return b"".join(parts)
        engine = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW).decompressobj()
        try:
            for at in range(0, len(body), ZSTD_PIECE):
                plain = engine.decompress(body[at : at + ZSTD_PIECE])
                size += len(plain)
                if size > limit:
                    raise BadBody(413, f"the body has more than {limit} bytes: send smaller batches")
                parts.append(plain)
                if engine.eof:
                    body = engine.unused_data + body[at + ZSTD_PIECE :]
                    break
        except zstandard.ZstdError:
            raise BadBody(400, "the zstd body is damaged") from None
        if not engine.eof:
            raise BadBody(400, "the zstd body is cut off")
    if body:
        raise BadBody(400, f"the zstd body has more than {MOST_MEMBERS} members")
    return b"".join(parts)


def _inflate(body: bytes, name: str, limit: int) -> bytes:
    """All members of a gzip body; the standard lets them stand one after another."""
    parts, size = [], 0
    while body:
        engine = zlib.decompressobj(31 if name == "gzip" else 15)
        try:
            plain = engine.decompress(body, limit + 1 - size)
        except zlib.error:
            raise BadBody(400, f"the {name} body is damaged") from None
        size += len(plain)
        if size > limit or engine.unconsumed_tail:
            raise BadBody(413, f"the body has more than {limit} bytes: send smaller batches")
        if not engine.eof:
            raise BadBody(400, f"the {name} body is cut off")
        parts.append(plain)
        body = engine.unused_data
        if len(parts) == MOST_MEMBERS and body:
            raise BadBody(400, f"the {name} body has more than {MOST_MEMBERS} members")
    return b"".join(parts)


def decode(body: bytes, content_type: str, kind: type[Message]) -> tuple[Message, int]:
    """The message of type ``kind``, and how many of its items could not be read.

    Raises:
        BadBody: 415 for another content type, 400 for bytes that are no such message.
    """
    base = content_type.split(";", maxsplit=1)[0].strip().lower()
    if base not in (PROTOBUF, JSON):
        raise BadBody(415, f"Content-Type must be {PROTOBUF} or {JSON}")
    if not body:
        return kind(), 0
    if base == PROTOBUF:
        return _read(body, kind, "a protobuf", read_wire, salvage_wire)
    tree = to_proto3_json(_json_object(body), kind.DESCRIPTOR)
    return _read(tree, kind, "an OTLP", read_tree, salvage_tree)


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        tree = json.loads(body)
    except (ValueError, RecursionError):
        raise BadBody(400, "the body is not valid JSON") from None
    if not isinstance(tree, dict):
        raise BadBody(400, "the body must be a JSON object")
    return tree


def _read(
    data: Any,  # noqa: ANN401
    kind: type[Message],
    what: str,
    read: Callable[[Any, Any], None],
    salvage: Callable[[Any, Any], int],
) -> tuple[Message, int]:
    """All at once; if that fails, item by item."""
    message = kind()
    try:
        read(data, message)
    except UNREADABLE:
        message = kind()
    else:
        return message, 0
    try:
        bad = salvage(data, message)
    except UNREADABLE as why:
        reason = str(why).splitlines()[0][:200] if str(why) else type(why).__name__
        raise BadBody(400, f"the body is not {what} {kind.__name__}: {reason}") from None
    if bad and not message.ByteSize():
        raise BadBody(400, f"the body is not {what} {kind.__name__}")
    return message, bad
