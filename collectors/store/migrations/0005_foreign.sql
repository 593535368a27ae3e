-- Requests of other tools: which traces have new spans of theirs, and what their rows need.
-- A row of `requests` with Version 0 came from the view, any other from the normaliser; of
-- rows with the same TraceId and SpanId the highest is the one that stays.
-- apply
ALTER TABLE {db}.requests ADD COLUMN IF NOT EXISTS Version UInt64 DEFAULT 0 CODEC(ZSTD(1));
ALTER TABLE {db}.requests ADD COLUMN IF NOT EXISTS SourceDetail LowCardinality(String) DEFAULT '';
CREATE TABLE IF NOT EXISTS {db}.foreign_traces (
  SeenAt DateTime64(3, 'UTC') CODEC(Delta(8), ZSTD(1)),
  TraceId String CODEC(ZSTD(1)),
  Spans UInt32 CODEC(ZSTD(1)),
  Calls UInt32 CODEC(ZSTD(1)),
  INDEX idx_trace_id TraceId TYPE bloom_filter(0.001) GRANULARITY 1
) ENGINE = MergeTree
PARTITION BY toDate(SeenAt)
ORDER BY SeenAt
TTL toDateTime(SeenAt) + toIntervalDay(3)
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000;
CREATE TABLE IF NOT EXISTS {db}.foreign_cursor (
  Name String,
  UpTo DateTime64(3, 'UTC')
) ENGINE = ReplacingMergeTree(UpTo) ORDER BY Name;
CREATE MATERIALIZED VIEW IF NOT EXISTS {db}.foreign_traces_mv TO {db}.foreign_traces AS
SELECT now64(3, 'UTC') AS SeenAt, TraceId, toUInt32(count()) AS Spans,
  toUInt32(countIf(
    SpanName IN ('llm_request', 'http-request') OR ScopeName = 'sglang server'
    OR arrayExists(k -> k IN ('gen_ai.operation.name', 'gen_ai.system', 'gen_ai.provider.name', 'openinference.span.kind', 'llm.request.type', 'langfuse.observation.type')
      OR startsWith(k, 'gen_ai.latency.'), mapKeys(SpanAttributes))
  )) AS Calls
