-- Sketches of each quantity by minute and by hour, and by what requests are mostly sliced by. Each
-- insert into `requests` adds here under its own token, so that a retry adds nothing. Requests that lie
-- there already are added once; emptied first, so that a step that was cut off can be run again.
-- Warm and Cached: 1 yes, 0 no, -1 not known. A quantity that a request does not have is not counted.
-- apply
CREATE TABLE IF NOT EXISTS {db}.requests_1m (
  Quantity LowCardinality(String),
  Minute DateTime('UTC') CODEC(Delta, ZSTD(1)),
  Model LowCardinality(String),
  Route LowCardinality(String),
  Operation LowCardinality(String),
  Source LowCardinality(String),
  Status LowCardinality(String),
  Stream Bool,
  Warm Int8,
  Cached Int8,
  N SimpleAggregateFunction(sum, UInt64),
  Sum SimpleAggregateFunction(sum, UInt64),
  Max SimpleAggregateFunction(max, UInt64),
  Sketch AggregateFunction(quantilesTDigest(0.5, 0.9, 0.95, 0.99), UInt64)
) ENGINE = AggregatingMergeTree
PARTITION BY toDate(Minute)
ORDER BY (Quantity, Minute, Model, Route, Operation, Source, Status, Stream, Warm, Cached)
TTL Minute + toIntervalDay({rollup_ttl})
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000;
DROP TABLE IF EXISTS {db}.requests_1m_mv;
TRUNCATE TABLE {db}.requests_1m;
INSERT INTO {db}.requests_1m
SELECT Quantity, Minute, Model, Route, Operation, Source, Status, Stream, Warm, Cached,
  count() AS N, sum(Value) AS Sum, max(Value) AS Max,
  quantilesTDigestState(0.5, 0.9, 0.95, 0.99)(Value) AS Sketch
FROM (
  SELECT
    toStartOfMinute(Timestamp) AS Minute, Model, Route, Operation, Source, Status, Stream,
    CAST(multiIf(isNull(r.Warm), -1, r.Warm, 1, 0), 'Int8') AS Warm,
    CAST(multiIf(isNull(CachedTokens), -1, CachedTokens > 0, 1, 0), 'Int8') AS Cached,
    CAST(one.1, 'LowCardinality(String)') AS Quantity, one.2 AS Value
  FROM {db}.requests AS r ARRAY JOIN arrayFilter(x -> x.3, [
    ('e2e', toUInt64(ifNull(E2ENs, 0)), true),
    ('ttft', toUInt64(ifNull(FirstTokenNs, 0)), isNotNull(FirstTokenNs)),
    ('first_answer', toUInt64(ifNull(FirstAnswerNs, 0)), isNotNull(FirstAnswerNs)),
    ('tpot', toUInt64(ifNull(TpotNs, 0)), isNotNull(TpotNs)),
    ('prompt', toUInt64(ifNull(PromptNs, 0)), StageCounts['prompt'] > 0 OR PromptNs > 0),
    ('retrieval', toUInt64(ifNull(RetrievalNs, 0)), StageCounts['retrieval'] > 0 OR RetrievalNs > 0),
    ('queue', toUInt64(ifNull(QueueNs, 0)), StageCounts['queue'] > 0 OR QueueNs > 0),
    ('prefill', toUInt64(ifNull(PrefillNs, 0)), StageCounts['prefill'] > 0 OR PrefillNs > 0),
    ('decode', toUInt64(ifNull(DecodeNs, 0)), StageCounts['decode'] > 0 OR DecodeNs > 0),
    ('tool', toUInt64(ifNull(ToolNs, 0)), StageCounts['tool'] > 0 OR ToolNs > 0),
    ('deliver', toUInt64(ifNull(DeliverNs, 0)), StageCounts['deliver'] > 0 OR DeliverNs > 0),
    ('unattributed', toUInt64(ifNull(UnattributedNs, 0)), true),
    ('input_tokens', toUInt64(ifNull(InputTokens, 0)), isNotNull(InputTokens)),
    ('output_tokens', toUInt64(ifNull(OutputTokens, 0)), isNotNull(OutputTokens)),
    ('cached_tokens', toUInt64(ifNull(CachedTokens, 0)), isNotNull(CachedTokens))
  ]) AS one
)
GROUP BY Quantity, Minute, Model, Route, Operation, Source, Status, Stream, Warm, Cached;
CREATE MATERIALIZED VIEW IF NOT EXISTS {db}.requests_1m_mv TO {db}.requests_1m AS
SELECT Quantity, Minute, Model, Route, Operation, Source, Status, Stream, Warm, Cached,
  count() AS N, sum(Value) AS Sum, max(Value) AS Max,
  quantilesTDigestState(0.5, 0.9, 0.95, 0.99)(Value) AS Sketch
