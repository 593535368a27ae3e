-- Chunks of documents that pipelines search. No TTL: they stay until they are removed.
-- apply
CREATE TABLE IF NOT EXISTS {db}.documents (
  Collection LowCardinality(String),
  Source String CODEC(ZSTD(1)),
  Chunk UInt32 CODEC(T64, ZSTD(1)),
  Version UInt64 CODEC(ZSTD(1)),
  AddedAt DateTime64(3, 'UTC') CODEC(ZSTD(1)),
  Text String CODEC(ZSTD(3)),
  Words String CODEC(ZSTD(3)),
  WordCount UInt32 CODEC(T64, ZSTD(1)),
  EmbeddingModel LowCardinality(String),
  Embedding Array(Float32) CODEC(ZSTD(1)),
  INDEX words Words TYPE tokenbf_v1(32768, 3, 0) GRANULARITY 1
) ENGINE = MergeTree
ORDER BY (Collection, Source, Chunk)
SETTINGS index_granularity = 1024, non_replicated_deduplication_window = 1000;
-- verify
SELECT 1 FROM system.columns WHERE concat('`', database, '`') = '{db}' AND table = 'documents' AND name = 'Embedding';
-- rollback
DROP TABLE IF EXISTS {db}.documents;
