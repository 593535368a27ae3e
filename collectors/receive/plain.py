"""Bodies of spans that the store's engine can read by itself.

Most bodies hold nothing that needs a rule of ours: good ids, times in the window, nothing to
repair. For such a body no row is ever built in Python. Limits on text and attributes in
attributes are noticed by the engine when it reads the body (``collectors.write.plain_sql``);
it gives up on them, and they are read in Python, too. Where that happens often, ``careful``
finds nested attributes here: a message that lacks a field that is required cannot be
encoded, and here every rare thing lacks one.
"""

from __future__ import annotations

from functools import cache
from operator import attrgetter, le
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, EncodeError

from collectors.receive.attributes import MAP_LIMIT
from collectors.receive.rows import TimeWindow

MOST_BYTES = MAP_LIMIT
"""In a larger body the attributes of one span might be over their limit."""
_NO_TRACE, _NO_SPAN = bytes(16), bytes(8)
_CHECKED = attrgetter(
    "trace_id", "span_id", "parent_span_id", "start_time_unix_nano", "end_time_unix_nano"
)
_SCALAR = "1 string string_value, 2 bool bool_value, 3 int64 int_value, 4 double double_value"
_MESSAGES = {
    "Scalar": f"{_SCALAR}, 5 Rare array_value, 6 Rare kvlist_value, 7 Rare bytes_value",
    "ArrayValue": "1 *Scalar values",
    "AnyValue": f"{_SCALAR}, 5 ArrayValue array_value, 6 Rare kvlist_value, 7 Rare bytes_value",
    "KeyValue": "1 string key, 2 AnyValue value",
    "Resource": "1 *KeyValue attributes",
    "Scope": "1 string name, 2 string version",
    "Event": "1 fixed64 time_unix_nano, 2 string name, 3 *KeyValue attributes",
    "Link": "1 bytes trace_id, 2 bytes span_id, 3 string trace_state, 4 *KeyValue attributes",
    "Status": "2 string message, 3 int32 code",
    "Span": "1 bytes trace_id, 2 bytes span_id, 3 string trace_state, 4 bytes parent_span_id, "
    "5 string name, 6 int32 kind, 7 fixed64 start_time_unix_nano, 8 fixed64 end_time_unix_nano, "
    "9 *KeyValue attributes, 11 *Event events, 13 *Link links, 15 Status status",
    "ScopeSpans": "1 Scope scope, 2 *Span spans",
    "ResourceSpans": "1 Resource resource, 2 *ScopeSpans scope_spans",
    "Request": "1 *ResourceSpans resource_spans",
}
"""OTLP's messages as far as they are stored; ``*`` is a list."""
_TYPES = {
    name: getattr(descriptor_pb2.FieldDescriptorProto, f"TYPE_{name.upper()}")
    for name in ("string", "bytes", "bool", "int32", "int64", "double", "fixed64")
}


def plain_spans(body: bytes, window: TimeWindow, *, careful: bool = False) -> int | None:
    """How many spans a body holds, if the store may read it as it is; else None."""
    if len(body) > MOST_BYTES:
        return None
    try:
        message = _request().FromString(body)
        if careful:
            message.SerializeToString()
    except (DecodeError, EncodeError):
        return None
    count = 0
    for group in message.resource_spans:
        for scoped in group.scope_spans:
            if scoped.spans:
                if not _all_plain(scoped.spans, window):
                    return None
                count += len(scoped.spans)
    return count


def _all_plain(spans: Any, window: TimeWindow) -> bool:  # noqa: ANN401
    """Good ids and times; column by column, so that no statement of ours is run for each span."""
    traces, numbers, parents, starts, ends = zip(*map(_CHECKED, spans), strict=True)
    return (
        set(map(len, traces)) == {16}
        and set(map(len, numbers)) == {8}
        and set(map(len, parents)) <= {0, 8}
        and _NO_TRACE not in traces
        and _NO_SPAN not in numbers
        and _NO_SPAN not in parents
        and window.oldest_unix_ns <= min(starts)
        and max(ends) <= window.newest_unix_ns
        and all(map(le, starts, ends))
    )


@cache
def _request() -> Any:  # noqa: ANN401
    pool = descriptor_pool.DescriptorPool()
    rare = descriptor_pb2.FileDescriptorProto(name="rare.proto", package="plain", syntax="proto2")
    rare.message_type.add(name="Rare").field.add(
        name="never", number=536_870_000, label=2, type=_TYPES["bool"]
    )
    pool.Add(rare)
    file = descriptor_pb2.FileDescriptorProto(
        name="plain.proto", package="plain", syntax="proto3", dependency=["rare.proto"]
    )
    for name, fields in _MESSAGES.items():
        made = file.message_type.add(name=name)
        for told in fields.split(", "):
            number, kind, field = told.split(" ")
            one = made.field.add(name=field, number=int(number), label=3 if kind[0] == "*" else 1)
            if (plain := _TYPES.get(kind)) is not None:
                one.type = plain
            else:
                one.type, one.type_name = one.TYPE_MESSAGE, f".plain.{kind.lstrip('*')}"
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("plain.Request"))
