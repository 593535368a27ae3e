"""Export requests for the benchmark: traces of seven spans, each span and body different.

A template is built with the real messages once; further bodies are the template with other
ids, times and durations written over the old ones, so that making them costs little.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.otlp import pairs

NAMES = ("POST /v1/chat/completions", "prompt", "chat m", "queue", "prefill", "decode", "deliver")
BODY_TRACES = 72
STAGES = ("prompt", "queue", "prefill", "decode", "deliver", "unattributed")


def eight(choose: random.Random, _: int) -> dict[str, object]:
    """Eight attributes of the GenAI conventions."""
    return {
        "gen_ai.operation.name": "chat", "gen_ai.request.model": "SmolLM2-135M-Instruct",
        "gen_ai.request.temperature": 0.7, "gen_ai.request.stream": True,
        "gen_ai.usage.input_tokens": choose.randrange(4000), "server.address": "127.0.0.1",
        "gen_ai.usage.output_tokens": choose.randrange(500), "gen_ai.request.max_tokens": 512,
    }  # fmt: skip


def record(choose: random.Random, place: int) -> dict[str, object]:
    """As the proxy sends them: the whole record on the root, little on the others."""
    if place:
        return {"stagelens.stage": STAGES[place % len(STAGES)]}
    times = {f"stagelens.stage.{s}_ns": choose.randrange(10**9) for s in STAGES}
    counts = {f"stagelens.stage.{s}_count": 1 for s in STAGES}
    return {
        "stagelens.record.version": 1, "stagelens.model": "SmolLM2-135M-Instruct",
        "stagelens.operation": "chat", "http.route": "/v1/chat/completions",
        "http.response.status_code": 200, "stagelens.status": "ok", "stagelens.finish_reason": "stop",
        "stagelens.stream": True, "stagelens.e2e_ns": sum(times.values()), **times, **counts,
        "stagelens.first_token_ns": choose.randrange(10**9), "stagelens.tpot_ns": 2e7 * choose.random(),
        "stagelens.itl_ns": ",".join(str(choose.randrange(10**7, 10**8)) for _ in range(32)),
        "stagelens.tokens.input": choose.randrange(4000), "stagelens.tokens.output": 33,
        "stagelens.tokens.cached": 0, "stagelens.arrival.in_flight": choose.randrange(8),
        "stagelens.warm": True, "stagelens.source": "engine", "stagelens.tag.tenant": "t1",
    }  # fmt: skip


KINDS = {"eight": eight, "record": record}


def bodies(spans: int, now_unix_ns: int, kind: str = "eight", seed: int = 1) -> Iterator[bytes]:
    """At least ``spans`` spans in bodies of 504 spans."""
    template, ids, starts, ends = _template(kind, seed)
    rng = np.random.default_rng(seed)
    most = -(-spans // (BODY_TRACES * len(NAMES)))
    plain = np.frombuffer(template, np.uint8)
    for number in range(most):
        body = plain.copy()
        masks = rng.integers(0, 256, 24, np.uint8)
        for at, size in ids:
            mask = masks[:16] if size == 16 else masks[16:]
            body[at : at + size] ^= mask
        begin = now_unix_ns + number * 5_000_000 + rng.integers(0, 5_000_000, len(starts))
        length = rng.exponential(2e8, len(starts)).astype(np.int64)
        _put(body, starts, begin)
        _put(body, ends, begin + length)
        yield body.tobytes()


def _put(body: np.ndarray, places: np.ndarray, values: np.ndarray) -> None:
    eight = values.astype("<i8").view(np.uint8).reshape(-1, 8)
    body[places[:, None] + np.arange(8)] = eight


def _template(kind: str, seed: int) -> tuple[bytes, list[tuple[int, int]], np.ndarray, np.ndarray]:
    choose = random.Random(seed)
    request = ExportTraceServiceRequest()
    group = request.resource_spans.add()
    group.resource.attributes.extend(
        pairs({"service.name": "bench", "service.instance.id": "i1", "telemetry.sdk.language": "python"})
    )
    scope = group.scope_spans.add()
    scope.scope.name, scope.scope.version = "bench", "1.0.0"
    marks: list[tuple[bytes, int]] = []
    for _ in range(BODY_TRACES):
        trace, root = choose.randbytes(16), choose.randbytes(8)
        for place, name in enumerate(NAMES):
            span = scope.spans.add(trace_id=trace, name=name, kind=1 if place else 2)
            span.span_id = choose.randbytes(8) if place else root
            span.parent_span_id = root if place else b""
            span.start_time_unix_nano, span.end_time_unix_nano = (choose.getrandbits(62) for _ in "ab")
            span.attributes.extend(pairs(KINDS[kind](choose, place)))
            marks += [(span.trace_id, 0), (span.span_id, 0), (span.parent_span_id, 0)]
            marks += [(span.start_time_unix_nano.to_bytes(8, "little"), 1)]
            marks += [(span.end_time_unix_nano.to_bytes(8, "little"), 2)]
    body = request.SerializeToString()
    return body, *_places(body, marks)


def _places(
    body: bytes, marks: list[tuple[bytes, int]]
) -> tuple[list[tuple[int, int]], np.ndarray, np.ndarray]:
    """Where each id and time stands: in the order in which they were written."""
    at = 0
    ids: list[tuple[int, int]] = []
    starts, ends = [], []
    for mark, what in marks:
        if not mark:
            continue
        place = body.index(mark, at)
        at = place + len(mark)
        if what == 0:
            ids.append((place, len(mark)))
        else:
            (starts if what == 1 else ends).append(place)
    return ids, np.array(starts), np.array(ends)
