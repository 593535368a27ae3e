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
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, EncodeError

from collectors.receive.attributes import MAP_LIMIT
from collectors.receive.rows import TimeWindow

MOST_BYTES = MAP_LIMIT
"""In a larger body the attributes of one span might be over their limit."""
_NO_TRACE, _NO_SPAN = bytes(16), bytes(8)
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
    oldest, newest = window.oldest_unix_ns, window.newest_unix_ns
    count = 0
    for group in message.resource_spans:
        for scoped in group.scope_spans:
            spans = scoped.spans
            count += len(spans)
            for span in spans:
                trace, number, parent = span.trace_id, span.span_id, span.parent_span_id
                if (
                    len(trace) != 16 or len(number) != 8 or trace == _NO_TRACE or number == _NO_SPAN
                    or not oldest <= span.start_time_unix_nano <= span.end_time_unix_nano <= newest
                    or (parent and (len(parent) != 8 or parent == _NO_SPAN))
                ):  # fmt: skip
                    return None
    return count


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
