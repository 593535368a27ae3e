"""The items of an export request that became certain rows, as an export request again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.message import Message

from collectors.receive.rows import Row, TimeWindow
from collectors.receive.salvage import PATH
from collectors.receive.signals import OF_NAME
from collectors.spool.state import Entry


def only_rows(entry: Entry, body: bytes, table: str, rows: list[Row]) -> bytes:
    """The items of ``body`` whose rows in ``table`` are ``rows``, in protobuf."""
    signal = OF_NAME[entry.signal]
    window = TimeWindow(entry.oldest_unix_ns, entry.newest_unix_ns)
    wanted = {repr(row) for row in rows}
    parts = []
    for single in _singles(signal.request.FromString(body)):
        made = signal.to_batch(single, window).rows.get(table, [])
        if made and any(repr(row) in wanted for row in made):
            parts.append(single.SerializeToString())
    return b"".join(parts)


def _singles(message: Any) -> Iterator[Message]:  # noqa: ANN401
    """Each item alone in a request, with its resource and scope."""
    names = []
    kind = message.DESCRIPTOR
    for number in PATH:
        field = kind.fields_by_number[number]
        names.append(field.name)
        kind = field.message_type
    for group in getattr(message, names[0]):
        for scoped in getattr(group, names[1]):
            for item in getattr(scoped, names[2]):
                yield _single(type(message)(), names, group, scoped, item)


def _single(made: Any, names: list[str], group: Any, scoped: Any, item: Any) -> Message:  # noqa: ANN401
    outer = getattr(made, names[0]).add()
    outer.resource.CopyFrom(group.resource)
    outer.schema_url = group.schema_url
    inner = getattr(outer, names[1]).add()
    inner.scope.CopyFrom(scoped.scope)
    inner.schema_url = scoped.schema_url
    getattr(inner, names[2]).add().CopyFrom(item)
    whole: Message = made
    return whole
