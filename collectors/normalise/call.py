"""What a model call's span says of tokens, first tokens and the rest, in any dialect."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime

from collectors.normalise import names
from collectors.normalise.classify import Kind, kind_of
from collectors.normalise.engine import REPAIR_FIRST, stages_of
from collectors.normalise.span import MOST_TOKENS, Span
from tracer import semconv

ROUNDING_NS = 1_000_000
"""What a time told in milliseconds may be off."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts; None where nobody told."""

    input: int | None = None
    output: int | None = None
    cached: int | None = None
    reasoning: int | None = None
    cost: float | None = None


@dataclass(frozen=True, slots=True)
class FirstTokens:
    """Times on the wall clock in nanoseconds, and the words they rest on."""

    chunk_ns: int | None = None
    token_ns: int | None = None
    last_ns: int | None = None
    detail: tuple[str, ...] = ()
    repairs: tuple[str, ...] = ()


def usage_of(span: Span) -> Usage:
    """The span's own counts."""
    langfuse = _json_object(span.attributes.get(names.LANGFUSE_USAGE, ""))
    cost = next((c for n in names.COST if (c := span.number(n)) is not None), None)
    if cost is None:
        told = _json_object(span.attributes.get(names.LANGFUSE_COST, "")).get("total")
        cost = float(told) if isinstance(told, (int, float)) and 0 <= told < 1e12 else None
    dynamo = span.name == names.DYNAMO_ROOT
    return Usage(
        _first(span.count(names.INPUT_TOKENS), _json_count(langfuse, "input"),
               span.count((names.DYNAMO_INPUT,)) if dynamo else None),
        _first(span.count(names.OUTPUT_TOKENS), _json_count(langfuse, "output"),
               span.count((names.DYNAMO_OUTPUT,)) if dynamo else None),
        _first(span.count(names.CACHED_TOKENS), _json_count(langfuse, "input_cached_tokens"),
               _json_count(langfuse, "cache_read_input_tokens")),
        _first(span.count(names.REASONING_TOKENS), _json_count(langfuse, "output_reasoning_tokens")),
        cost,
    )  # fmt: skip


def first_tokens_of(span: Span) -> FirstTokens:
    """First chunk, first token and last token, each inside the span.

    A tool that knows only chunks gives its first chunk for the first token, which is said.
    A time that lies outside the span is wrong, so that it is not known: the span's end would
    pass for a measured one.
    """
    if kind_of(span) is Kind.ENGINE:
        stages = stages_of(span)
        return FirstTokens(None, stages.first_token_ns, stages.last_token_ns, (), stages.repairs)
    told = _chunk(span), _token(span)
    chunk, token = (at if at is not None and _is_inside(span, at) else None for at in told)
    repairs = (REPAIR_FIRST,) if (chunk, token) != told else ()
    detail: tuple[str, ...] = ()
    if token is None and chunk is not None:
        token, detail = chunk, ("first_token=first_chunk",)
    if token is None:
        return FirstTokens(repairs=repairs)
    last = span.last_chunk_ns or None
    if last is None or last < token:
        last, detail = span.end_ns, (*detail, "last_token=span_end")
    return FirstTokens(_inside(span, chunk), _inside(span, token), _inside(span, last), detail, repairs)


def model_of(span: Span) -> str:
    return span.text(names.MODEL)


def finish_of(span: Span) -> str:
    """The first finish reason; lists are stored as JSON."""
    told = span.text(names.FINISH)
    try:
        parsed = json.loads(told) if told.startswith("[") else told
    except ValueError:
        return told
    first = parsed[0] if isinstance(parsed, list) and parsed else parsed
    return first if isinstance(first, str) else ""


def streamed(span: Span) -> bool:
    return span.text(names.STREAM).lower() == "true" or _chunk(span) is not None


def error_of(span: Span) -> str:
    """The error's type; ``_OTHER`` for a failure without one, as the conventions have it."""
    failed = span.failed or span.attributes.get(names.LANGFUSE_LEVEL) == "ERROR"
    told = span.attributes.get(semconv.ERROR_TYPE) or span.exception
    if failed or semconv.ERROR_TYPE in span.attributes:
        return told or "_OTHER"
    return ""


def _chunk(span: Span) -> int | None:
    told = span.seconds(semconv.GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK)
    if told is not None:
        return span.start_ns + told
    return span.first_chunk_ns or None


def _token(span: Span) -> int | None:
    told = span.seconds(names.LATENCY_FIRST_TOKEN)
    if told is not None:
        return span.start_ns + told
    if langfuse := span.attributes.get(names.LANGFUSE_FIRST):
        return _instant(langfuse)
    told = span.milliseconds(names.DYNAMO_FIRST_MS) if span.name == names.DYNAMO_ROOT else None
    return None if told is None else span.start_ns + told


def _is_inside(span: Span, at_ns: int) -> bool:
    return span.start_ns - ROUNDING_NS <= at_ns <= span.end_ns + ROUNDING_NS


def _inside(span: Span, at_ns: int | None) -> int | None:
    return None if at_ns is None else min(max(at_ns, span.start_ns), span.end_ns)


def _instant(text: str) -> int | None:
    """ISO 8601, bare or as a JSON string, in nanoseconds of the wall clock (to microseconds)."""
    try:
        at = datetime.fromisoformat(text.strip('"'))
        at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        since = at - datetime(1970, 1, 1, tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
    return (since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1000


def _json_object(text: str) -> dict[str, object]:
    try:
        found = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _json_count(told: dict[str, object], name: str) -> int | None:
    value = told.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= MOST_TOKENS else None


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)