FROM (
  SELECT
    toStartOfMinute(Timestamp) AS Minute, Model, Route, Operation, Source, Status, Stream,
    CAST(multiIf(isNull(r.Warm), -1, r.Warm, 1, 0), 'Int8') AS Warm,
    CAST(multiIf(isNull(CachedTokens), -1, CachedTokens > 0, 1, 0), 'Int8') AS Cached,
    CAST(one.1, 'LowCardinality(String)') AS Quantity, one.2 AS Value
  FROM {db}.requests AS r ARRAY JOIN arrayFilter(x -> x.3, [
    ('e2e', toUInt64(ifNull(E2ENs, 0)), true),
    ('ttft', toUInt64(ifNull(FirstTokenNs, 0)), isNotNull(FirstTokenNs)),
    ('first_answer', toUInt64(ifNull(FirstAnswerNs, 0)), isNotNull(FirstAnswerNs)),
    ('tpot', toUInt64(ifNull(TpotNs, 0)), isNotNull(TpotNs)),
    ('prompt', toUInt64(ifNull(PromptNs, 0)), StageCounts['prompt'] > 0 OR PromptNs > 0),
    ('retrieval', toUInt64(ifNull(RetrievalNs, 0)), StageCounts['retrieval'] > 0 OR RetrievalNs > 0),
    ('queue', toUInt64(ifNull(QueueNs, 0)), StageCounts['queue'] > 0 OR QueueNs > 0),
    ('prefill', toUInt64(ifNull(PrefillNs, 0)), StageCounts['prefill'] > 0 OR PrefillNs > 0),
    ('decode', toUInt64(ifNull(DecodeNs, 0)), StageCounts['decode'] > 0 OR DecodeNs > 0),
    ('tool', toUInt64(ifNull(ToolNs, 0)), StageCounts['tool'] > 0 OR ToolNs > 0),
    ('deliver', toUInt64(ifNull(DeliverNs, 0)), StageCounts['deliver'] > 0 OR DeliverNs > 0),
    ('unattributed', toUInt64(ifNull(UnattributedNs, 0)), true),
    ('input_tokens', toUInt64(ifNull(InputTokens, 0)), isNotNull(InputTokens)),
    ('output_tokens', toUInt64(ifNull(OutputTokens, 0)), isNotNull(OutputTokens)),
    ('cached_tokens', toUInt64(ifNull(CachedTokens, 0)), isNotNull(CachedTokens))
  ]) AS one
)
GROUP BY Quantity, Minute, Model, Route, Operation, Source, Status, Stream, Warm, Cached;
CREATE TABLE IF NOT EXISTS {db}.requests_1h (
  Quantity LowCardinality(String),
  Hour DateTime('UTC') CODEC(Delta, ZSTD(1)),
  Model LowCardinality(String),
  Route LowCardinality(String),
  Operation LowCardinality(String),
  Source LowCardinality(String),
  Status LowCardinality(String),
  Stream Bool,
  Warm Int8,
  Cached Int8,
  N SimpleAggregateFunction(sum, UInt64),
  Sum SimpleAggregateFunction(sum, UInt64),
  Max SimpleAggregateFunction(max, UInt64),
  Sketch AggregateFunction(quantilesTDigest(0.5, 0.9, 0.95, 0.99), UInt64)
) ENGINE = AggregatingMergeTree
PARTITION BY toDate(Hour)
ORDER BY (Quantity, Hour, Model, Route, Operation, Source, Status, Stream, Warm, Cached)
TTL Hour + toIntervalDay({rollup_ttl})
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000;
DROP TABLE IF EXISTS {db}.requests_1h_mv;
TRUNCATE TABLE {db}.requests_1h;
INSERT INTO {db}.requests_1h
SELECT Quantity, Hour, Model, Route, Operation, Source, Status, Stream, Warm, Cached,
  count() AS N, sum(Value) AS Sum, max(Value) AS Max,
  quantilesTDigestState(0.5, 0.9, 0.95, 0.99)(Value) AS Sketch
