"""A store with many made-up requests, written by ClickHouse itself out of `numbers()`.

The requests spread evenly over the window before `now`. Their lengths and times are drawn
from hashes of their number, so that each run writes the same rows.
"""

from __future__ import annotations

from collectors.store.client import Store

CHUNK = 500_000
GAPS = 16
"""Gaps between tokens kept for each request: the widest column by far."""

_REQUESTS = """\
INSERT INTO {db}.requests (Timestamp, TraceId, SpanId, ServiceName, ServiceInstance, Model, Operation, Route,
  HttpStatus, Status, ErrorType, FinishReason, Stream, Choices, E2ENs, PromptNs, HandoffNs, RetrievalNs,
  QueueNs, PrefillNs, DecodeNs, PreemptedNs, ToolNs, DeliverNs, UnattributedNs, StageCounts, FirstChunkNs,
  FirstTokenNs, FirstAnswerNs, TpotNs, ItlNs, ItlKind, InputTokens, OutputTokens, CachedTokens,
  ReasoningTokens, Preemptions, InFlight, Running, Waiting, Warm, ColdReason, Source, Repairs, Tags, Cost)
WITH (n, salt) -> cityHash64(n, salt) AS h, (n, salt) -> (cityHash64(n, salt) % 1000003) / 1000003 AS u
SELECT
  fromUnixTimestamp64Nano(toInt64({begin} + number * {apart} + h(number, 0) % {apart})) AS Timestamp,
  leftPad(lower(hex(cityHash64(number))), 16, '0') || leftPad(lower(hex(number)), 16, '0') AS TraceId,
  leftPad(lower(hex(number)), 16, '0') AS SpanId, 'stagelens-proxy' AS ServiceName, 'a' AS ServiceInstance,
  arrayElement(['small', 'large', 'code'], h(number, 1) % 3 + 1) AS Model, 'chat' AS Operation,
  if(h(number, 2) % 5 = 0, '/v1/completions', '/v1/chat/completions') AS Route,
  200 AS HttpStatus,
  multiIf(h(number, 3) % 100 = 0, 'error', h(number, 3) % 100 = 1, 'cancelled', 'ok') AS Status,
  if(Status = 'error', 'timeout', '') AS ErrorType, 'stop' AS FinishReason, true AS Stream, 1 AS Choices,
  PromptNs + QueueNs + PrefillNs + DecodeNs + DeliverNs + UnattributedNs AS E2ENs,
  toUInt64(1e6 * exp(u(number, 4))) AS PromptNs, 0 AS HandoffNs, 0 AS RetrievalNs,
  toUInt64(5e6 * exp(3 * u(number, 5))) AS QueueNs,
  toUInt64(2e4 * InputTokens * (0.8 + 0.4 * u(number, 6))) AS PrefillNs,
  toUInt64(1e7 * OutputTokens * (0.8 + 0.4 * u(number, 7))) AS DecodeNs,
  0 AS PreemptedNs, 0 AS ToolNs, toUInt64(1e5 * u(number, 8)) AS DeliverNs,
  toUInt64(1e4 * u(number, 9)) AS UnattributedNs,
  CAST((['prompt', 'queue', 'prefill', 'decode', 'deliver'], [1, 1, 1, 1, 1]),
    'Map(LowCardinality(String), UInt16)') AS StageCounts,
  FirstTokenNs AS FirstChunkNs, PromptNs + QueueNs + PrefillNs AS FirstTokenNs, FirstTokenNs AS FirstAnswerNs,
  if(OutputTokens > 1, DecodeNs / (OutputTokens - 1), NULL) AS TpotNs,
  arrayMap(i -> toUInt64(8e6 + h(number, 20 + i) % 4000000), range({gaps})) AS ItlNs, 'token' AS ItlKind,
  toUInt32(32 * exp(5 * u(number, 10))) AS InputTokens,
  toUInt32(1 + 400 * u(number, 11)) AS OutputTokens,
  if(h(number, 12) % 3 = 0, toUInt32(InputTokens / 2), 0) AS CachedTokens,
  NULL AS ReasoningTokens, 0 AS Preemptions,
  toUInt32(h(number, 13) % 64) AS InFlight, 8 AS Running, 0 AS Waiting, h(number, 14) % 50 != 0 AS Warm,
  if(Warm, '', 'start') AS ColdReason, 'engine' AS Source, [] AS Repairs,
  map('tenant', 't' || toString(h(number, 15) % 20), 'run', 'r' || toString(number % 4)) AS Tags, NULL AS Cost
FROM numbers({first}, {rows})"""
_SPANS = """\
INSERT INTO {db}.otel_traces (Timestamp, TraceId, SpanId, ParentSpanId, SpanName, SpanKind, ServiceName,
  ResourceAttributes, SpanAttributes, Duration)
SELECT Timestamp + toIntervalNanosecond(one.4), TraceId, one.1, one.2, one.3, 'Internal', ServiceName,
  map('service.instance.id', 'a'), map('stagelens.stage', if(one.6, one.3, '')), one.5
FROM {db}.requests
ARRAY JOIN [
  (SpanId, '', 'POST /v1/chat/completions', 0, E2ENs, false),
  (SpanId || 'c', SpanId, 'chat', PromptNs, QueueNs + PrefillNs + DecodeNs, false),
  (SpanId || 'q', SpanId || 'c', 'queue', PromptNs, QueueNs, true),
  (SpanId || 'p', SpanId || 'c', 'prefill', PromptNs + QueueNs, PrefillNs, true),
  (SpanId || 'd', SpanId || 'c', 'decode', PromptNs + QueueNs + PrefillNs, DecodeNs, true)
] AS one
WHERE Timestamp >= fromUnixTimestamp64Nano(toInt64({begin}))"""
_STEPS = """\
INSERT INTO {db}.engine_steps
SELECT
  fromUnixTimestamp64Nano(toInt64({begin} + number * 10000000)) AS Timestamp,
  'stagelens-proxy', 'a', 'small', 0,
  9000000, number % 10 = 0, 128 * (number % 10 = 0), 8, 8, 8, 0, 0.5
FROM numbers({rows})"""


def fill(store: Store, requests: int, days: float, now_unix_ns: int, traced_hours: float) -> None:
    """``requests`` over ``days`` up to now; spans and engine steps for the last ``traced_hours``."""
    begin = now_unix_ns - int(days * 86_400e9)
    apart = int(days * 86_400e9) // requests
    database = f"`{store.database}`"
    for first in range(0, requests, CHUNK):
        rows = min(CHUNK, requests - first)
        sql = _REQUESTS.format(
            db=database, begin=begin, apart=apart, first=first, rows=rows, gaps=GAPS
        )
        store.command(sql)
    traced = now_unix_ns - int(traced_hours * 3600e9)
    store.command(_SPANS.format(db=database, begin=traced))
    store.command(_STEPS.format(db=database, begin=traced, rows=int(traced_hours * 3600 * 100)))
