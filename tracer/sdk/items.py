"""What one item of a stream carries: chunks and events as the usual clients give them.

Read are OpenAI's chat chunks, completions and responses, and Anthropic's messages, as objects
or as dictionaries. An item of another kind counts as a visible token.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracer import semconv
from tracer.sdk.kinds import is_a
from tracer.sdk.root import Carries

_HIDDEN = ("reasoning", "reasoning_content", "tool_calls", "function_call", "refusal", "audio")
_DELTAS = {
    "text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json",
    "citations_delta": "",  "signature_delta": "",
}  # fmt: skip
"""Anthropic's, with the field that holds what was generated."""
_SILENT = frozenset({
    "message_start", "message_delta", "message_stop", "content_block_start", "content_block_stop",
    "ping", "error",
})  # fmt: skip
_INPUT = ("input_tokens", "prompt_tokens")
_OUTPUT = ("output_tokens", "completion_tokens")
_CACHED = ("cache_read_input_tokens", "cache_creation_input_tokens")
"""Anthropic counts these beside the input, not in it."""


def get(value: object, name: str) -> Any:
    """A field of a dictionary or an object; None where it has none, or raises."""
    try:
        return value.get(name) if is_a(value, Mapping) else getattr(value, name, None)  # type: ignore[attr-defined]
    except Exception:  # noqa: BLE001  a stranger's property
        return None


def carries_of(item: object) -> Carries:
    """Whether an item holds a generated token, and a visible one; unknown kinds of items do."""
    if is_a(item, str):
        return _visible(item)  # type: ignore[arg-type]
    choices = get(item, "choices")
    if isinstance(choices, list | tuple):
        return max((_of_choice(one) for one in choices), default=Carries.NOTHING)
    if choices is None and is_a(item, Mapping) and "choices" in item:  # type: ignore[operator]
        return Carries.NOTHING
    kind = get(item, "type")
    return _of_event(item, kind) if isinstance(kind, str) else Carries.ANSWER


def _of_event(item: object, kind: str) -> Carries:
    if kind.startswith("response."):
        return _of_response_event(item, kind)
    if kind == "content_block_delta":
        delta = get(item, "delta")
        field = _DELTAS.get(str(get(delta, "type")), "text")
        told = _visible(_str(get(delta, field))) if field else Carries.NOTHING
        return told if field == "text" or not told else Carries.TOKEN
    if kind == "content_block_start":  # a tool call's carries its generated name
        tool = str(get(get(item, "content_block"), "type")).endswith("tool_use")
        return Carries.TOKEN if tool else Carries.NOTHING
    return Carries.NOTHING if kind in _SILENT else Carries.ANSWER


def _of_response_event(item: object, kind: str) -> Carries:
    if kind.endswith(".partial_image"):
        return Carries.TOKEN
    delta = get(item, "delta")
    if not kind.endswith(".delta") or not delta:
        return Carries.NOTHING
    return _visible(_str(delta)) if kind == "response.output_text.delta" else Carries.TOKEN


def _of_choice(choice: object) -> Carries:
    delta = get(choice, "delta")
    if delta is None:
        return _visible(_str(get(choice, "text")))
    seen = _visible(_str(get(delta, "content")))
    if seen is Carries.NOTHING and any(get(delta, name) for name in _HIDDEN):
        return Carries.TOKEN
    return seen


def _visible(text: str) -> Carries:
    if not text:
        return Carries.NOTHING
    return Carries.TOKEN if text.isspace() else Carries.ANSWER


def _str(value: object) -> str:
    return value if isinstance(value, str) else ""


def piece_of(item: object) -> str | None:
    """The answer's text in an item; empty where it has none, None where its kind is not known."""
    if is_a(item, str):
        return item  # type: ignore[return-value]
    choices = get(item, "choices")
    if isinstance(choices, list | tuple):
        first = choices[0] if choices else None
        delta = get(first, "delta")
        return _str(get(first, "text") if delta is None else get(delta, "content"))
    kind, delta = get(item, "type"), get(item, "delta")
    if isinstance(kind, str) and kind.startswith("response."):
        return _str(delta) if kind == "response.output_text.delta" else ""
    if delta is not None:
        return _str(delta if isinstance(delta, str) else get(delta, "text"))
    return "" if kind in _SILENT else None


def usage_of(result: object) -> dict[str, int]:
    """Tokens as the server counted them, in an answer, a chunk or an event: attributes."""
    if is_a(result, str | bytes):
        return {}
    usage = get(result, "usage")
    for where in ("response", "message"):  # OpenAI's last event and Anthropic's first
        usage = get(get(result, where), "usage") if usage is None else usage
    if usage is None:
        return {}
    told: dict[str, int] = {}
    for name, keys in (
        (semconv.GEN_AI_USAGE_INPUT_TOKENS, _INPUT), (semconv.GEN_AI_USAGE_OUTPUT_TOKENS, _OUTPUT),
    ):  # fmt: skip
        counts = [n for key in keys if type(n := get(usage, key)) is int]
        if counts:
            told[name] = counts[0]
    beside = sum(n for key in _CACHED if type(n := get(usage, key)) is int)
    if beside and semconv.GEN_AI_USAGE_INPUT_TOKENS in told:
        told[semconv.GEN_AI_USAGE_INPUT_TOKENS] += beside
    return told
