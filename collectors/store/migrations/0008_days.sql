-- The sketches of whole days, merged out of those of their hours: a long window then has few to
-- merge. They are made when a day is over (collectors/store/rollups.py), not with each insert, so
-- that writing costs no more; a reader takes a day only while it counts what its hours count.
-- No window of insert tokens here: a day that is made anew may be the same rows again.
-- apply
CREATE TABLE IF NOT EXISTS {db}.requests_1d (
  Quantity LowCardinality(String),
  Day DateTime('UTC') CODEC(Delta, ZSTD(1)),
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
PARTITION BY toDate(Day)
ORDER BY (Quantity, Day, Model, Route, Operation, Source, Status, Stream, Warm, Cached)
TTL Day + toIntervalDay({rollup_ttl})
SETTINGS ttl_only_drop_parts = 1;
-- verify
SELECT 1 FROM system.columns WHERE concat('`', database, '`') = '{db}' AND table = 'requests_1d' AND name = 'Sketch';
-- rollback
DROP TABLE IF EXISTS {db}.requests_1d;
