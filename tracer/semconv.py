"""Every name that Stagelens writes or reads, once.

Standard names are those of the OpenTelemetry GenAI and HTTP semantic conventions
(GenAI ones are of stability *Development* and their Python constants are
deprecated, so the literal names stand here). What the standards do not name is
under ``stagelens.``. Durations under ``stagelens.`` are integer nanoseconds and
end in ``_ns``; a missing attribute means "no data", never zero.
"""

from __future__ import annotations

from typing import Final

from tracer.stages import Stage

# --- OpenTelemetry GenAI -----------------------------------------------------
GEN_AI_OPERATION_NAME: Final = "gen_ai.operation.name"
GEN_AI_PROVIDER_NAME: Final = "gen_ai.provider.name"
GEN_AI_REQUEST_MODEL: Final = "gen_ai.request.model"
GEN_AI_REQUEST_STREAM: Final = "gen_ai.request.stream"
GEN_AI_REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
GEN_AI_REQUEST_CHOICE_COUNT: Final = "gen_ai.request.choice.count"
GEN_AI_RESPONSE_ID: Final = "gen_ai.response.id"
GEN_AI_RESPONSE_MODEL: Final = "gen_ai.response.model"
GEN_AI_RESPONSE_FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
GEN_AI_DATA_SOURCE_ID: Final = "gen_ai.data_source.id"
GEN_AI_REQUEST_TOP_K: Final = "gen_ai.request.top_k"
GEN_AI_TOOL_NAME: Final = "gen_ai.tool.name"
GEN_AI_TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
GEN_AI_TOOL_TYPE: Final = "gen_ai.tool.type"
GEN_AI_TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"  # content
GEN_AI_TOOL_RESULT: Final = "gen_ai.tool.call.result"  # content
GEN_AI_RETRIEVAL_QUERY: Final = "gen_ai.retrieval.query.text"  # content
GEN_AI_RETRIEVAL_DOCUMENTS: Final = "gen_ai.retrieval.documents"  # JSON: [{"id", "score"}]
GEN_AI_INPUT_MESSAGES: Final = "gen_ai.input.messages"  # content
GEN_AI_OUTPUT_MESSAGES: Final = "gen_ai.output.messages"  # content
GEN_AI_AGENT_NAME: Final = "gen_ai.agent.name"
GEN_AI_USAGE_INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
GEN_AI_USAGE_OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
GEN_AI_USAGE_CACHE_READ: Final = "gen_ai.usage.cache_read.input_tokens"
GEN_AI_USAGE_REASONING: Final = "gen_ai.usage.reasoning.output_tokens"

# --- OpenTelemetry HTTP, errors, resources -----------------------------------
HTTP_REQUEST_METHOD: Final = "http.request.method"
HTTP_ROUTE: Final = "http.route"
HTTP_RESPONSE_STATUS_CODE: Final = "http.response.status_code"
URL_PATH: Final = "url.path"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
ERROR_TYPE: Final = "error.type"
SERVICE_NAME: Final = "service.name"
SERVICE_VERSION: Final = "service.version"
SERVICE_INSTANCE_ID: Final = "service.instance.id"
BOOT_ID: Final = "stagelens.boot_id"  # of the kernel whose clock stamped the spans, where it tells

