"""What a server says of tokens and of its own stage times, in whichever dialect."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

COUNT_LIMIT = 2**31
MS = 1_000_000
_NUMBER = re.compile(r" *[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,3})? *", re.ASCII)
"""A duration as headers write it; Python's ``float`` reads more than that."""
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"?')


@dataclass(slots=True)
class Usage:
    """Running token counts of one answer: each field keeps its last value that was given.

    ``additive``: the server counts cached and cache-writing tokens beside the input
    (Anthropic), not inside it.
    """

    input: int | None = None
    output: int | None = None
    cached: int | None = None
    cache_creation: int | None = None
    reasoning: int | None = None
    additive: bool = False

    @property
    def input_tokens(self) -> int | None:
        if self.input is None or not self.additive:
            return self.input
        return self.input + (self.cached or 0) + (self.cache_creation or 0)

    def update(self, usage: Mapping[str, object]) -> None:
        """Take over what ``usage`` gives; null and nonsense change nothing, nothing is summed."""
        self.input = _first(usage, ("prompt_tokens", "input_tokens"), self.input)
        self.output = _first(usage, ("completion_tokens", "output_tokens"), self.output)
        self.reasoning = _inner(
            usage, ("completion_tokens_details", "output_tokens_details"), "reasoning_tokens",
            self.reasoning,
        )  # fmt: skip
        cached = _inner(
            usage, ("prompt_tokens_details", "input_tokens_details"), "cached_tokens", None
        )
        if "cache_read_input_tokens" in usage or "cache_creation_input_tokens" in usage:
            # LiteLLM puts Anthropic's names beside OpenAI's, whose prompt holds them already
            self.additive = self.additive or "prompt_tokens" not in usage
            self.cache_creation = _first(
                usage, ("cache_creation_input_tokens",), self.cache_creation
            )
            if cached is None:
                cached = _first(usage, ("cache_read_input_tokens",), None)
        self.cached = self.cached if cached is None else cached


def _first(usage: Mapping[str, object], names: tuple[str, ...], old: int | None) -> int | None:
    for name in names:
        if (count := count_of(usage.get(name))) is not None:
            return count
    return old


def _inner(
    usage: Mapping[str, object], outer: tuple[str, ...], name: str, old: int | None
) -> int | None:
    for key in outer:
        details = usage.get(key)
        if isinstance(details, dict) and (count := count_of(details.get(name))) is not None:
            return count
    return old


def count_of(value: object) -> int | None:
    """A token count, or None for what cannot be one."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < COUNT_LIMIT:
        return None
    return value


def ms_to_ns(value: object) -> int | None:
    """Milliseconds as a server writes them; None for what is no duration below a day."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not 0 <= value < 86_400_000:  # neither is NaN, and an integer may be beyond every float
        return None
    return round(value * MS)


def s_to_ns(value: object) -> int | None:
    """As :func:`ms_to_ns`, of seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return ms_to_ns(value * 1000) if abs(value) < 1e9 else None


@dataclass(slots=True)
class ServerTimes:
    """A server's own durations in nanoseconds, each None where it did not say.

    ``cached`` and ``evaluated`` are llama.cpp's split of the prompt; ``said_by``
    names what told, in the order it was read.
    """

    queue_ns: int | None = None
    prefill_ns: int | None = None
    decode_ns: int | None = None
    processing_ns: int | None = None
    evaluated: int | None = None
    cached: int | None = None
    predicted: int | None = None
    said_by: tuple[str, ...] = ()

    def note(self, who: str) -> None:
        if who not in self.said_by:
            self.said_by = (*self.said_by, who)

    def read_vllm(self, metrics: Mapping[str, object]) -> None:
        """vLLM's per-request metrics. Its "time to first token" starts at scheduling: prefill."""
        queue, prefill = (
            ms_to_ns(metrics.get(n)) for n in ("queue_time_ms", "time_to_first_token_ms")
        )
        if queue is None and prefill is None:
            return
        self.queue_ns, self.prefill_ns = queue, prefill
        self.decode_ns = ms_to_ns(metrics.get("generation_time_ms"))
        self.note("vllm.metrics")

    def read_groq(self, told: Mapping[str, object]) -> None:
        """Durations in seconds beside the token counts, as Groq and Cerebras give them."""
        queue, prefill, decode = (
            s_to_ns(told.get(n)) for n in ("queue_time", "prompt_time", "completion_time")
        )
        if prefill is None and queue is None:
            return
        self.queue_ns, self.prefill_ns, self.decode_ns = queue, prefill, decode
        self.note("usage.times")

    def read_llama(self, timings: Mapping[str, object]) -> None:
        """llama.cpp's timings: ``prompt_n`` tokens evaluated, ``cache_n`` taken from the cache."""
        prefill = ms_to_ns(timings.get("prompt_ms"))
        if prefill is None:
            return
        self.prefill_ns = prefill
        self.decode_ns = ms_to_ns(timings.get("predicted_ms"))
        self.evaluated = count_of(timings.get("prompt_n"))
        self.cached = count_of(timings.get("cache_n"))
        self.predicted = count_of(timings.get("predicted_n"))
        self.note("llama.timings")

    @property
    def prefill_rate(self) -> float | None:
        """Evaluated tokens per second; None where none was evaluated or no time was told."""
        if not self.evaluated or not self.prefill_ns:
            return None
        return self.evaluated / (self.prefill_ns / 1e9)

    @property
    def decode_ms_per_token(self) -> float | None:
        """The server's own mean over all its tokens; TPOT divides by one less."""
        if not self.predicted or self.decode_ns is None:
            return None
        return self.decode_ns / MS / self.predicted


def read_headers(times: ServerTimes, headers: Mapping[str, str]) -> None:
    """``Server-Timing``, TGI's queue, Envoy's and OpenAI's processing times; names in lower case."""
    for name in ("openai-processing-ms", "x-envoy-upstream-service-time"):
        if (took := _header_ms(headers.get(name))) is not None:
            times.processing_ns = took
            times.note(name)
            break
    if (waited := _header_ms(headers.get("x-queue-time"))) is not None:
        times.queue_ns = waited
        times.note("x-queue-time")
    for part in _QUOTED.sub(_number_of, headers.get("server-timing", "")[:4096]).split(","):
        name, *parameters = (p.strip() for p in part.split(";"))
        pairs = (p.partition("=") for p in parameters)
        took = _header_ms(next((value for key, _, value in pairs if key.strip().lower() == "dur"), None))
        if took is None or name.lower() not in {"queue", "prefill", "decode"}:
            continue
        setattr(times, f"{name.lower()}_ns", took)
        times.note("server-timing")


def _number_of(quoted: re.Match[str]) -> str:
    """A quoted number as it is; other words in quotes are nobody's, and may hold a comma."""
    return quoted[1] if _NUMBER.fullmatch(quoted[1]) else ""


def _header_ms(text: str | None) -> int | None:
    return ms_to_ns(float(text)) if text is not None and _NUMBER.fullmatch(text) else None
