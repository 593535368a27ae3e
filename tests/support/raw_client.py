"""A bare HTTP client that stamps what it sees, so that its own weight does not count.

The official clients build requests and parse chunks for milliseconds; for comparing
clocks the time between the first byte written and the chunk read is wanted.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field


@dataclass
class Seen:
    """What a client saw of one request; stamps are seconds after the first byte written."""

    status: int = 0
    trace_id: str = ""
    first_token_s: float | None = None
    e2e_s: float = 0.0
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


async def post(port: int, path: str, payload: dict[str, object], **headers: str) -> Seen:
    """Send one request on its own connection; a stream's first token is the first content."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    request = request_bytes(path, payload, **headers)
    seen = Seen()
    began = time.monotonic()
    writer.write(request)
    try:
        await _read(reader, seen, began)
    finally:
        writer.close()
    return seen


def request_bytes(path: str, payload: dict[str, object], **headers: str) -> bytes:
    """A whole HTTP/1.1 POST of ``payload`` as JSON; the server closes after its answer."""
    body = json.dumps(payload).encode()
    head = [f"POST {path} HTTP/1.1", "Host: test", "Content-Type: application/json",
            f"Content-Length: {len(body)}", "Connection: close"]  # fmt: skip
    head += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


async def _read(reader: asyncio.StreamReader, seen: Seen, began: float) -> None:
    raw = bytearray()
    while part := await reader.read(65536):
        now = time.monotonic() - began
        raw += part
        if seen.first_token_s is None and has_token(part):
            seen.first_token_s = now
        seen.e2e_s = now
        if raw.endswith(b"0\r\n\r\n"):
            break
    head, _, seen.body = bytes(raw).partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    seen.status = int(lines[0].split(" ")[1])
    for line in lines[1:]:
        name, _, value = line.partition(": ")
        seen.headers[name.lower()] = value
    seen.trace_id = seen.headers.get("x-stagelens-trace-id", "")


def has_token(part: bytes) -> bool:
    """A chunk with content that is not the role prelude (the server writes them apart)."""
    return any(
        b'"content":' in line and b'"role"' not in line for line in part.split(b"\n")
    )