# --- one request's record, on its root span ----------------------------------
RECORD_VERSION: Final = "stagelens.record.version"  # int; its presence marks a root with a record
STAGE: Final = "stagelens.stage"  # on a stage span: the Stage it belongs to
STATUS: Final = "stagelens.status"  # ok | error | cancelled
OPERATION: Final = "stagelens.operation"  # chat | text_completion | embeddings | "" (no model call)
MODEL: Final = "stagelens.model"
STREAM: Final = "stagelens.stream"  # bool
CHOICES: Final = "stagelens.choices"  # int, n of the request
FINISH_REASON: Final = "stagelens.finish_reason"  # of choice 0; several prompts: the commonest
E2E_NS: Final = "stagelens.e2e_ns"
HANDOFF_NS: Final = "stagelens.handoff_ns"  # inside prompt: model call made -> engine has it
PREEMPTED_NS: Final = "stagelens.preempted_ns"  # inside prefill or decode
PREEMPTIONS: Final = "stagelens.preemptions"
FIRST_CHUNK_NS: Final = "stagelens.first_chunk_ns"  # the three first-token clocks, from the first
FIRST_TOKEN_NS: Final = "stagelens.first_token_ns"  # noqa: S105  byte of the request to the
FIRST_ANSWER_NS: Final = "stagelens.first_answer_ns"  # socket write; streamed requests only
STALL_NS: Final = "stagelens.stall_ns"  # on a decode span's `stall` event: the gap
TPOT_NS: Final = "stagelens.tpot_ns"  # float
ITL_NS: Final = "stagelens.itl_ns"  # string: comma-separated gaps, at most ITL_CAP of them
ITL_KIND: Final = "stagelens.itl_kind"  # token | chunk
INPUT_TOKENS: Final = "stagelens.tokens.input"
OUTPUT_TOKENS: Final = "stagelens.tokens.output"
CACHED_TOKENS: Final = "stagelens.tokens.cached"
REASONING_TOKENS: Final = "stagelens.tokens.reasoning"
PROMPT_MARKS: Final = "stagelens.prompt.marks"  # keyed hashes of its beginning: proxy/request/prompt_marks.py
IN_FLIGHT: Final = "stagelens.arrival.in_flight"  # other requests in the proxy at arrival
RUNNING: Final = "stagelens.arrival.running"  # in the engine's last step before arrival
WAITING: Final = "stagelens.arrival.waiting"
WARM: Final = "stagelens.warm"  # bool
COLD_REASON: Final = "stagelens.cold_reason"
SOURCE: Final = "stagelens.source"  # engine | upstream | client: who said the stage times
SOURCE_DETAIL: Final = "stagelens.source_detail"  # which figures of an upstream were used
DIVISIBLE: Final = "stagelens.divisible"  # bool; false: a wait that nobody divides into stages
DONE_SEEN: Final = "stagelens.done_seen"  # bool; did the stream say that it was whole
ATTEMPT: Final = "stagelens.attempt"  # int from 1: attempts of one request at its upstreams
REPAIRS: Final = "stagelens.repairs"  # string[]: rules applied to an inconsistent source
TAG_PREFIX: Final = "stagelens.tag."

RECORD_VERSION_NOW: Final = 1
ITL_CAP: Final = 8192
"""Most gaps kept for one request; further ones are counted in TPOT alone."""


def stage_ns(stage: Stage) -> str:
    """The root attribute with the exclusive time of ``stage``: ``stagelens.stage.queue_ns``."""
    return f"stagelens.stage.{stage}_ns"


def stage_count(stage: Stage) -> str:
    """The root attribute with how often ``stage`` ran (left out when 0)."""
    return f"stagelens.stage.{stage}_count"


# --- one attempt at an upstream, on its span ------------------------------------
UPSTREAM: Final = "stagelens.upstream"  # the upstream's name in the settings
CONNECTION_REUSED: Final = "stagelens.connection.reused"  # bool
DNS_NS: Final = "stagelens.connection.dns_ns"
CONNECT_NS: Final = "stagelens.connection.connect_ns"  # TCP alone
TLS_NS: Final = "stagelens.connection.tls_ns"
FIRST_BYTE_NS: Final = "stagelens.upstream.first_byte_ns"  # hand-over to the response's head
UPSTREAM_PROCESSING_NS: Final = "stagelens.upstream.processing_ns"  # as its headers say
PREFILL_RATE: Final = "stagelens.upstream.prefill_tokens_per_s"  # of tokens evaluated, not cached
DECODE_MS_PER_TOKEN: Final = "stagelens.upstream.decode_ms_per_token"  # noqa: S105  its own mean
CHOICE_FIRST_TOKEN_NS: Final = "stagelens.choice_first_token_ns"  # noqa: S105  string: by choice
TAP_TROUBLE: Final = "stagelens.tap.trouble"  # why an answer could not be read

