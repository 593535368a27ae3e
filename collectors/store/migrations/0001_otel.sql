-- The tables of the OpenTelemetry Collector's ClickHouse exporter, which it may write to as well.
-- apply
CREATE TABLE IF NOT EXISTS {db}.otel_traces (
  Timestamp DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
  TraceId String CODEC(ZSTD(1)),
  SpanId String CODEC(ZSTD(1)),
  ParentSpanId String CODEC(ZSTD(1)),
  TraceState String CODEC(ZSTD(1)),
  SpanName LowCardinality(String) CODEC(ZSTD(1)),
  SpanKind LowCardinality(String) CODEC(ZSTD(1)),
  ServiceName LowCardinality(String) CODEC(ZSTD(1)),
  ResourceAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
  ScopeName String CODEC(ZSTD(1)),
  ScopeVersion String CODEC(ZSTD(1)),
  SpanAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
  Duration UInt64 CODEC(ZSTD(1)),
  StatusCode LowCardinality(String) CODEC(ZSTD(1)),
  StatusMessage String CODEC(ZSTD(1)),
  Events Nested (Timestamp DateTime64(9, 'UTC'), Name LowCardinality(String), Attributes Map(LowCardinality(String), String)) CODEC(ZSTD(1)),
  Links Nested (TraceId String, SpanId String, TraceState String, Attributes Map(LowCardinality(String), String)) CODEC(ZSTD(1)),
  INDEX idx_trace_id TraceId TYPE bloom_filter(0.001) GRANULARITY 1,
  INDEX idx_res_attr_key mapKeys(ResourceAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
  INDEX idx_res_attr_value mapValues(ResourceAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
  INDEX idx_span_attr_key mapKeys(SpanAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
  INDEX idx_span_attr_value mapValues(SpanAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
  INDEX idx_duration Duration TYPE minmax GRANULARITY 1
) ENGINE = MergeTree
PARTITION BY toDate(Timestamp)
ORDER BY (ServiceName, SpanName, toDateTime(Timestamp))
TTL toDateTime(Timestamp) + toIntervalDay({ttl})
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000;
CREATE TABLE IF NOT EXISTS {db}.otel_traces_trace_id_ts (
  TraceId String CODEC(ZSTD(1)),
  Start DateTime('UTC') CODEC(Delta, ZSTD(1)),
  End DateTime('UTC') CODEC(Delta, ZSTD(1)),
  INDEX idx_trace_id TraceId TYPE bloom_filter(0.01) GRANULARITY 1
) ENGINE = MergeTree
PARTITION BY toDate(Start)
ORDER BY (TraceId, Start)
TTL Start + toIntervalDay({ttl})
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000;
CREATE MATERIALIZED VIEW IF NOT EXISTS {db}.otel_traces_trace_id_ts_mv TO {db}.otel_traces_trace_id_ts AS
SELECT TraceId, min(Timestamp) AS Start, max(Timestamp) AS End
FROM {db}.otel_traces WHERE TraceId != '' GROUP BY TraceId;
CREATE TABLE IF NOT EXISTS {db}.otel_logs (
  Timestamp DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
  TraceId String CODEC(ZSTD(1)),
  SpanId String CODEC(ZSTD(1)),
  TraceFlags UInt8,
  SeverityText LowCardinality(String) CODEC(ZSTD(1)),
  SeverityNumber UInt8,
  ServiceName LowCardinality(String) CODEC(ZSTD(1)),
  Body String CODEC(ZSTD(1)),
  ResourceSchemaUrl LowCardinality(String) CODEC(ZSTD(1)),
  ResourceAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
  ScopeSchemaUrl LowCardinality(String) CODEC(ZSTD(1)),
  ScopeName String CODEC(ZSTD(1)),
  ScopeVersion LowCardinality(String) CODEC(ZSTD(1)),
  ScopeAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
  LogAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
  EventName String CODEC(ZSTD(1)),
  INDEX idx_trace_id TraceId TYPE bloom_filter(0.001) GRANULARITY 1,
  INDEX idx_log_attr_key mapKeys(LogAttributes) TYPE bloom_filter(0.01) GRANULARITY 1
) ENGINE = MergeTree
PARTITION BY toDate(Timestamp)
ORDER BY (toStartOfFiveMinutes(Timestamp), ServiceName, Timestamp)
TTL toDateTime(Timestamp) + toIntervalDay({ttl})
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000;
CREATE TABLE IF NOT EXISTS {db}.otel_metrics_gauge (
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
  Value Float64 CODEC(ZSTD(1)),
  Flags UInt32 CODEC(ZSTD(1)),
  Exemplars Nested (FilteredAttributes Map(LowCardinality(String), String), TimeUnix DateTime64(9, 'UTC'), Value Float64, SpanId String, TraceId String) CODEC(ZSTD(1))
) ENGINE = MergeTree
PARTITION BY toDate(TimeUnix)
ORDER BY (ServiceName, MetricName, Attributes, toUnixTimestamp64Nano(TimeUnix))
TTL toDateTime(TimeUnix) + toIntervalDay({ttl})
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000;
CREATE TABLE IF NOT EXISTS {db}.otel_metrics_sum (
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
  Value Float64 CODEC(ZSTD(1)),
  Flags UInt32 CODEC(ZSTD(1)),
  Exemplars Nested (FilteredAttributes Map(LowCardinality(String), String), TimeUnix DateTime64(9, 'UTC'), Value Float64, SpanId String, TraceId String) CODEC(ZSTD(1)),
  AggregationTemporality Int32 CODEC(ZSTD(1)),
  IsMonotonic Bool CODEC(Delta(1), ZSTD(1))
) ENGINE = MergeTree
PARTITION BY toDate(TimeUnix)
ORDER BY (ServiceName, MetricName, Attributes, toUnixTimestamp64Nano(TimeUnix))
TTL toDateTime(TimeUnix) + toIntervalDay({ttl})
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000;
-- verify
SELECT 1 FROM system.columns WHERE concat('`', database, '`') = '{db}' AND table = 'otel_traces' AND name = 'SpanAttributes';
SELECT 1 FROM system.tables WHERE concat('`', database, '`') = '{db}' AND name = 'otel_traces_trace_id_ts_mv';
SELECT 1 FROM system.tables WHERE concat('`', database, '`') = '{db}' AND name = 'otel_metrics_sum';
-- rollback
DROP TABLE IF EXISTS {db}.otel_traces_trace_id_ts_mv;
DROP TABLE IF EXISTS {db}.otel_traces_trace_id_ts;
DROP TABLE IF EXISTS {db}.otel_traces;
DROP TABLE IF EXISTS {db}.otel_logs;
DROP TABLE IF EXISTS {db}.otel_metrics_gauge;
DROP TABLE IF EXISTS {db}.otel_metrics_sum;
