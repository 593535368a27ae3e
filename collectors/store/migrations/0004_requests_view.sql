-- The view of 0002 with tags and stage counts read in one pass: the former copied all
-- attributes of a span once for each tag, which hostile tags made gigabytes of.
-- apply
DROP TABLE IF EXISTS {db}.requests_mv;
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
  CAST(mapApply((k, v) -> (replaceRegexpOne(k, '^stagelens\\.stage\\.(.*)_count$', '\\1'), toUInt16OrZero(v)),
    mapFilter((k, v) -> startsWith(k, 'stagelens.stage.') AND endsWith(k, '_count'), CAST(SpanAttributes, 'Map(String, String)'))
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
  CAST(mapApply((k, v) -> (substring(k, 15), v),
    mapFilter((k, v) -> startsWith(k, 'stagelens.tag.'), CAST(SpanAttributes, 'Map(String, String)'))
  ), 'Map(LowCardinality(String), String)') AS Tags,
  toFloat64OrNull(SpanAttributes['stagelens.cost']) AS Cost
FROM {db}.otel_traces
WHERE mapContains(SpanAttributes, 'stagelens.record.version');
-- verify
SELECT 1 FROM system.tables WHERE concat('`', database, '`') = '{db}' AND name = 'requests_mv' AND create_table_query LIKE '%mapApply%';
-- rollback
DROP TABLE IF EXISTS {db}.requests_mv;
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
