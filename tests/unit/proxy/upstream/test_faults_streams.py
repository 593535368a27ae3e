"""The cases of streams that other tools got wrong, each over a real socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import httpx
import pytest
import pytest_asyncio

from tests.fake_llm.dialects import DONE, ROLE, content, delta, messages, responses, sse, usage
from tests.fake_llm.server import FakeLlm, Pause, Reply, fake_llm
from tests.support.live_proxy import LiveProxy, live_proxy
from tracer import semconv

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
LATE_S = 0.15
"""How late a stamp may be, beside what the fake itself was late; events to tell apart lie further apart."""


@dataclass
class Case:
    """``want`` of the root's attributes; times in ``at`` are seconds, None is a missing one."""

    number: str
    steps: list[object]
    want: dict[str, object] = field(default_factory=dict)
    at: dict[str, float | None] = field(default_factory=dict)
    path: str = CHAT
    ask: dict[str, object] = field(default_factory=dict)


FIRST, CHUNK, ANSWER = semconv.FIRST_TOKEN_NS, semconv.FIRST_CHUNK_NS, semconv.FIRST_ANSWER_NS
IN, OUT = semconv.INPUT_TOKENS, semconv.OUTPUT_TOKENS


def text(said: str, finish: str | None = None, **more: object) -> bytes:
    return sse({"choices": [{"index": 0, "text": said, "finish_reason": finish}], **more})


def counted(said: str, tokens: int, **more: object) -> bytes:
    return text(said, usage={"prompt_tokens": 1000, "completion_tokens": tokens}, **more)


A = b'{"model":"m","choices":[{"index":0,"delta":{"content":"Hi"}}]}'
U = b'{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}'


def framed(end: bytes, space: bytes) -> list[object]:
    return [b"".join(b"data:" + space + d + end * 2 for d in (A, U, b"[DONE]"))]


CALL = [{"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": ""}}]
ARGS = [{"index": 0, "function": {"arguments": '{"a":1}'}}]
ERROR = sse({"error": {"message": "CANARY", "type": "server_error"}})

