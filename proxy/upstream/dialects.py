"""What one event of an answer says, in any of the dialects servers stream.

Known: OpenAI's chat and text completions (and what vLLM, SGLang, llama.cpp, TGI and
Azure add to them), OpenAI's responses, Anthropic's messages. An event is told by its
shape, not by the route it came on. What is not understood says nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from proxy.stream.chunks import DONE, ChunkFacts, choice_facts, error_type
from proxy.upstream.usage import ServerTimes, Usage, count_of

CHOICE_LIMIT = 128
"""Choices told apart in one answer; further ones are read as the last."""

_RESPONSES_TOKENS = (
    "response.output_text.delta", "response.refusal.delta", "response.reasoning_text.delta",
    "response.reasoning_summary_text.delta", "response.function_call_arguments.delta",
    "response.custom_tool_call_input.delta", "response.mcp_call_arguments.delta",
    "response.code_interpreter_call_code.delta", "response.audio.delta",
    "response.output_audio.delta", "response.audio.transcript.delta",
    "response.output_audio_transcript.delta",
)  # fmt: skip
_MESSAGES_TOKENS = {"text_delta": "text", "thinking_delta": "thinking",
                    "input_json_delta": "partial_json"}  # fmt: skip


@dataclass(slots=True)
class Facts:
    """``choices`` with what each says; ``counted`` is the running count of output tokens, if told.

    ``known`` is False for an event of no known dialect. ``done`` is the end said in
    words (``[DONE]``, ``message_stop``, ``response.completed``).
    """

    known: bool = False
    done: bool = False
    error: str | None = None
    choices: list[tuple[int, ChunkFacts]] = field(default_factory=list)
    finish: dict[int, str] = field(default_factory=dict)
    counted: int | None = None


@dataclass(slots=True)
class Answer:
    """What the events of one answer said so far, besides its tokens."""

    usage: Usage = field(default_factory=Usage)
    times: ServerTimes = field(default_factory=ServerTimes)
    response_id: str = ""
    model: str = ""

    def name(self, body: dict[str, Any]) -> None:
        if not self.response_id and isinstance(given := body.get("id"), str):
            self.response_id = given[:128]
        if not self.model and isinstance(given := body.get("model"), str):
            self.model = given[:256]


def read_event(data: bytes, answer: Answer) -> Facts:
    """Facts of one event's data, or of a whole JSON body; never raises on any bytes."""
    if data.strip() == DONE:
        return Facts(known=True, done=True)
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        return Facts()
    return read_body(body, answer)


def read_error_event(data: bytes) -> Facts:
    """Facts of an event that calls itself an error, whatever its data are."""
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        body = None
    return Facts(known=True, error=error_type(body))


def read_body(body: object, answer: Answer) -> Facts:
    """As :func:`read_event`, of what is parsed already."""
    if not isinstance(body, dict):
        return Facts()
    kind = body.get("type")
    if body.get("error") and not (isinstance(kind, str) and kind.startswith("response.")):
        return Facts(known=True, error=error_type(body["error"]))
    if body.get("object") == "error":  # vLLM's and SGLang's older form
        return Facts(known=True, error=error_type(body))
    if isinstance(kind, str):
        if kind.startswith("response."):
            return _responses(kind, body, answer)
        if kind in _MESSAGES:
            return _MESSAGES[kind](body, answer)
    answer.name(body)
    if body.get("object") == "response":
        return _whole_response(body, answer)
    return _completions(body, answer)


def _completions(body: dict[str, Any], answer: Answer) -> Facts:
    """A chunk or whole body of chat and text completions; also embeddings, which have usage only."""
    choices = body.get("choices")
    facts = Facts(known="choices" in body)
    usage = body.get("usage")
    if isinstance(usage, dict):
        answer.usage.update(usage)
        answer.times.read_groq(usage)
        facts.known = True
        facts.counted = count_of(usage.get("completion_tokens"))
    if isinstance(metrics := body.get("metrics"), dict):
        answer.times.read_vllm(metrics)
    if isinstance(told := body.get("time_info"), dict):
        answer.times.read_groq(told)
    if isinstance(timings := body.get("timings"), dict):
        answer.times.read_llama(timings)
    for choice in choices if isinstance(choices, list) else ():
        if not isinstance(choice, dict):
            continue
        index = min(count_of(choice.get("index")) or 0, CHOICE_LIMIT - 1)
        facts.choices.append((index, choice_facts(choice)))
        if isinstance(reason := choice.get("finish_reason"), str):
            facts.finish[index] = reason[:64]
    return facts


