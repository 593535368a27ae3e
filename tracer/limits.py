"""How long a span may be on the way: receivers refuse a whole body over 4 MiB.

What is too long is cut at a character, and the span says what was cut and how many
characters it had. A short span is never lost because of a long one beside it.
"""

from __future__ import annotations

from collections.abc import Iterable

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tracer import semconv

BODY_BYTES = 3_500_000
"""Most bytes of spans in one request; gRPC's usual limit for a whole message is 4,194,304."""
SPAN_BYTES = 2_000_000
RESOURCE_VALUE_BYTES = 16_384
_FIRST_CUT, _LAST_CUT = 524_288, 256


def fit(span: Span, limit: int = SPAN_BYTES) -> int:
    """Cut ``span`` until it takes at most ``limit`` bytes; returns the bytes it takes.

    The longest texts are cut first. Where even short ones are too many, events, links and
    attributes are dropped and counted in the fields that OTLP has for it.
    """
    size: int = span.ByteSize()
    if size <= limit:
        return size
    cut: dict[str, int] = {}
    most = _FIRST_CUT
    while size > limit and most >= _LAST_CUT:
        _shorten(span, most, cut)
        size = span.ByteSize()
        most //= 2
    if size > limit:
        _drop(span, limit)
    _note(span, cut)
    return int(span.ByteSize())


def shorten_values(values: Iterable[KeyValue], most: int) -> None:
    """Cut each text in ``values`` to ``most`` bytes, without a note."""
    for one in values:
        _shorten_value(one.value, most)


def _note(span: Span, cut: dict[str, int]) -> None:
    told = [AnyValue(string_value=f"{name}={length}") for name, length in list(cut.items())[:100]]
    for one in span.attributes:
        if one.key == semconv.CUT:
            one.value.array_value.values.extend(told)
            return
    added = span.attributes.add(key=semconv.CUT)
    added.value.array_value.values.extend(told)


def _shorten(span: Span, most: int, cut: dict[str, int]) -> None:
    span.name = _text(span.name, most, "span name", cut)
    span.trace_state = span.trace_state if len(span.trace_state) <= most else ""
    span.status.message = _text(span.status.message, most, "status", cut)
    _shorten_all(span.attributes, most, "", cut)
    for event in span.events:
        event.name = _text(event.name, most, "event name", cut)
        _shorten_all(event.attributes, most, "event ", cut)
    for link in span.links:
        _shorten_all(link.attributes, most, "link ", cut)


def _shorten_all(values: Iterable[KeyValue], most: int, where: str, cut: dict[str, int]) -> None:
    for one in values:
        if one.key == semconv.CUT:
            continue
        one.key = _text(one.key, most, where + "key", cut)
        if (length := _shorten_value(one.value, most)) is not None:
            cut.setdefault(where + one.key[:128], length)


def _shorten_value(value: AnyValue, most: int) -> int | None:
    """Cut the texts in ``value``; the characters of the longest one that was cut."""
    kind = value.WhichOneof("value")
    if kind == "string_value":
        seen: dict[str, int] = {}
        value.string_value = _text(value.string_value, most, "", seen)
        return seen.get("")
    if kind == "bytes_value":
        length = len(value.bytes_value)
        value.bytes_value = value.bytes_value[:most]
        return length if length > most else None
    if kind == "array_value":
        found = [_shorten_value(one, most) for one in value.array_value.values]
    elif kind == "kvlist_value":
        found = [_shorten_value(one.value, most) for one in value.kvlist_value.values]
    else:
        return None
    lengths = [one for one in found if one is not None]
    return max(lengths) if lengths else None


def _text(text: str, most: int, name: str, cut: dict[str, int]) -> str:
    if len(text) * 4 <= most:
        return text
    raw = text.encode()
    if len(raw) <= most:
        return text
    cut.setdefault(name, len(text))
    return raw[:most].decode("utf-8", "ignore")


def _drop(span: Span, limit: int) -> None:
    for name, counter in (
        ("events", "dropped_events_count"),
        ("links", "dropped_links_count"),
        ("attributes", "dropped_attributes_count"),
    ):
        items = getattr(span, name)
        while items and span.ByteSize() > limit:
            gone = max(1, len(items) // 2)
            del items[-gone:]
            setattr(span, counter, getattr(span, counter) + gone)
