-- One row an engine iteration.
-- apply
CREATE TABLE IF NOT EXISTS {db}.engine_steps (
  Timestamp DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
  ServiceName LowCardinality(String),
  ServiceInstance String CODEC(ZSTD(1)),
  Model LowCardinality(String),
  Engine UInt16,
  DurationNs UInt64 CODEC(T64, ZSTD(1)),
  PrefillRequests UInt32 CODEC(T64, ZSTD(1)),
  PrefillTokens UInt32 CODEC(T64, ZSTD(1)),
  DecodeRequests UInt32 CODEC(T64, ZSTD(1)),
  DecodeTokens UInt32 CODEC(T64, ZSTD(1)),
  Running UInt32 CODEC(T64, ZSTD(1)),
  Waiting UInt32 CODEC(T64, ZSTD(1)),
  KvCacheUsage Float32 CODEC(ZSTD(1))
) ENGINE = MergeTree
PARTITION BY toDate(Timestamp)
ORDER BY (ServiceInstance, Engine, Timestamp)
TTL toDateTime(Timestamp) + toIntervalDay({ttl})
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000;
-- verify
SELECT 1 FROM system.columns WHERE concat('`', database, '`') = '{db}' AND table = 'engine_steps' AND name = 'DurationNs';
-- rollback
DROP TABLE IF EXISTS {db}.engine_steps;