def _responses(kind: str, body: dict[str, Any], answer: Answer) -> Facts:
    """One event of OpenAI's responses stream."""
    if kind in _RESPONSES_TOKENS:
        delta = body.get("delta")
        visible = kind == "response.output_text.delta" and isinstance(delta, str)
        token = ChunkFacts(token=bool(delta), answer=visible and bool(str(delta).strip()))
        return Facts(known=True, choices=[(0, token)])
    if kind.endswith("_call.partial_image"):
        return Facts(known=True, choices=[(0, ChunkFacts(token=True))])
    inner = body.get("response")
    if not isinstance(inner, dict):
        return Facts(known=True)
    answer.name(inner)
    if kind in ("response.completed", "response.incomplete", "response.failed", "response.cancelled"):
        return _whole_response(inner, answer)
    return Facts(known=True)


def _whole_response(inner: dict[str, Any], answer: Answer) -> Facts:
    """A finished response object: usage, and how it ended."""
    facts = Facts(known=True)
    if isinstance(usage := inner.get("usage"), dict):
        answer.usage.update(usage)
    status = inner.get("status")
    if status == "failed" or inner.get("error"):
        facts.error = error_type(inner.get("error"))
    elif isinstance(status, str) and status not in ("in_progress", "queued"):
        details = inner.get("incomplete_details")
        reason = details.get("reason") if isinstance(details, dict) else None
        facts.finish[0] = reason[:64] if isinstance(reason, str) else status[:64]
    facts.done = status in ("completed", "incomplete", "failed", "cancelled")
    return facts


def _message_usage(body: dict[str, Any], answer: Answer) -> None:
    if isinstance(usage := body.get("usage"), dict):
        answer.usage.additive = True
        answer.usage.update(usage)


def _message_start(body: dict[str, Any], answer: Answer) -> Facts:
    if isinstance(inner := body.get("message"), dict):
        answer.name(inner)
        _message_usage(inner, answer)
    return Facts(known=True)


def _message(body: dict[str, Any], answer: Answer) -> Facts:
    """A whole message, not streamed."""
    answer.name(body)
    _message_usage(body, answer)
    facts = Facts(known=True)
    if isinstance(reason := body.get("stop_reason"), str):
        facts.finish[0] = reason[:64]
    return facts


def _message_delta(body: dict[str, Any], answer: Answer) -> Facts:
    _message_usage(body, answer)
    facts = Facts(known=True)
    delta = body.get("delta")
    if isinstance(delta, dict) and isinstance(reason := delta.get("stop_reason"), str):
        facts.finish[0] = reason[:64]
    return facts


def _content_block_start(body: dict[str, Any], _answer: Answer) -> Facts:
    """The start of a tool call carries its generated name; other blocks start empty."""
    block = body.get("content_block")
    tool = isinstance(block, dict) and str(block.get("type", "")).endswith("tool_use")
    return Facts(known=True, choices=[(0, ChunkFacts(token=True))] if tool else [])


def _content_block_delta(body: dict[str, Any], _answer: Answer) -> Facts:
    delta = body.get("delta")
    if not isinstance(delta, dict):
        return Facts(known=True)
    kind = delta.get("type")
    text = delta.get(_MESSAGES_TOKENS.get(kind, "")) if isinstance(kind, str) else None
    visible = kind == "text_delta" and isinstance(text, str) and bool(text.strip())
    return Facts(known=True, choices=[(0, ChunkFacts(token=bool(text), answer=visible))])


def _nothing(_body: dict[str, Any], _answer: Answer) -> Facts:
    return Facts(known=True)


def _message_stop(_body: dict[str, Any], _answer: Answer) -> Facts:
    return Facts(known=True, done=True)


def _error(body: dict[str, Any], _answer: Answer) -> Facts:
    """Anthropic's and the responses' ``error`` event that carries its parts at the top level."""
    return Facts(known=True, error=error_type({"code": body.get("code")}))


_MESSAGES = {
    "message": _message,
    "message_start": _message_start,
    "message_delta": _message_delta,
    "message_stop": _message_stop,
    "content_block_start": _content_block_start,
    "content_block_delta": _content_block_delta,
    "content_block_stop": _nothing,
    "ping": _nothing,
    "error": _error,
}
