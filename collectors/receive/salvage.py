"""Reading a request whose whole cannot be read: item by item, so that only bad items are lost.

All requests have the same build: field 1 is groups by resource, their field 2 groups by
scope, whose field 2 is the items: spans, log records or metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import DecodeError

PATH = (1, 2, 2)
UNREADABLE = (
    json_format.ParseError, DecodeError, ValueError, TypeError, AttributeError, ArithmeticError,
    LookupError, RecursionError,
)  # fmt: skip
"""What protobuf's parsers raise for data that is wrong."""


def read_tree(tree: Mapping[str, Any], message: Any) -> None:  # noqa: ANN401
    """Fill ``message`` from proto3 JSON."""
    json_format.ParseDict(tree, message, ignore_unknown_fields=True)


def read_wire(data: bytes, message: Any) -> None:  # noqa: ANN401
    """Fill ``message`` from protobuf bytes."""
    message.MergeFromString(data)


def salvage_tree(tree: Mapping[str, Any], message: Any) -> int:  # noqa: ANN401
    """Fill ``message`` with the good items of ``tree``; the number of the bad ones.

    Raises:
        one of UNREADABLE: it is not built as a request at all.
    """
    return _salvage(tree, message, PATH, _split_tree, read_tree)


def salvage_wire(data: bytes, message: Any) -> int:  # noqa: ANN401
    """As ``salvage_tree``, for protobuf bytes."""
    return _salvage(data, message, PATH, _split_wire, read_wire)


def _salvage(
    data: Any,  # noqa: ANN401
    message: Any,  # noqa: ANN401
    path: tuple[int, ...],
    split: Callable[[Any, Any], tuple[Any, list[Any]]],
    read: Callable[[Any, Any], None],
) -> int:
    if not path:
        read(data, message)
        return 0
    field = message.DESCRIPTOR.fields_by_number[path[0]]
    rest, children = split(data, field)
    read(rest, message)
    kept, bad = getattr(message, field.name), 0
    for child in children:
        made = kept.add()
        try:
            bad += _salvage(child, made, path[1:], split, read)
        except UNREADABLE:
            del kept[-1]
            bad += _count(child, field.message_type, path[1:], split)
    return bad


def _count(
    data: Any,  # noqa: ANN401
    kind: Any,  # noqa: ANN401
    path: tuple[int, ...],
    split: Callable[[Any, Any], tuple[Any, list[Any]]],
) -> int:
    """How many items are under something unreadable; one when that cannot be told."""
    if not path:
        return 1
    field = kind.fields_by_number[path[0]]
    try:
        _, children = split(data, field)
    except UNREADABLE:
        return 1
    return sum(_count(child, field.message_type, path[1:], split) for child in children)


def _split_tree(tree: Any, field: Any) -> tuple[dict[str, Any], list[Any]]:  # noqa: ANN401
    """An object without the list in ``field``, and that list."""
    if not isinstance(tree, dict):
        raise TypeError("an object is needed")
    children = tree.get(field.json_name, [])
    if not isinstance(children, list):
        raise TypeError(f"{field.json_name} must be a list")
    return {key: value for key, value in tree.items() if key != field.json_name}, children


def _split_wire(data: bytes, field: Any) -> tuple[bytes, list[bytes]]:  # noqa: ANN401
    """A message's bytes without those of ``field``, and the messages in it."""
    rest, children = bytearray(), []
    for number, start, payload, end in wire_fields(data):
        if number == field.number and payload:
            children.append(data[payload:end])
        else:
            rest += data[start:end]
    return bytes(rest), children


def wire_fields(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Each field's number, start, start of its payload (0 unless it has a length) and end."""
    at = 0
    while at < len(data):
        start = at
        tag, at = _varint(data, at)
        payload = 0
        match tag & 7:
            case 0:
                _, at = _varint(data, at)
            case 1:
                at += 8
            case 2:
                size, payload = _varint(data, at)
                at = payload + size
            case 5:
                at += 4
            case _:
                raise ValueError("a field of an unknown kind")
        if at > len(data):
            raise ValueError("a field is cut off")
        yield tag >> 3, start, payload, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a number is cut off")
