"""Whatever is sent, the receiver answers 2xx or 4xx: never 5xx, never an exception."""

from __future__ import annotations

import asyncio
import gzip

import httpx
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.counts import Counts
from collectors.receive.decode import BadBody, decompress
from collectors.receive.http import OtlpHttp
from collectors.receive.signals import SIGNALS
from collectors.settings import CollectorSettings
from tests.support.clock import FakeClock
from tests.support.otlp import request, span
from tests.unit.collectors.live_receiver import NOW

VALID = request(span(1, NOW), span(2, NOW, {"a": [1, "x"]})).SerializeToString()
LIMIT = 1 << 16


class Taking:
    def offer(self, batch, size, origin=None) -> bool:
        return True


def answer(path: str, body: bytes, headers: dict[str, str]) -> httpx.Response:
    made = CollectorSettings(max_body_bytes=LIMIT)
    app = OtlpHttp(made, Taking(), Counts(), FakeClock(unix_ns=NOW))

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            return await client.post(path, content=body, headers=headers)

    return asyncio.run(send())


def damaged(body: bytes, cuts: tuple[int, int], middle: bytes) -> bytes:
    first, last = sorted(cut % (len(body) + 1) for cut in cuts)
    return body[:first] + middle + body[last:]


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["resourceSpans", "scopeSpans", "spans", "traceId", "attributes", "value",
                         "key", "intValue", "kind", "startTimeUnixNano", "resource"]),
        inner, max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(
    body=st.binary(max_size=400)
    | st.builds(damaged, st.just(VALID), st.tuples(st.integers(0), st.integers(0)), st.binary(max_size=6)),
    path=st.sampled_from([*SIGNALS, "/v1/other"]),
    kind=st.sampled_from(["application/x-protobuf", "application/json", "text/plain", ""]),
    coding=st.sampled_from(["", "gzip", "deflate", "zstd", "br", "identity"]),
    pack=st.booleans(),
)
def test_any_bytes_are_answered_with_2xx_or_4xx(body, path, kind, coding, pack):
    """Random bytes and damaged requests, packed or said to be."""
    if pack and coding in ("gzip", "zstd"):
        body = gzip.compress(body) if coding == "gzip" else zstandard.compress(body)
    got = answer(path, body, {"content-type": kind, "content-encoding": coding})
    assert got.status_code // 100 in (2, 4)


@settings(max_examples=150, deadline=None)
@given(tree=st.dictionaries(st.just("resourceSpans"), json_like), path=st.sampled_from(list(SIGNALS)))
def test_any_json_is_answered_with_2xx_or_4xx(tree, path):
    """Trees built of OTLP's own names with values of any kind."""
    import json

    got = answer(path, json.dumps(tree).encode(), {"content-type": "application/json"})
    assert got.status_code // 100 in (2, 4)


@given(st.lists(st.binary(max_size=2000), min_size=1, max_size=4))
def test_zstd_frames_are_read_one_after_another(parts):
    """The plain bytes come back, whatever the frames."""
    packed = b"".join(zstandard.ZstdCompressor().compress(part) for part in parts)
    assert decompress(packed, "zstd", LIMIT) == b"".join(parts)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (zstandard.compress(bytes(200 << 20)), 413),
        (zstandard.compress(VALID)[:-3], 400),
        (b"no zstd at all", 400),
        (zstandard.compress(VALID) + b"tail", 400),
    ],
)
def test_zstd_bombs_and_damage_are_refused(body, status):
    """413 over the limit after decompression, 400 for what is broken (faults 71)."""
    with pytest.raises(BadBody) as refusal:
        decompress(body, "zstd", LIMIT)
    assert refusal.value.status == status