# --- retrievals and tools that the proxy ran --------------------------------------
DOCUMENTS: Final = "stagelens.retrieval.documents"  # int, how many came back
DOCUMENTS_WITHOUT_TEXT: Final = "stagelens.retrieval.documents_without_text"  # int, left out
EMBED_NS: Final = "stagelens.retrieval.embed_ns"  # inside a retrieval: the query's vector,
SEARCH_NS: Final = "stagelens.retrieval.search_ns"  # the store's answer,
RERANK_NS: Final = "stagelens.retrieval.rerank_ns"  # the second look
TOOL_RESULT_BYTES: Final = "stagelens.tool.result_bytes"  # int

# --- engine steps: one OTLP log record each ----------------------------------
EVENT_ENGINE_STEP: Final = "stagelens.engine.step"  # event_name; time_unix_nano = start of the step
STEP_DURATION_NS: Final = "stagelens.step.duration_ns"
STEP_PREFILL_REQUESTS: Final = "stagelens.step.prefill_requests"
STEP_PREFILL_TOKENS: Final = "stagelens.step.prefill_tokens"
STEP_DECODE_REQUESTS: Final = "stagelens.step.decode_requests"
STEP_DECODE_TOKENS: Final = "stagelens.step.decode_tokens"
STEP_RUNNING: Final = "stagelens.step.running"
STEP_WAITING: Final = "stagelens.step.waiting"
STEP_KV_CACHE_USAGE: Final = "stagelens.step.kv_cache_usage"  # double, 0..1
STEP_PREEMPTED: Final = "stagelens.step.preempted"
STEP_ENGINE: Final = "stagelens.step.engine"  # int, engine index

# --- the application's own spans (the decorators) -------------------------------
DOCUMENT_COUNT: Final = "stagelens.retrieval.count"  # int, all that came back
DOCUMENT_TEXTS: Final = "stagelens.retrieval.content"  # content
ARGUMENTS_SIZE: Final = "stagelens.tool.arguments_size"  # int, characters
RESULT_SIZE: Final = "stagelens.tool.result_size"  # int, characters
ITEMS: Final = "stagelens.stream.items"  # int, of a stream
FIRST_ITEM_NS: Final = "stagelens.stream.first_item_ns"  # from the call to its first item
LAST_ITEM_NS: Final = "stagelens.stream.last_item_ns"
STOPPED_EARLY: Final = "stagelens.stopped_early"  # bool; its consumer left a stream
RESPONSE_HEAD_NS: Final = "stagelens.response_head_ns"  # from the request to its answer's head
CUT: Final = "stagelens.cut"  # string[]: "attribute=original length in characters"

# --- how a task ended: on a span of length zero in its trace; the last one counts ----
OUTCOME_SPAN: Final = "outcome"  # the span's name
OUTCOME_SUCCESS: Final = "stagelens.outcome.success"  # bool
OUTCOME_SCORE: Final = "stagelens.outcome.score"  # double
OUTCOME_REASON: Final = "stagelens.outcome.reason"  # string

# --- what others write and is read --------------------------------------------------
OPENINFERENCE_KIND: Final = "openinference.span.kind"

# --- what was lost on the way, as cumulative OTLP sums -----------------------
METRIC_SPANS_RECEIVED: Final = "stagelens.export.spans.received"
METRIC_SPANS_SENT: Final = "stagelens.export.spans.sent"
METRIC_SPANS_DROPPED: Final = "stagelens.export.spans.dropped"  # attribute: reason
METRIC_STEPS_DROPPED: Final = "stagelens.export.steps.dropped"  # attribute: reason
DROP_REASON: Final = "reason"

# --- gauges; the first five are OpenTelemetry's for hardware -------------------
METRIC_GPU_UTILIZATION: Final = "hw.gpu.utilization"
METRIC_GPU_MEMORY_USAGE: Final = "hw.gpu.memory.usage"
METRIC_GPU_MEMORY_LIMIT: Final = "hw.gpu.memory.limit"
METRIC_GPU_POWER: Final = "hw.power"
METRIC_GPU_TEMPERATURE: Final = "hw.temperature"
METRIC_GPU_CLOCK: Final = "stagelens.gpu.clock"  # attribute: clock
METRIC_GPU_THROTTLED: Final = "stagelens.gpu.throttled"  # 1 while held back; attribute: reason
METRIC_SCRAPE_UP: Final = "stagelens.scrape.up"  # 1 while a page answers
