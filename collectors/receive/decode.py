"""Bodies of OTLP/HTTP requests as messages: protobuf or JSON, compressed or not, bounded."""

from __future__ import annotations

import base64
import json
import re
import zlib
from dataclasses import dataclass
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message

PROTOBUF = "application/x-protobuf"
JSON = "application/json"
_HEX = re.compile(r"[0-9a-fA-F]*")
ID_BYTES = {"traceId": 16, "spanId": 8, "parentSpanId": 8}


@dataclass(frozen=True, slots=True)
class BadBody(Exception):
    """A body that is refused whole, with the HTTP status that says why."""

    status: int
    message: str


def decompress(body: bytes, encoding: str, limit: int) -> bytes:
    """The plain body.

    Raises:
        BadBody: 415 for an unknown encoding, 400 for a broken one, 413 over ``limit``
            bytes, noticed before more than that is held.
    """
    name = encoding.strip().lower()
    if name in ("", "identity"):
        plain = body
    elif name in ("gzip", "deflate"):
        plain = _inflate(body, name, limit)
    else:
        raise BadBody(415, f"Content-Encoding {name[:40]} is not known: use gzip, deflate or none")
    if len(plain) > limit:
        raise BadBody(413, f"the body has more than {limit} bytes: send smaller batches")
    return plain


def _inflate(body: bytes, name: str, limit: int) -> bytes:
    engine = zlib.decompressobj(31 if name == "gzip" else 15)
    try:
        plain = engine.decompress(body, limit + 1)
    except zlib.error:
        raise BadBody(400, f"the {name} body is damaged") from None
    if len(plain) > limit or engine.unconsumed_tail:
        raise BadBody(413, f"the body has more than {limit} bytes: send smaller batches")
    if not engine.eof:
        raise BadBody(400, f"the {name} body is cut off")
    return plain


def decode(body: bytes, content_type: str, kind: type[Message]) -> Message:
    """The message of type ``kind``.

    Raises:
        BadBody: 415 for another content type, 400 for bytes that are no such message.
    """
    base = content_type.split(";", maxsplit=1)[0].strip().lower()
    if base == PROTOBUF:
        try:
            return kind.FromString(body)
        except DecodeError:
            raise BadBody(400, f"the body is not a protobuf {kind.__name__}") from None
    if base == JSON:
        return _from_json(body, kind)
    raise BadBody(415, f"Content-Type must be {PROTOBUF} or {JSON}")


def _from_json(body: bytes, kind: type[Message]) -> Message:
    try:
        tree = json.loads(body)
    except (ValueError, RecursionError):
        raise BadBody(400, "the body is not valid JSON") from None
    if not isinstance(tree, dict):
        raise BadBody(400, "the body must be a JSON object")
    try:
        return json_format.ParseDict(_to_proto3_json(tree, 0), kind(), ignore_unknown_fields=True)
    except (json_format.ParseError, ValueError, TypeError, AttributeError, RecursionError) as why:
        raise BadBody(400, f"the body is not an OTLP {kind.__name__}: {str(why)[:200]}") from None


def _to_proto3_json(value: Any, depth: int) -> Any:  # noqa: ANN401
    """OTLP's JSON differs from proto3's: ids are hex, and an absent value may be null."""
    if depth > 64:
        raise BadBody(400, "the body is nested too deep")
    if isinstance(value, list):
        return [_to_proto3_json(v, depth + 1) for v in value if v is not None]
    if not isinstance(value, dict):
        return value
    made = {}
    for key, inner in value.items():
        if key in ID_BYTES and isinstance(inner, str):
            made[key] = _id(inner)
        elif key == "kind":
            made[key] = _enum(inner, "SPAN_KIND_", 5)
        elif key == "code":
            made[key] = _enum(inner, "STATUS_CODE_", 2)
        elif inner is not None:
            made[key] = _to_proto3_json(inner, depth + 1)
    return made


def _id(text: str) -> str:
    """Hex as base64; what is not hex becomes an empty id, so that its span alone is refused."""
    if len(text) % 2 or not _HEX.fullmatch(text):
        return ""
    return base64.b64encode(bytes.fromhex(text)).decode()


def _enum(value: Any, prefix: str, most: int) -> Any:  # noqa: ANN401
    """Numbers out of range and unknown names mean unspecified."""
    if isinstance(value, bool) or value is None:
        return 0
    if isinstance(value, int):
        return value if 0 <= value <= most else 0
    return value if isinstance(value, str) and value.startswith(prefix) else 0
