"""A tree without a record of ours as a row of ``requests``."""

from __future__ import annotations

from collectors.normalise import names
from collectors.normalise.call import (
    FirstTokens,
    error_of,
    finish_of,
    first_tokens_of,
    model_of,
    streamed,
)
from collectors.normalise.classify import MODEL_CALLS, Kind, dialect_of
from collectors.normalise.divide import calls_of, divide
from collectors.normalise.engine import stages_of
from collectors.normalise.tree import REPAIR_SKEW, Node
from collectors.normalise.usage import tree_usage
from tracer import semconv
from tracer.stages import Partition, Stage

Row = dict[str, object]
TASK_SOURCE = "app"
"""A task around requests of ours, which have their own rows: kept out of model requests."""
TASK_OPERATION = "invoke_workflow"
CANCELLED = frozenset({"CancelledError", "asyncio.CancelledError", "GeneratorExit", "cancelled"})
STAGE_COLUMNS = {
    Stage.PROMPT: "PromptNs", Stage.RETRIEVAL: "RetrievalNs", Stage.QUEUE: "QueueNs",
    Stage.PREFILL: "PrefillNs", Stage.DECODE: "DecodeNs", Stage.TOOL: "ToolNs",
    Stage.DELIVER: "DeliverNs", Stage.UNATTRIBUTED: "UnattributedNs",
}  # fmt: skip


def row_of(root: Node) -> Row | None:
    """The row, or None for a tree without a model call and for one that has its record."""
    calls = calls_of(root)
    if root.kind is Kind.RECORD or not calls:
        return None
    around_ours = any(node.kind is Kind.RECORD for node in root.below())
    main = max(calls, key=lambda call: call.span.end_ns - call.span.start_ns)
    first = _first_of(calls)
    return {
        "Timestamp": root.span.start_ns,
        "TraceId": root.span.trace_id,
        "SpanId": root.span.span_id,
        "ServiceName": root.span.service,
        "ServiceInstance": root.span.instance,
        "Model": "" if around_ours else _model(main),
        "Operation": TASK_OPERATION if around_ours else _operation(main),
        **_ending(root, main),
        "Stream": any(streamed(node.span) for call in calls for node in _layers(call)),
        "Choices": 1,
        **stage_columns(divide(root)),
        "FirstChunkNs": _since(root, first.chunk_ns),
        "FirstTokenNs": _since(root, first.token_ns),
        **_tokens(root, calls),
        "Source": TASK_SOURCE if around_ours else _source(root),
        "SourceDetail": _detail(root, calls, first),
        "Repairs": _repairs(root),
    }


def stage_columns(divided: Partition) -> Row:
    """The exclusive times, their sum and the counts."""
    made: Row = {column: divided.exclusive_ns[stage] for stage, column in STAGE_COLUMNS.items()}
    counts = {
        str(stage): min(n, 2**16 - 1)
        for stage, n in divided.counts.items()
        if n and stage is not Stage.UNATTRIBUTED
    }
    return {"E2ENs": divided.total_ns, **made, "StageCounts": counts}


def _layers(call: Node) -> list[Node]:
    """All spans of one call: LLM spans around it, the outermost first, itself, engines below."""
    around = [above for above in call.above() if above.kind is Kind.LLM]
    engines = [node for node in call.below() if node is not call and node.kind is Kind.ENGINE]
    return [*reversed(around), call, *engines]


def _first_tokens(call: Node) -> FirstTokens:
    """As the outermost span that knows it saw it."""
    found = (first_tokens_of(node.span) for node in _layers(call))
    return next((one for one in found if one.token_ns is not None), FirstTokens())


def _first_of(calls: list[Node]) -> FirstTokens:
    known = [f for call in calls if (f := _first_tokens(call)).token_ns is not None]
    return min(known, key=lambda f: f.token_ns or 0, default=FirstTokens())


def _since(root: Node, at_ns: int | None) -> int | None:
    return None if at_ns is None else max(0, at_ns - root.span.start_ns)


def _model(call: Node) -> str:
    return next((model for node in _layers(call) if (model := model_of(node.span))), "")


def _operation(call: Node) -> str:
    told = call.span.attributes.get(semconv.GEN_AI_OPERATION_NAME)
    if told:
        return told
    if call.kind is Kind.EMBEDDING:
        return "embeddings"
    if call.span.attributes.get(names.LLM_REQUEST_TYPE) == "completion":
        return "text_completion"
    return "chat" if call.kind is Kind.LLM else "inference"


def _ending(root: Node, main: Node) -> Row:
    """Status, its reason and where the answer ended."""
    told = root.span.attributes
    status = told.get(semconv.HTTP_RESPONSE_STATUS_CODE) or told.get("http.status_code", "")
    http = int(status) if status.isascii() and status.isdigit() and len(status) == 3 else 0
    error = error_of(root.span) or (str(http) if http >= 400 else "")
    cancelled = error.rsplit(".", maxsplit=1)[-1] in CANCELLED
    return {
        "Route": told.get(semconv.HTTP_ROUTE, ""),
        "HttpStatus": http,
        "Status": "cancelled" if cancelled else "error" if error else "ok",
        "ErrorType": error,
        "FinishReason": next((r for node in _layers(main) if (r := finish_of(node.span))), ""),
    }


def _tokens(root: Node, calls: list[Node]) -> Row:
    usage = tree_usage(root)
    return {
        "InputTokens": usage.input,
        "OutputTokens": usage.output,
        "CachedTokens": usage.cached,
        "ReasoningTokens": usage.reasoning,
        "Cost": usage.cost,
        "TpotNs": _tpot(calls),
    }


def _pace(call: Node) -> FirstTokens:
    """First and last token as the engine tells them, else as the outermost span saw them."""
    layers = _layers(call)
    engines = [node for node in layers if node.kind is Kind.ENGINE]
    found = (first_tokens_of(node.span) for node in (*engines, *layers))
    return next((one for one in found if one.token_ns is not None), FirstTokens())


def _tpot(calls: list[Node]) -> float | None:
    """The calls' first to last token over their tokens after the first ones."""
    spent = tokens = 0
    for call in calls:
        pace, output = _pace(call), tree_usage(_layers(call)[0]).output
        if pace.token_ns is not None and pace.last_ns is not None and output and output > 1:
            spent += pace.last_ns - pace.token_ns
            tokens += output - 1
    return spent / tokens if tokens else None


def _detail(root: Node, calls: list[Node], first: FirstTokens) -> str:
    """Whose words, and which of them stand for others."""
    firsts = [word for word in first.detail if word.startswith("first")]
    lasts = [word for call in calls for word in _pace(call).detail if word.startswith("last")]
    return ",".join(dict.fromkeys((*_dialects(root), *firsts, *lasts)))


def _source(root: Node) -> str:
    """Who divided the calls: the engine, or what its client saw."""
    engine = any(node.kind in (Kind.ENGINE, Kind.STAGE) for node in root.below())
    return "engine" if engine else "client"


def _dialects(root: Node) -> list[str]:
    known = [dialect_of(node.span) for node in root.below() if node.kind is not Kind.OTHER]
    return sorted(set(known))


def _repairs(root: Node) -> list[str]:
    found = {REPAIR_SKEW} if any(node.moved for node in root.below()) else set()
    for node in root.below():
        if node.kind is Kind.ENGINE:
            found.update(stages_of(node.span).repairs)
        elif node.kind in MODEL_CALLS:
            found.update(first_tokens_of(node.span).repairs)
        told = node.span.attributes.get(names.SPAN_REPAIR, "")
        found.update(names.SPAN_REPAIRS.intersection(told.split(",")))
    return sorted(found)
