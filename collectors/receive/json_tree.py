"""OTLP's JSON as the JSON that protobuf's own parser reads, along the message's fields.

OTLP differs from it: ids are hex, enumerations that are not known mean unspecified,
and null stands for what is absent. What is not a field of the message is left out, so
a name means something only where OTLP gives it a meaning.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

HEX_IDS = frozenset({"trace_id", "span_id", "parent_span_id"})
TOO_DEEP = 100
"""Messages deeper than this are left as they are: the parser refuses them, too."""
MOST_ENUM = 256
NO_ID = "/w=="
_HEX = re.compile(r"[0-9a-fA-F]*")


def to_proto3_json(tree: Mapping[str, Any], message: Any, depth: int = 0) -> dict[str, Any]:  # noqa: ANN401
    """``tree``, an object of the type that the descriptor ``message`` describes."""
    fields, made = _fields(message), {}
    for key, value in tree.items():
        field = fields.get(key)
        if field is None or value is None:
            continue
        if isinstance(value, list):
            made[key] = _list(value, field, depth)
        else:
            made[key] = _single(value, field, depth)
    return made


@cache
def _fields(message: Any) -> dict[str, Any]:  # noqa: ANN401
    """Fields by each name that protobuf's parser knows: lowerCamelCase and its own."""
    return {name: f for f in message.fields for name in (f.name, f.json_name)}


def _list(values: list[Any], field: Any, depth: int) -> list[Any]:  # noqa: ANN401
    """Null in an array attribute is a value of its own; elsewhere it is nothing."""
    if field.full_name.endswith(".ArrayValue.values"):
        values = [{} if value is None else value for value in values]
    return [_single(value, field, depth) for value in values if value is not None]


def _single(value: Any, field: Any, depth: int) -> Any:  # noqa: ANN401
    kind = field.type
    if kind == FieldDescriptor.TYPE_MESSAGE:
        deeper = isinstance(value, dict) and depth < TOO_DEEP
        return to_proto3_json(value, field.message_type, depth + 1) if deeper else value
    if kind == FieldDescriptor.TYPE_ENUM:
        return _enum(value, field.enum_type)
    if kind == FieldDescriptor.TYPE_STRING and isinstance(value, str):
        return _text(value)
    if field.name in HEX_IDS and isinstance(value, str):
        return _id(value)
    return value


def _id(text: str) -> str:
    """Hex as base64; what is not hex becomes one wrong byte, so that its span alone is refused."""
    if len(text) % 2 or not _HEX.fullmatch(text):
        return NO_ID
    return base64.b64encode(bytes.fromhex(text)).decode()


def _enum(value: Any, kind: Any) -> int:  # noqa: ANN401
    """Numbers out of range and unknown names mean unspecified."""
    if isinstance(value, str):
        known = kind.values_by_name.get(value)
        return known.number if known is not None else 0
    if isinstance(value, bool) or value not in range(MOST_ENUM):
        return 0
    return int(value) if int(value) in kind.values_by_number else 0


def _text(value: str) -> str:
    """Half a surrogate pair, which JSON can spell and UTF-8 cannot, becomes U+FFFD."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return value
