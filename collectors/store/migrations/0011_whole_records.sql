-- The view of 0004 for a sender that tells what cannot be: a record whose stages do not add up
-- to its end-to-end time keeps that time, undivided, and says so; a time over ten years, a token
-- after the end and a negative time are no data; an end-to-end time that is missing is the span's.
-- apply
DROP TABLE IF EXISTS {db}.requests_mv;
CREATE MATERIALIZED VIEW IF NOT EXISTS {db}.requests_mv TO {db}.requests AS
WITH
  315360000000000000 AS longest,
  toUInt64OrNull(SpanAttributes['stagelens.e2e_ns']) AS told,
  assumeNotNull(if(told <= longest, told, least(Duration, longest))) AS whole,
  [
    toUInt64OrZero(SpanAttributes['stagelens.stage.prompt_ns']),
    toUInt64OrZero(SpanAttributes['stagelens.stage.retrieval_ns']),
    toUInt64OrZero(SpanAttributes['stagelens.stage.queue_ns']),
    toUInt64OrZero(SpanAttributes['stagelens.stage.prefill_ns']),
    toUInt64OrZero(SpanAttributes['stagelens.stage.decode_ns']),
    toUInt64OrZero(SpanAttributes['stagelens.stage.tool_ns']),
    toUInt64OrZero(SpanAttributes['stagelens.stage.deliver_ns']),
    toUInt64OrZero(SpanAttributes['stagelens.stage.unattributed_ns'])
  ] AS parts,
  arrayAll(p -> p <= longest, parts) AND arraySum(parts) = whole AS adds_up
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
  whole AS E2ENs,
  if(adds_up, parts[1], 0) AS PromptNs,
  least(toUInt64OrZero(SpanAttributes['stagelens.handoff_ns']), if(adds_up, parts[1], 0)) AS HandoffNs,
  if(adds_up, parts[2], 0) AS RetrievalNs,
  if(adds_up, parts[3], 0) AS QueueNs,
  if(adds_up, parts[4], 0) AS PrefillNs,
  if(adds_up, parts[5], 0) AS DecodeNs,
  least(toUInt64OrZero(SpanAttributes['stagelens.preempted_ns']), if(adds_up, parts[5], 0)) AS PreemptedNs,
  if(adds_up, parts[6], 0) AS ToolNs,
  if(adds_up, parts[7], 0) AS DeliverNs,
  if(adds_up, parts[8], whole) AS UnattributedNs,
  CAST(mapApply((k, v) -> (replaceRegexpOne(k, '^stagelens\\.stage\\.(.*)_count$', '\\1'), toUInt16OrZero(v)),
    mapFilter((k, v) -> startsWith(k, 'stagelens.stage.') AND endsWith(k, '_count'), CAST(SpanAttributes, 'Map(String, String)'))
  ), 'Map(LowCardinality(String), UInt16)') AS StageCounts,
  if(toUInt64OrNull(SpanAttributes['stagelens.first_chunk_ns']) <= whole, toUInt64OrNull(SpanAttributes['stagelens.first_chunk_ns']), NULL) AS FirstChunkNs,
  if(toUInt64OrNull(SpanAttributes['stagelens.first_token_ns']) <= whole, toUInt64OrNull(SpanAttributes['stagelens.first_token_ns']), NULL) AS FirstTokenNs,
  if(toUInt64OrNull(SpanAttributes['stagelens.first_answer_ns']) <= whole, toUInt64OrNull(SpanAttributes['stagelens.first_answer_ns']), NULL) AS FirstAnswerNs,
  if(toFloat64OrNull(SpanAttributes['stagelens.tpot_ns']) BETWEEN 0 AND whole, toFloat64OrNull(SpanAttributes['stagelens.tpot_ns']), NULL) AS TpotNs,
  arrayFilter(g -> g <= longest, arrayMap(g -> toUInt64OrZero(g), arrayFilter(g -> match(g, '^[0-9]+$'), splitByChar(',', SpanAttributes['stagelens.itl_ns'])))) AS ItlNs,
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
  arrayConcat(JSONExtract(SpanAttributes['stagelens.repairs'], 'Array(String)'), if(adds_up, [], ['stages_do_not_add_up:undivided'])) AS Repairs,
  CAST(mapApply((k, v) -> (substring(k, 15), v),
    mapFilter((k, v) -> startsWith(k, 'stagelens.tag.'), CAST(SpanAttributes, 'Map(String, String)'))
  ), 'Map(LowCardinality(String), String)') AS Tags,
  if(toFloat64OrNull(SpanAttributes['stagelens.cost']) BETWEEN 0 AND 1e15, toFloat64OrNull(SpanAttributes['stagelens.cost']), NULL) AS Cost
FROM {db}.otel_traces
WHERE mapContains(SpanAttributes, 'stagelens.record.version');
-- verify
SELECT 1 FROM system.tables WHERE concat('`', database, '`') = '{db}' AND name = 'requests_mv' AND create_table_query LIKE '%stages_do_not_add_up%';
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
