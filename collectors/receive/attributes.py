"""OTLP attribute values as the strings that the exporter's schema holds."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Any

TEXT_LIMIT = 1 << 20
"""Most characters kept of one value; what is cut says so."""


def attribute_map(pairs: Iterable[Any]) -> dict[str, str]:
    """``KeyValue`` messages as text; a key without a value has the empty text."""
    return {pair.key: text_of(pair.value) for pair in pairs}


def text_of(value: Any) -> str:  # noqa: ANN401
    """One ``AnyValue``: text as it is, numbers in decimal, booleans true/false, others JSON."""
    kind = value.WhichOneof("value")
    if kind is None:
        return ""
    if kind == "string_value":
        return _cut(value.string_value)
    if kind == "bool_value":
        return "true" if value.bool_value else "false"
    if kind in ("int_value", "double_value"):
        return str(getattr(value, kind))
    return _cut(json.dumps(_plain(value, 0), ensure_ascii=False))


def _plain(value: Any, depth: int) -> object:  # noqa: ANN401
    kind = value.WhichOneof("value")
    if kind is None or depth > 16:
        return None
    if kind == "array_value":
        return [_plain(v, depth + 1) for v in value.array_value.values]
    if kind == "kvlist_value":
        return {p.key: _plain(p.value, depth + 1) for p in value.kvlist_value.values}
    if kind == "bytes_value":
        return base64.b64encode(value.bytes_value).decode()
    return getattr(value, kind)


def _cut(text: str) -> str:
    if len(text) <= TEXT_LIMIT:
        return text
    return f"{text[:TEXT_LIMIT]}… (cut; {len(text)} characters)"
