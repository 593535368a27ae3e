"""OTLP attribute values as the strings that the exporter's schema holds."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable
from typing import Any

TEXT_LIMIT = 1 << 20
"""Most characters kept of one value; what is cut says so."""
NAME_LIMIT = 4096
"""Most characters kept of a name or a key: those are kept in a dictionary for each part."""
SHARED_LIMIT = 32 << 10
"""Most characters kept of the attributes of a resource or scope: they stand in each of its rows."""
MAP_LIMIT = 4 << 20
"""Most characters kept of all attributes of one span, event, link, log record or point."""
MOST_ATTRIBUTES = 1024
"""Most attributes kept of one; OpenTelemetry's SDKs send at most 128."""
LEFT_OUT = "stagelens.attributes_left_out"
DEPTH_LIMIT = 16


def attribute_map(pairs: Iterable[Any]) -> dict[str, str]:
    """``KeyValue`` messages as text; a key without a value has the empty text.

    The first are kept, within the limits; how many were left out is told.
    """
    made: dict[str, str] = {}
    left, out = MAP_LIMIT, 0
    for pair in pairs:
        key, text = cut(pair.key), text_of(pair.value)
        size = len(key) + len(text)
        if size > left or len(made) >= MOST_ATTRIBUTES:
            out += 1
        else:
            left -= size
            made[key] = text
    if out:
        made[LEFT_OUT] = str(out)
    return made


def shared_map(pairs: Iterable[Any]) -> dict[str, str]:
    """As ``attribute_map``, for attributes that are copied into many rows: bounded together.

    The service's own are kept before others; how many were left out is told.
    """
    made: dict[str, str] = {}
    left, out = SHARED_LIMIT, 0
    for pair in sorted(pairs, key=lambda p: not p.key.startswith("service.")):
        key, text = cut(pair.key), cut(text_of(pair.value))
        left -= len(key) + len(text)
        if left < 0 or len(made) >= MOST_ATTRIBUTES:
            out += 1
        else:
            made[key] = text
    if out:
        made[LEFT_OUT] = str(out)
    return made


def text_of(value: Any) -> str:  # noqa: ANN401
    """One ``AnyValue``: text as it is, numbers in decimal, booleans true/false, others JSON."""
    kind = value.WhichOneof("value")
    if kind is None:
        return ""
    if kind == "string_value":
        return cut(value.string_value, TEXT_LIMIT)
    if kind == "bool_value":
        return "true" if value.bool_value else "false"
    if kind in ("int_value", "double_value"):
        return str(getattr(value, kind))
    plain = _plain(value, 0)
    return cut(plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False), TEXT_LIMIT)


def _plain(value: Any, depth: int) -> object:  # noqa: ANN401
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if depth > DEPTH_LIMIT:
        return f"… (cut; nested deeper than {DEPTH_LIMIT})"
    if kind == "array_value":
        return [_plain(v, depth + 1) for v in value.array_value.values]
    if kind == "kvlist_value":
        return {p.key: _plain(p.value, depth + 1) for p in value.kvlist_value.values}
    if kind == "bytes_value":
        return base64.b64encode(value.bytes_value).decode()
    plain: object = getattr(value, kind)
    if isinstance(plain, float) and not math.isfinite(plain):
        return "NaN" if math.isnan(plain) else "Infinity" if plain > 0 else "-Infinity"
    return plain


def cut(text: str, limit: int = NAME_LIMIT) -> str:
    """``text``, or its first ``limit`` characters and a note of how many there were."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… (cut; {len(text)} characters)"