CASES = [
    *(
        Case(f"1 {end!r} {space!r}", framed(end, space),
             {IN: 3, OUT: 1, semconv.DONE_SEEN: True, semconv.STATUS: "ok"}, {FIRST: 0.0})
        for end, space in ((b"\r\n", b""), (b"\n", b""), (b"\r\n", b" "), (b"\r", b" "))
    ),
    Case("2b", [b"data: " + A + b"\r\n\r", b"\ndata: " + U + b"\r\n\r\n", DONE], {IN: 3, OUT: 1}),
    Case("4", [b'data: {"choices":[{"index":0,"delta":{"con',
               b'tent":"A"}}]}\n\n' + content("B") + b"data: [DO",
               b"NE]\n\n"],
         {semconv.ITL_NS: 1, semconv.DONE_SEEN: True, semconv.STATUS: "ok"}),
    Case("5", [b'data: {"choices":[{"index":0,', b'\ndata: "delta":{"content":"x"}}]}', b"\n", b"\n",
               DONE], {semconv.STATUS: "ok"}, {FIRST: 0.0, ANSWER: 0.0}),
    Case("7", [Pause(0.2), b":\n\n", Pause(0.4), b": ping - x\n\n", Pause(0.6), ROLE, Pause(0.8),
               content("Hi"), DONE], {semconv.STATUS: "ok", semconv.ITL_NS: 0},
         {CHUNK: 0.2, FIRST: 0.8}),
    Case("10", [Pause(0.05), ROLE, Pause(0.8), content("Hi"), DONE], {},
         {CHUNK: 0.05, FIRST: 0.8, ANSWER: 0.8}),
    Case("10 no token", [Pause(0.05), ROLE, DONE], {semconv.STATUS: "ok"},
         {CHUNK: 0.05, FIRST: None, ANSWER: None}),
    *(
        Case(f"11 {name}", [ROLE, Pause(0.2), delta(**{name: "Okay"}), Pause(0.5), content("\n\n"),
                            Pause(0.8), content("Yes"), DONE], {}, {FIRST: 0.2, ANSWER: 0.8})
        for name in ("reasoning", "reasoning_content")
    ),
    Case("11 refusal", [ROLE, Pause(0.2), delta(refusal="No"), DONE], {}, {FIRST: 0.2, ANSWER: None}),
    Case("11 audio", [ROLE, Pause(0.2), delta(audio={"data": "AA=="}), DONE], {}, {FIRST: 0.2}),
    Case("13", [ROLE, Pause(0.2), delta(tool_calls=CALL), Pause(0.6), delta(tool_calls=ARGS),
                usage(50, 200), DONE], {OUT: 200, semconv.ITL_KIND: "chunk", semconv.ITL_NS: 1},
         {FIRST: 0.2, ANSWER: None, semconv.TPOT_NS: 0.4 / 199}),
    Case("14 completions", [Pause(0.2), text("a"), Pause(0.6), text("b", "stop"), DONE], {},
         {FIRST: 0.2}, TEXT),
    Case("14 responses", [responses()[0], Pause(0.2), responses()[1], Pause(0.6), responses()[-1]],
         {semconv.FINISH_REASON: "completed", semconv.DONE_SEEN: True}, {FIRST: 0.2, ANSWER: 0.2},
         "/v1/responses"),
    Case("14 messages", [*messages()[:3], Pause(0.2), *messages()[3:-2], Pause(0.6),
                         *messages()[-2:]],
         {semconv.FINISH_REASON: "end_turn", IN: 45, OUT: 15, semconv.CACHED_TOKENS: 30},
         {FIRST: 0.2, ANSWER: 0.2}, "/v1/messages"),
    Case("14 unknown route", [Pause(0.2), content("a"), DONE], {semconv.STATUS: "ok"},
         {FIRST: None}, "/v9/odd"),
    Case("16", [Pause(0.1), counted("", 0), Pause(0.3), counted("", 0), Pause(0.6), counted(" a", 1),
                usage(1000, 1), DONE], {OUT: 1}, {FIRST: 0.6}, TEXT),
    Case("16 an empty text is a token", [counted("", 0), Pause(0.2), counted("", 1), Pause(0.5),
                                         counted("é", 2), usage(1000, 2), DONE],
         {OUT: 2}, {FIRST: 0.2, ANSWER: 0.5}, TEXT),
    Case("17", [ROLE, Pause(0.2), content("A", "length"), usage(7, 1), DONE],
         {IN: 7, OUT: 1, semconv.TPOT_NS: None, semconv.STATUS: "ok",
          semconv.FINISH_REASON: "length"}, {FIRST: 0.2}),
    Case("19", [Pause(0.2), text(" ok"), Pause(0.5), counted("", 1), DONE], {OUT: 1}, {FIRST: 0.2},
         TEXT, {"max_tokens": 512}),
    Case("20", [Pause(0.1), content("a"), Pause(0.2), content("b"), Pause(0.3), content("c"),
                Pause(0.9), usage(5, 3), Pause(1.0), DONE], {OUT: 3},
         {semconv.TPOT_NS: 0.1, semconv.E2E_NS: 1.0, FIRST: 0.1}),
    *(
        Case(f"28 {odd}", [sse(odd), content("a"), usage(3, 1), DONE],
             {IN: 3, OUT: 1, semconv.STATUS: "ok"}, {FIRST: 0.0})
        for odd in ({"choices": [], "prompt_filter_results": []}, {"usage": None},
                    {"choices": None}, {"choices": [None]}, [], 7)
    ),
    Case("31", [counted("a", 1), counted("b", 2), counted("c", 3), sse({"choices": [],
                "usage": {"prompt_tokens": 10, "completion_tokens": 3}}), DONE],
         {IN: 10, OUT: 3}, {}, TEXT),
    Case("31 null usage", [text("a", usage=None), text("b", usage=None), usage(10, 3), DONE],
         {IN: 10, OUT: 3}, {}, TEXT),
    Case("35", [responses()[0], responses()[1], responses()[-1]],
         {IN: 22118, OUT: 1970, semconv.REASONING_TOKENS: 956, semconv.CACHED_TOKENS: 100}, {},
         "/v1/responses"),
    Case("error in a 200 stream", [ROLE, content("a"), ERROR],
         {semconv.STATUS: "error", semconv.ERROR_TYPE: "server_error"}),
    Case("failed response", list(responses(failed=True)),
         {semconv.STATUS: "error", semconv.ERROR_TYPE: "server_error"}, {}, "/v1/responses"),
    Case("error of messages", [messages()[0], sse({"type": "error", "error": {
        "type": "overloaded_error", "message": "CANARY"}}, "error")],
         {semconv.STATUS: "error", semconv.ERROR_TYPE: "overloaded_error"}, {}, "/v1/messages"),
    *(
        Case(f"error {name}", [ROLE, content("a"), event, *more],
             {semconv.STATUS: "error", semconv.ERROR_TYPE: wanted})
        for more in ((), (DONE,))
        for name, event, wanted in (
            ("by its object", sse({"object": "error", "message": "CANARY", "type": "BadRequestError"}),
             "BadRequestError"),
            ("by its event", sse({"message": "CANARY", "code": 500}, "error"), "500"),
            ("by its event, in words", b"event: error\ndata: CANARY\n\n", "error"),
            ("as llama.cpp says it", b'error: {"code":500,"message":"CANARY","type":"server_error"}\n\n',
             "server_error"),
        )
    ),
    Case("error of responses", [responses()[0], sse({"type": "error", "code": "rate_limit_exceeded",
         "message": "CANARY"}, "error")],
         {semconv.STATUS: "error", semconv.ERROR_TYPE: "rate_limit_exceeded"}, {}, "/v1/responses"),
    Case("cancelled response", [responses()[0], sse({"type": "response.cancelled", "response": {
         "object": "response", "status": "cancelled"}}, "response.cancelled")],
         {semconv.STATUS: "ok", semconv.FINISH_REASON: "cancelled"}, {}, "/v1/responses"),
    Case("byte order mark", [b"\xef\xbb\xbf" + content("a"), usage(3, 1), DONE],
         {IN: 3, OUT: 1, semconv.STATUS: "ok"}, {FIRST: 0.0, ANSWER: 0.0}),
    Case("no last blank line", [content("a", "stop"), usage(3, 1)[:-2]],
         {IN: 3, OUT: 1, semconv.STATUS: "ok"}),
    Case("no line end after DONE", [content("a"), usage(3, 1), DONE[:-2]],
         {IN: 3, OUT: 1, semconv.STATUS: "ok", semconv.DONE_SEEN: True}),
    Case("an event too long to be read is the end", [ROLE, content("x" * 5_000_000, "stop")],
         {semconv.STATUS: "ok"}),
    Case("audio's id is no token", [ROLE, delta(audio={"id": "a"}), Pause(0.2),
         delta(audio={"transcript": "Hi"}), delta(audio={"expires_at": 5}), DONE],
         {semconv.ITL_NS: 0}, {FIRST: 0.2}),
    Case("all tokens in one chunk have no pace", [ROLE, content("a b c"), usage(3, 3), DONE],
         {OUT: 3, semconv.TPOT_NS: None}),
    Case("LiteLLM's names beside OpenAI's", [content("a"), usage(100, 1, usage={
         "prompt_tokens_details": {"cached_tokens": 40}, "cache_read_input_tokens": 40,
         "cache_creation_input_tokens": 10}), DONE], {IN: 100, semconv.CACHED_TOKENS: 40}),
    Case("8 finish without DONE", [ROLE, content("par", "stop")],
         {semconv.STATUS: "ok", semconv.DONE_SEEN: False}),
]  # fmt: skip


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[tuple[FakeLlm, LiveProxy]]:
    """One fake and one proxy for all cases, which set the script."""
    async with fake_llm(Reply()) as fake, live_proxy(fake.url) as proxy:
        yield fake, proxy


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.number)
async def test_the_record_is_right_and_the_bytes_are_the_upstreams(case, shared):
    """Faults 1, 2, 4, 5, 7, 8, 10, 11, 13, 14, 16, 17, 19, 20, 28, 31, 35 (the case's id says which)."""
    fake, proxy = shared
    fake.script, fake.late_s = (lambda _: Reply(case.steps)), 0.0
    before = len(proxy.sink.requests)
    async with httpx.AsyncClient() as client:
        ask = {"model": "m", "stream": True, **case.ask}
        asked_s = asyncio.get_running_loop().time()
        answer = await client.post(proxy.url + case.path, json=ask)
        root = (await proxy.sink.wait_for(before + 1))[-1]
        assert len(proxy.sink.requests) == before + 1
        spans = "".join(span.to_json() for span in proxy.sink.requests[-1])
        late_s = LATE_S + fake.late_s + (fake.began_s - asked_s)
    assert answer.content == b"".join(s for s in case.steps if isinstance(s, bytes))
    assert "CANARY" not in spans
    for name, wanted in case.want.items():
        got = root.get(name)
        if name == semconv.ITL_NS:
            got = len([g for g in str(got or "").split(",") if g])
        assert got == wanted, name
    for name, at_s in case.at.items():
        got = root.get(name)
        if at_s is None:
            assert got is None, name
        elif name == semconv.TPOT_NS:
            tokens = int(str(root[OUT])) - 1
            assert got / 1e9 == pytest.approx(at_s, abs=late_s / tokens)
        else:
            assert at_s - 0.005 <= got / 1e9 <= at_s + late_s, name
    exclusive = [v for k, v in root.items()
                 if k.startswith("stagelens.stage.") and k.endswith("_ns")]  # fmt: skip
    assert sum(exclusive) == root[semconv.E2E_NS]
    assert not {"NaN", "Infinity"} & set(json.dumps(root, default=str).split())


