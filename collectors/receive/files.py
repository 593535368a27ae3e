"""Files of OTLP export requests, cut into bodies that a receiver takes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from collectors.receive.decode import JSON, PROTOBUF
from collectors.receive.salvage import wire_fields
from collectors.receive.signals import SIGNALS

BODY_BYTES = 4 << 20
OF_KEY = {
    "resourceSpans": "/v1/traces",
    "resourceLogs": "/v1/logs",
    "resourceMetrics": "/v1/metrics",
}


class UnreadableFile(Exception):
    """The file holds no OTLP, or not only; the message says what is wrong."""


def bodies(file: Path, signal: str | None) -> Iterator[tuple[str, str, bytes]]:
    """Path of the receiver, content type and body, in the order of the file.

    A file is JSON (one request, or one a line, as the OpenTelemetry Collector's file
    exporter writes them) or requests in protobuf, one after another. Protobuf does not
    say its signal: ``signal``, else the beginning of the name (``spans-…``), else spans.

    Raises:
        UnreadableFile: it is neither.
        OSError: it cannot be read.
    """
    data = file.read_bytes()
    if data.lstrip(b" \t\r")[:1] == b"{":  # a line feed is how protobuf requests begin
        yield from _json_bodies(data)
    else:
        name = signal or file.name.split("-", maxsplit=1)[0]
        paths = {one.name: path for path, one in SIGNALS.items()}
        for body in _cut(data):
            yield paths.get(name, "/v1/traces"), PROTOBUF, body


def _json_bodies(data: bytes) -> Iterator[tuple[str, str, bytes]]:
    try:
        json.loads(data)
        rows = [data]
    except ValueError:
        rows = [row for row in data.splitlines() if row.strip()]
    for number, row in enumerate(rows, 1):
        try:
            tree = json.loads(row)
        except (ValueError, RecursionError):
            raise UnreadableFile(f"line {number} is not valid JSON") from None
        found = [path for key, path in OF_KEY.items() if isinstance(tree, dict) and key in tree]
        if not found:
            raise UnreadableFile(f"line {number} has none of {', '.join(OF_KEY)}")
        yield found[0], JSON, row


def _cut(data: bytes) -> Iterator[bytes]:
    """Whole groups by resource, as many as make a body of a few MiB."""
    began = ended = 0
    try:
        for _, start, _, end in wire_fields(data):
            if end - began > BODY_BYTES and start > began:
                yield data[began:start]
                began = start
            ended = end
    except ValueError as problem:
        raise UnreadableFile(f"it is no protobuf at byte {ended} ({problem})") from None
    if data[began:]:
        yield data[began:]
