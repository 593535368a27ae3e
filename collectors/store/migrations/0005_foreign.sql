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
WHERE ScopeName != 'stagelens' OR SpanAttributes['stagelens.source'] = 'upstream'
GROUP BY TraceId;
-- verify
SELECT 1 FROM system.columns WHERE concat('`', database, '`') = '{db}' AND table = 'requests' AND name = 'SourceDetail';
SELECT 1 FROM system.columns WHERE concat('`', database, '`') = '{db}' AND table = 'foreign_traces' AND name = 'Calls';
SELECT 1 FROM system.tables WHERE concat('`', database, '`') = '{db}' AND name = 'foreign_traces_mv';
-- rollback
DROP TABLE IF EXISTS {db}.foreign_traces_mv;
DROP TABLE IF EXISTS {db}.foreign_traces;
DROP TABLE IF EXISTS {db}.foreign_cursor;
ALTER TABLE {db}.requests DROP COLUMN IF EXISTS SourceDetail;
ALTER TABLE {db}.requests DROP COLUMN IF EXISTS Version;