async def test_choices_are_kept_apart():
    """Interleaved choices: first token for each choice, and their minimum (faults 32)."""
    def piece(index: int, said: str) -> bytes:
        return delta(index, content=said)

    steps = [Pause(0.1), piece(0, "A"), Pause(0.3), piece(1, "B"), piece(1, "1"), piece(0, "0"),
             delta(0, "stop"), delta(1, "length"), usage(5, 4), DONE]  # fmt: skip
    async with (
        fake_llm(Reply(steps)) as fake,
        live_proxy(fake.url) as proxy,
        httpx.AsyncClient() as client,
    ):
        await client.post(proxy.url + CHAT, json={"n": 2, "stream": True})
        [root] = await proxy.sink.wait_for(1)
    call = next(s for s in proxy.sink.requests[0] if s.name.startswith("chat"))
    first, second = map(int, call.attributes[semconv.CHOICE_FIRST_TOKEN_NS].split(","))
    assert second - first > 150_000_000
    assert root[semconv.FIRST_TOKEN_NS] / 1e9 >= 0.1
    assert call.attributes[semconv.GEN_AI_RESPONSE_FINISH_REASONS] == ["stop", "length"]
    assert (root[semconv.CHOICES], root[semconv.FINISH_REASON]) == (2, "stop")
