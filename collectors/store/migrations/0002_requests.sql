-- One typed row a request, read from the root span's attributes; what a sender left out is NULL.
-- apply
CREATE TABLE IF NOT EXISTS {db}.requests (
  Timestamp DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
  TraceId String CODEC(ZSTD(1)),
  SpanId String CODEC(ZSTD(1)),
  ServiceName LowCardinality(String),
  ServiceInstance String CODEC(ZSTD(1)),
  Model LowCardinality(String),
  Operation LowCardinality(String),
  Route LowCardinality(String),
  HttpStatus UInt16,
  Status LowCardinality(String),
  ErrorType LowCardinality(String),
  FinishReason LowCardinality(String),
  Stream Bool,
  Choices UInt16,
  E2ENs UInt64 CODEC(T64, ZSTD(1)),
  PromptNs UInt64 CODEC(T64, ZSTD(1)),
  HandoffNs UInt64 CODEC(T64, ZSTD(1)),
  RetrievalNs UInt64 CODEC(T64, ZSTD(1)),
  QueueNs UInt64 CODEC(T64, ZSTD(1)),
  PrefillNs UInt64 CODEC(T64, ZSTD(1)),
  DecodeNs UInt64 CODEC(T64, ZSTD(1)),
  PreemptedNs UInt64 CODEC(T64, ZSTD(1)),
  ToolNs UInt64 CODEC(T64, ZSTD(1)),
  DeliverNs UInt64 CODEC(T64, ZSTD(1)),
  UnattributedNs UInt64 CODEC(T64, ZSTD(1)),
  StageCounts Map(LowCardinality(String), UInt16) CODEC(ZSTD(1)),
  FirstChunkNs Nullable(UInt64) CODEC(ZSTD(1)),
  FirstTokenNs Nullable(UInt64) CODEC(ZSTD(1)),
  FirstAnswerNs Nullable(UInt64) CODEC(ZSTD(1)),
  TpotNs Nullable(Float64) CODEC(ZSTD(1)),
  ItlNs Array(UInt64) CODEC(T64, ZSTD(1)),
  ItlKind LowCardinality(String),
  InputTokens Nullable(UInt32) CODEC(ZSTD(1)),
  OutputTokens Nullable(UInt32) CODEC(ZSTD(1)),
  CachedTokens Nullable(UInt32) CODEC(ZSTD(1)),
  ReasoningTokens Nullable(UInt32) CODEC(ZSTD(1)),
  Preemptions UInt16,
  InFlight UInt32 CODEC(ZSTD(1)),
  Running Nullable(UInt32) CODEC(ZSTD(1)),
  Waiting Nullable(UInt32) CODEC(ZSTD(1)),
  Warm Nullable(Bool),
  ColdReason LowCardinality(String),
  Source LowCardinality(String),
  Repairs Array(String) CODEC(ZSTD(1)),
  Tags Map(LowCardinality(String), String) CODEC(ZSTD(1)),
  Cost Nullable(Float64) CODEC(ZSTD(1)),
  INDEX idx_trace_id TraceId TYPE bloom_filter(0.001) GRANULARITY 1
) ENGINE = MergeTree
PARTITION BY toDate(Timestamp)
ORDER BY (Model, toStartOfHour(Timestamp), Timestamp)
TTL toDateTime(Timestamp) + toIntervalDay({ttl})
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000;
CREATE MATERIALIZED VIEW IF NOT EXISTS {db}.requests_mv TO {db}.requests AS
SELECT
  Timestamp, TraceId, SpanId, ServiceName,
  ResourceAttributes['service.instance.id'] AS ServiceInstance,
  SpanAttributes['stagelens.model'] AS Model,
  SpanAttributes['stagelens.operation'] AS Operation,
  SpanAttributes['http.route'] AS Route,
  toUInt16OrZero(SpanAttributes['http.response.status_code']) AS HttpStatus,
  SpanAttributes['stagelens.status'] AS Status,
  SpanAttributes['error.type'] AS ErrorType,
  SpanAttributes['stagelens.finish_reason'] AS FinishReason,
  SpanAttributes['stagelens.stream'] = 'true' AS Stream,
  toUInt16OrZero(SpanAttributes['stagelens.choices']) AS Choices,
  toUInt64OrZero(SpanAttributes['stagelens.e2e_ns']) AS E2ENs,
  toUInt64OrZero(SpanAttributes['stagelens.stage.prompt_ns']) AS PromptNs,
  toUInt64OrZero(SpanAttributes['stagelens.handoff_ns']) AS HandoffNs,
  toUInt64OrZero(SpanAttributes['stagelens.stage.retrieval_ns']) AS RetrievalNs,
  toUInt64OrZero(SpanAttributes['stagelens.stage.queue_ns']) AS QueueNs,
  toUInt64OrZero(SpanAttributes['stagelens.stage.prefill_ns']) AS PrefillNs,
  toUInt64OrZero(SpanAttributes['stagelens.stage.decode_ns']) AS DecodeNs,
  toUInt64OrZero(SpanAttributes['stagelens.preempted_ns']) AS PreemptedNs,
  toUInt64OrZero(SpanAttributes['stagelens.stage.tool_ns']) AS ToolNs,
  toUInt64OrZero(SpanAttributes['stagelens.stage.deliver_ns']) AS DeliverNs,
  toUInt64OrZero(SpanAttributes['stagelens.stage.unattributed_ns']) AS UnattributedNs,
  CAST(mapFromArrays(
    arrayMap(k -> replaceRegexpOne(k, '^stagelens\\.stage\\.(.*)_count$', '\\1'),
      arrayFilter(k -> startsWith(k, 'stagelens.stage.') AND endsWith(k, '_count'), CAST(mapKeys(SpanAttributes), 'Array(String)'))),
    arrayMap(k -> toUInt16OrZero(SpanAttributes[k]),
      arrayFilter(k -> startsWith(k, 'stagelens.stage.') AND endsWith(k, '_count'), CAST(mapKeys(SpanAttributes), 'Array(String)')))
  ), 'Map(LowCardinality(String), UInt16)') AS StageCounts,
  toUInt64OrNull(SpanAttributes['stagelens.first_chunk_ns']) AS FirstChunkNs,
  toUInt64OrNull(SpanAttributes['stagelens.first_token_ns']) AS FirstTokenNs,
  toUInt64OrNull(SpanAttributes['stagelens.first_answer_ns']) AS FirstAnswerNs,
  if(isFinite(toFloat64OrNull(SpanAttributes['stagelens.tpot_ns'])), toFloat64OrNull(SpanAttributes['stagelens.tpot_ns']), NULL) AS TpotNs,
  arrayMap(g -> toUInt64OrZero(g), arrayFilter(g -> match(g, '^[0-9]+$'), splitByChar(',', SpanAttributes['stagelens.itl_ns']))) AS ItlNs,
  SpanAttributes['stagelens.itl_kind'] AS ItlKind,
  toUInt32OrNull(SpanAttributes['stagelens.tokens.input']) AS InputTokens,
  toUInt32OrNull(SpanAttributes['stagelens.tokens.output']) AS OutputTokens,
  toUInt32OrNull(SpanAttributes['stagelens.tokens.cached']) AS CachedTokens,
  toUInt32OrNull(SpanAttributes['stagelens.tokens.reasoning']) AS ReasoningTokens,
  toUInt16OrZero(SpanAttributes['stagelens.preemptions']) AS Preemptions,
  toUInt32OrZero(SpanAttributes['stagelens.arrival.in_flight']) AS InFlight,
  toUInt32OrNull(SpanAttributes['stagelens.arrival.running']) AS Running,
  toUInt32OrNull(SpanAttributes['stagelens.arrival.waiting']) AS Waiting,
  multiIf(SpanAttributes['stagelens.warm'] = 'true', true, SpanAttributes['stagelens.warm'] = 'false', false, NULL) AS Warm,
  SpanAttributes['stagelens.cold_reason'] AS ColdReason,
  SpanAttributes['stagelens.source'] AS Source,
  JSONExtract(SpanAttributes['stagelens.repairs'], 'Array(String)') AS Repairs,
  CAST(mapFromArrays(
    arrayMap(k -> substring(k, 15), arrayFilter(k -> startsWith(k, 'stagelens.tag.'), CAST(mapKeys(SpanAttributes), 'Array(String)'))),
    arrayMap(k -> SpanAttributes[k], arrayFilter(k -> startsWith(k, 'stagelens.tag.'), CAST(mapKeys(SpanAttributes), 'Array(String)')))
  ), 'Map(LowCardinality(String), String)') AS Tags,
  toFloat64OrNull(SpanAttributes['stagelens.cost']) AS Cost
FROM {db}.otel_traces
WHERE mapContains(SpanAttributes, 'stagelens.record.version');
-- verify
SELECT 1 FROM system.columns WHERE concat('`', database, '`') = '{db}' AND table = 'requests' AND name = 'FirstTokenNs';
SELECT 1 FROM system.tables WHERE concat('`', database, '`') = '{db}' AND name = 'requests_mv';
-- rollback
DROP TABLE IF EXISTS {db}.requests_mv;
DROP TABLE IF EXISTS {db}.requests;