FROM (
  SELECT
    toStartOfHour(Timestamp) AS Hour, Model, Route, Operation, Source, Status, Stream,
    CAST(multiIf(isNull(r.Warm), -1, r.Warm, 1, 0), 'Int8') AS Warm,
    CAST(multiIf(isNull(CachedTokens), -1, CachedTokens > 0, 1, 0), 'Int8') AS Cached,
    CAST(one.1, 'LowCardinality(String)') AS Quantity, one.2 AS Value
  FROM {db}.requests AS r ARRAY JOIN arrayFilter(x -> x.3, [
    ('e2e', toUInt64(ifNull(E2ENs, 0)), true),
    ('ttft', toUInt64(ifNull(FirstTokenNs, 0)), isNotNull(FirstTokenNs)),
    ('first_answer', toUInt64(ifNull(FirstAnswerNs, 0)), isNotNull(FirstAnswerNs)),
    ('tpot', toUInt64(ifNull(TpotNs, 0)), isNotNull(TpotNs)),
    ('prompt', toUInt64(ifNull(PromptNs, 0)), StageCounts['prompt'] > 0 OR PromptNs > 0),
    ('retrieval', toUInt64(ifNull(RetrievalNs, 0)), StageCounts['retrieval'] > 0 OR RetrievalNs > 0),
    ('queue', toUInt64(ifNull(QueueNs, 0)), StageCounts['queue'] > 0 OR QueueNs > 0),
    ('prefill', toUInt64(ifNull(PrefillNs, 0)), StageCounts['prefill'] > 0 OR PrefillNs > 0),
    ('decode', toUInt64(ifNull(DecodeNs, 0)), StageCounts['decode'] > 0 OR DecodeNs > 0),
    ('tool', toUInt64(ifNull(ToolNs, 0)), StageCounts['tool'] > 0 OR ToolNs > 0),
    ('deliver', toUInt64(ifNull(DeliverNs, 0)), StageCounts['deliver'] > 0 OR DeliverNs > 0),
    ('unattributed', toUInt64(ifNull(UnattributedNs, 0)), true),
    ('input_tokens', toUInt64(ifNull(InputTokens, 0)), isNotNull(InputTokens)),
    ('output_tokens', toUInt64(ifNull(OutputTokens, 0)), isNotNull(OutputTokens)),
    ('cached_tokens', toUInt64(ifNull(CachedTokens, 0)), isNotNull(CachedTokens))
  ]) AS one
)
GROUP BY Quantity, Hour, Model, Route, Operation, Source, Status, Stream, Warm, Cached;
CREATE MATERIALIZED VIEW IF NOT EXISTS {db}.requests_1h_mv TO {db}.requests_1h AS
SELECT Quantity, Hour, Model, Route, Operation, Source, Status, Stream, Warm, Cached,
  count() AS N, sum(Value) AS Sum, max(Value) AS Max,
  quantilesTDigestState(0.5, 0.9, 0.95, 0.99)(Value) AS Sketch
FROM (
  SELECT
    toStartOfHour(Timestamp) AS Hour, Model, Route, Operation, Source, Status, Stream,
    CAST(multiIf(isNull(r.Warm), -1, r.Warm, 1, 0), 'Int8') AS Warm,
    CAST(multiIf(isNull(CachedTokens), -1, CachedTokens > 0, 1, 0), 'Int8') AS Cached,
    CAST(one.1, 'LowCardinality(String)') AS Quantity, one.2 AS Value
  FROM {db}.requests AS r ARRAY JOIN arrayFilter(x -> x.3, [
    ('e2e', toUInt64(ifNull(E2ENs, 0)), true),
    ('ttft', toUInt64(ifNull(FirstTokenNs, 0)), isNotNull(FirstTokenNs)),
    ('first_answer', toUInt64(ifNull(FirstAnswerNs, 0)), isNotNull(FirstAnswerNs)),
    ('tpot', toUInt64(ifNull(TpotNs, 0)), isNotNull(TpotNs)),
    ('prompt', toUInt64(ifNull(PromptNs, 0)), StageCounts['prompt'] > 0 OR PromptNs > 0),
    ('retrieval', toUInt64(ifNull(RetrievalNs, 0)), StageCounts['retrieval'] > 0 OR RetrievalNs > 0),
    ('queue', toUInt64(ifNull(QueueNs, 0)), StageCounts['queue'] > 0 OR QueueNs > 0),
    ('prefill', toUInt64(ifNull(PrefillNs, 0)), StageCounts['prefill'] > 0 OR PrefillNs > 0),
    ('decode', toUInt64(ifNull(DecodeNs, 0)), StageCounts['decode'] > 0 OR DecodeNs > 0),
    ('tool', toUInt64(ifNull(ToolNs, 0)), StageCounts['tool'] > 0 OR ToolNs > 0),
    ('deliver', toUInt64(ifNull(DeliverNs, 0)), StageCounts['deliver'] > 0 OR DeliverNs > 0),
    ('unattributed', toUInt64(ifNull(UnattributedNs, 0)), true),
    ('input_tokens', toUInt64(ifNull(InputTokens, 0)), isNotNull(InputTokens)),
    ('output_tokens', toUInt64(ifNull(OutputTokens, 0)), isNotNull(OutputTokens)),
    ('cached_tokens', toUInt64(ifNull(CachedTokens, 0)), isNotNull(CachedTokens))
  ]) AS one
)
GROUP BY Quantity, Hour, Model, Route, Operation, Source, Status, Stream, Warm, Cached;
-- verify
SELECT 1 FROM system.columns WHERE concat('`', database, '`') = '{db}' AND table = 'requests_1m' AND name = 'Sketch';
SELECT 1 FROM system.tables WHERE concat('`', database, '`') = '{db}' AND name = 'requests_1m_mv';
SELECT 1 FROM system.columns WHERE concat('`', database, '`') = '{db}' AND table = 'requests_1h' AND name = 'Sketch';
SELECT 1 FROM system.tables WHERE concat('`', database, '`') = '{db}' AND name = 'requests_1h_mv';
-- rollback
DROP TABLE IF EXISTS {db}.requests_1m_mv;
DROP TABLE IF EXISTS {db}.requests_1m;
DROP TABLE IF EXISTS {db}.requests_1h_mv;
DROP TABLE IF EXISTS {db}.requests_1h;
