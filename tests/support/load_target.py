"""A fake LLM that answers loads: as many tokens as asked for, one a word, with usage."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from ssl import SSLContext
from typing import Any

from stagelens.bench.drive import Driver
from stagelens.bench.plan import Plan, Step
from stagelens.bench.settings import BenchSettings
from stagelens.bench.talk import Conversation, Speech, Turn
from stagelens.bench.wire import Client, Target
from tests.fake_llm.dialects import DONE, chat, usage
from tests.fake_llm.server import Asked, FakeLlm, Hang, Reply, fake_llm
from tests.fake_llm.server import Step as ReplyStep
from tracer.clock import SystemClock

TEMPLATE_TOKENS = 11
CLOCK = SystemClock()


def words_in(asked: Asked) -> int:
    """What the fake counts as input tokens: words, and its template."""
    body = json.loads(asked.body)
    texts = [m["content"] for m in body["messages"]] if "messages" in body else [body["prompt"]]
    return TEMPLATE_TOKENS + sum(len(text.split()) for text in texts)


def answer(
    asked: Asked, ttft_s: float = 0.0, itl_s: float = 0.0, before: Sequence[ReplyStep] = ()
) -> Reply:
    """A stream of ``max_tokens`` tokens."""
    if asked.target.endswith("/models"):
        told = json.dumps({"data": [{"id": "m"}]}).encode()
        return Reply([told], content_type="application/json", framing="length")
    tokens = json.loads(asked.body)["max_tokens"]
    made = chat(tokens=tokens, ttft_s=ttft_s, itl_s=itl_s, with_usage=False)
    return replace(made, steps=[*before, *made.steps[:-1], usage(words_in(asked), tokens), DONE])


def load_target(
    script: Callable[[Asked], Reply] = answer, tls: SSLContext | None = None
) -> AbstractAsyncContextManager[FakeLlm]:
    return fake_llm(script, tls)


@asynccontextmanager
async def hanging_target(reached: asyncio.Event, after: int = 12) -> AsyncIterator[FakeLlm]:
    """One that answers ``after`` requests and then none; ``reached`` says that it has come to that."""

    def script(asked: Asked) -> Reply:
        if len(fake.requests) > after:
            reached.set()
            return answer(asked, before=[Hang()])
        return answer(asked)

    async with load_target(script) as fake:
        yield fake


def tags_of(asked: Asked) -> dict[str, str]:
    told = asked.header("x-stagelens-tags") or ""
    return dict(part.split("=", 1) for part in told.split(",") if part)


def talk(*words: str, output: int = 2, **more: Any) -> Conversation:
    """A conversation with one turn a text."""
    turns = tuple(Turn(({"role": "user", "content": w},), output) for w in words)
    return Conversation(turns, **more)


def driver_for(
    fake: FakeLlm, plan: Plan, *, rate: float | None = None, concurrency: int | None = None,
    label: str = "level", timeout_s: float = 20, **settings: Any,
) -> tuple[Driver, Client]:  # fmt: skip
    """A driver of one level against ``fake``, without warm-up unless told."""
    driver_settings: dict[str, Any] = {"warmup_s": 0.0, **settings}
    if concurrency is not None:
        driver_settings["concurrency"] = [concurrency]
    else:
        driver_settings["rate"] = [rate or 1.0]
    made = BenchSettings(url=fake.url, timeout_s=timeout_s, **driver_settings)
    target = Target.parse(fake.url)
    client = Client(target, CLOCK, timeout_s)
    step = Step(label, "r", rate=rate, concurrency=concurrency)
    speech = Speech(target, "m")
    return Driver(client, speech, made, step, plan, CLOCK, "r"), client
