"""Streams in each dialect, with a first-token delay, an inter-token delay and a jitter seed."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

from tests.fake_llm.server import Pause, Reply, Reset, Step

DONE = b"data: [DONE]\n\n"


def sse(body: object, event: str = "") -> bytes:
    head = f"event: {event}\n" if event else ""
    return (head + "data: " + json.dumps(body) + "\n\n").encode()


def delta(index: int = 0, finish: str | None = None, **said: object) -> bytes:
    choice: dict[str, object] = {"index": index, "delta": said}
    if finish is not None:
        choice["finish_reason"] = finish
    return sse({"choices": [choice]})


def content(text: str, finish: str | None = None) -> bytes:
    return delta(content=text, finish=finish)


ROLE = delta(role="assistant", content="")


def usage(prompt: int, completion: int, **more: object) -> bytes:
    counts = {
        "prompt_tokens": prompt, "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }  # fmt: skip
    return sse({"choices": [], "usage": counts | more.pop("usage", {}), **more})  # type: ignore[operator]


def chat(
    tokens: int = 5,
    ttft_s: float = 0.0,
    itl_s: float = 0.0,
    seed: int | None = None,
    error_after: int | None = None,
    reset_after: int | None = None,
    with_usage: bool = True,
) -> Reply:
    """A chat stream whose token ``i`` leaves at ``ttft_s + i * itl_s``, jittered by ``seed``."""
    jitter = random.Random(seed)
    steps: list[Step] = [ROLE]
    at = ttft_s
    for number in range(tokens):
        if number == error_after:
            steps.append(sse({"error": {"message": "boom", "type": "server_error", "code": 500}}))
            return Reply(steps)
        if number == reset_after:
            return Reply([*steps, Reset()])
        if at:
            steps.append(Pause(at))
        steps.append(content(f"t{number} "))
        at += itl_s * (jitter.uniform(0.5, 1.5) if seed is not None else 1.0)
    steps.append(delta(finish="stop"))
    if with_usage:
        steps.append(usage(7, tokens))
    return Reply([*steps, DONE])


def timed(*parts: tuple[float, bytes]) -> Reply:
    """Parts at their times."""
    steps: list[Step] = []
    for at, body in parts:
        steps += [Pause(at), body]
    return Reply(steps)


def together(reply: Reply) -> bytes:
    """The body bytes of a reply."""
    return b"".join(s for s in reply.steps if isinstance(s, bytes))


def messages(texts: Sequence[str] = ("Hel", "lo")) -> list[bytes]:
    """Anthropic's messages events."""
    start = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x", "content": [],
        "stop_reason": None, "stop_sequence": None,
        "usage": {"input_tokens": 10, "cache_read_input_tokens": 30,
                  "cache_creation_input_tokens": 5, "output_tokens": 1},
    }  # fmt: skip
    parts = [
        sse({"type": "message_start", "message": start}, "message_start"),
        sse({"type": "content_block_start", "index": 0,
             "content_block": {"type": "text", "text": ""}}, "content_block_start"),
        sse({"type": "ping"}, "ping"),
    ]  # fmt: skip
    for text in texts:
        part = {"type": "content_block_delta", "index": 0,
                "delta": {"type": "text_delta", "text": text}}  # fmt: skip
        parts.append(sse(part, "content_block_delta"))
    parts += [
        sse({"type": "content_block_stop", "index": 0}, "content_block_stop"),
        sse({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None},
             "usage": {"output_tokens": 15}}, "message_delta"),
        sse({"type": "message_stop"}, "message_stop"),
    ]  # fmt: skip
    return parts


def responses(texts: Sequence[str] = ("Hel", "lo"), failed: bool = False) -> list[bytes]:
    """OpenAI's responses events."""
    base = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "output": [],
            "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}  # fmt: skip
    kinds = [("response.created", {"response": {**base, "status": "in_progress"}})]
    kinds += [
        ("response.output_text.delta",
         {"item_id": "i", "output_index": 0, "content_index": 0, "delta": text, "logprobs": []})
        for text in texts
    ]  # fmt: skip
    if failed:
        error = {"code": "server_error", "message": "CANARY"}
        kinds.append(("response.failed", {"response": {**base, "status": "failed", "error": error}}))
    else:
        counts = {
            "input_tokens": 22118, "input_tokens_details": {"cached_tokens": 100},
            "output_tokens": 1970, "output_tokens_details": {"reasoning_tokens": 956},
            "total_tokens": 24088,
        }  # fmt: skip
        final = {**base, "status": "completed", "usage": counts}
        kinds.append(("response.completed", {"response": final}))
    return [sse({"type": kind, "sequence_number": i, **body}, kind)
            for i, (kind, body) in enumerate(kinds)]  # fmt: skip


def tool_call(index: int, call_id: str, name: str, arguments: str) -> list[bytes]:
    """A tool call as servers stream it: its name first, its arguments in two pieces."""
    half = len(arguments) // 2
    head = {"index": index, "id": call_id, "type": "function",
            "function": {"name": name, "arguments": ""}}  # fmt: skip
    pieces = [{"index": index, "function": {"arguments": part}}
              for part in (arguments[:half], arguments[half:])]  # fmt: skip
    return [delta(tool_calls=[one]) for one in (head, *pieces)]


def asks_tools(*calls: tuple[str, str], at_s: float = 0.0, text: str = "") -> Reply:
    """A round that asks for tools, given as (name, arguments)."""
    steps: list[Step] = [ROLE]
    if at_s:
        steps.append(Pause(at_s))
    if text:
        steps.append(content(text))
    for index, (name, arguments) in enumerate(calls):
        steps += tool_call(index, f"c{index}", name, arguments)
    return Reply([*steps, delta(finish="tool_calls"), usage(10, 4), DONE])


def whole_tools(*calls: tuple[str, str], text: str = "") -> Reply:
    """The same round as one JSON document."""
    asked = [{"id": f"c{i}", "type": "function", "function": {"name": n, "arguments": a}}
             for i, (n, a) in enumerate(calls)]  # fmt: skip
    return whole(message={"role": "assistant", "content": text or None, "tool_calls": asked},
                 finish="tool_calls")  # fmt: skip


def whole(message: dict[str, object], finish: str = "stop") -> Reply:
    """An answer that is no stream."""
    body = {
        "id": "x", "object": "chat.completion", "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14},
    }  # fmt: skip
    return Reply(
        [json.dumps(body).encode()], content_type="application/json", framing="length"
    )