FROM {db}.otel_traces
WHERE ScopeName != 'stagelens' OR (SpanKind = 'Server' AND SpanAttributes['stagelens.source'] = 'upstream')
GROUP BY TraceId;
-- The kinds of metrics that 0001 left out.
CREATE TABLE IF NOT EXISTS {db}.otel_metrics_histogram (
  ResourceAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
  ResourceSchemaUrl String CODEC(ZSTD(1)),
  ScopeName String CODEC(ZSTD(1)),
  ScopeVersion String CODEC(ZSTD(1)),
  ScopeAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
  ScopeDroppedAttrCount UInt32 CODEC(ZSTD(1)),
  ScopeSchemaUrl String CODEC(ZSTD(1)),
  ServiceName LowCardinality(String) CODEC(ZSTD(1)),
  MetricName String CODEC(ZSTD(1)),
  MetricDescription String CODEC(ZSTD(1)),
  MetricUnit String CODEC(ZSTD(1)),
  Attributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
  StartTimeUnix DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
  TimeUnix DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
  Count UInt64 CODEC(Delta(8), ZSTD(1)),
  Sum Float64 CODEC(ZSTD(1)),
  BucketCounts Array(UInt64) CODEC(ZSTD(1)),
  ExplicitBounds Array(Float64) CODEC(ZSTD(1)),
  Min Float64 CODEC(ZSTD(1)),
  Max Float64 CODEC(ZSTD(1)),
  AggregationTemporality Int32 CODEC(ZSTD(1)),
  Exemplars Nested (FilteredAttributes Map(LowCardinality(String), String), TimeUnix DateTime64(9, 'UTC'), Value Float64, SpanId String, TraceId String) CODEC(ZSTD(1)),
  Flags UInt32 CODEC(ZSTD(1))
) ENGINE = MergeTree
PARTITION BY toDate(TimeUnix)
ORDER BY (ServiceName, MetricName, Attributes, toUnixTimestamp64Nano(TimeUnix))
TTL toDateTime(TimeUnix) + toIntervalDay({ttl})
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000;
CREATE TABLE IF NOT EXISTS {db}.otel_metrics_exp_histogram (
  ResourceAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
  ResourceSchemaUrl String CODEC(ZSTD(1)),
  ScopeName String CODEC(ZSTD(1)),
  ScopeVersion String CODEC(ZSTD(1)),
  ScopeAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
  ScopeDroppedAttrCount UInt32 CODEC(ZSTD(1)),
  ScopeSchemaUrl String CODEC(ZSTD(1)),
  ServiceName LowCardinality(String) CODEC(ZSTD(1)),
  MetricName String CODEC(ZSTD(1)),
  MetricDescription String CODEC(ZSTD(1)),
  MetricUnit String CODEC(ZSTD(1)),
  Attributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
  StartTimeUnix DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
  TimeUnix DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
  Count UInt64 CODEC(Delta(8), ZSTD(1)),
  Sum Float64 CODEC(ZSTD(1)),
  Scale Int32 CODEC(ZSTD(1)),
  ZeroCount UInt64 CODEC(ZSTD(1)),
  PositiveOffset Int32 CODEC(ZSTD(1)),
  PositiveBucketCounts Array(UInt64) CODEC(ZSTD(1)),
  NegativeOffset Int32 CODEC(ZSTD(1)),
  NegativeBucketCounts Array(UInt64) CODEC(ZSTD(1)),
  Min Float64 CODEC(ZSTD(1)),
  Max Float64 CODEC(ZSTD(1)),
  AggregationTemporality Int32 CODEC(ZSTD(1)),
  Exemplars Nested (FilteredAttributes Map(LowCardinality(String), String), TimeUnix DateTime64(9, 'UTC'), Value Float64, SpanId String, TraceId String) CODEC(ZSTD(1)),
  Flags UInt32 CODEC(ZSTD(1))
) ENGINE = MergeTree
PARTITION BY toDate(TimeUnix)
ORDER BY (ServiceName, MetricName, Attributes, toUnixTimestamp64Nano(TimeUnix))
TTL toDateTime(TimeUnix) + toIntervalDay({ttl})
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000;
CREATE TABLE IF NOT EXISTS {db}.otel_metrics_summary (
  ResourceAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
  ResourceSchemaUrl String CODEC(ZSTD(1)),
  ScopeName String CODEC(ZSTD(1)),
  ScopeVersion String CODEC(ZSTD(1)),
  ScopeAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
  ScopeDroppedAttrCount UInt32 CODEC(ZSTD(1)),
  ScopeSchemaUrl String CODEC(ZSTD(1)),
  ServiceName LowCardinality(String) CODEC(ZSTD(1)),
  MetricName String CODEC(ZSTD(1)),
  MetricDescription String CODEC(ZSTD(1)),
  MetricUnit String CODEC(ZSTD(1)),
  Attributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
  StartTimeUnix DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
  TimeUnix DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
  Count UInt64 CODEC(Delta(8), ZSTD(1)),
  Sum Float64 CODEC(ZSTD(1)),
  ValueAtQuantiles Nested (Quantile Float64, Value Float64) CODEC(ZSTD(1)),
  Flags UInt32 CODEC(ZSTD(1))
) ENGINE = MergeTree
PARTITION BY toDate(TimeUnix)
ORDER BY (ServiceName, MetricName, Attributes, toUnixTimestamp64Nano(TimeUnix))
TTL toDateTime(TimeUnix) + toIntervalDay({ttl})
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000;
-- verify
SELECT 1 FROM system.columns WHERE concat('`', database, '`') = '{db}' AND table = 'requests' AND name = 'SourceDetail';
SELECT 1 FROM system.columns WHERE concat('`', database, '`') = '{db}' AND table = 'foreign_traces' AND name = 'Calls';
SELECT 1 FROM system.tables WHERE concat('`', database, '`') = '{db}' AND name = 'foreign_traces_mv';
SELECT 1 FROM system.columns WHERE concat('`', database, '`') = '{db}' AND table = 'otel_metrics_histogram' AND name = 'ExplicitBounds';
SELECT 1 FROM system.columns WHERE concat('`', database, '`') = '{db}' AND table = 'otel_metrics_exp_histogram' AND name = 'ZeroCount';
SELECT 1 FROM system.columns WHERE concat('`', database, '`') = '{db}' AND table = 'otel_metrics_summary' AND name = 'ValueAtQuantiles.Quantile';
-- rollback
DROP TABLE IF EXISTS {db}.otel_metrics_histogram;
DROP TABLE IF EXISTS {db}.otel_metrics_exp_histogram;
DROP TABLE IF EXISTS {db}.otel_metrics_summary;
DROP TABLE IF EXISTS {db}.foreign_traces_mv;
DROP TABLE IF EXISTS {db}.foreign_traces;
DROP TABLE IF EXISTS {db}.foreign_cursor;
ALTER TABLE {db}.requests DROP COLUMN IF EXISTS SourceDetail;
ALTER TABLE {db}.requests DROP COLUMN IF EXISTS Version;
