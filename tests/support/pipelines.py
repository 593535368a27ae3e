"""Pipelines in front of a scripted model, and what is read off their answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence

import httpx

from tests.fake_llm.dialects import DONE, content, usage
from tests.fake_llm.server import Asked, FakeLlm, Reply, fake_llm
from tests.support.live_proxy import LiveProxy, live_proxy

CHAT = "/v1/chat/completions"
HERE = "tests.support.pipeline_functions:"
USER = [{"role": "user", "content": "what is up?"}]
ANSWER = Reply([content("up"), content(" it is", "stop"), usage(20, 2), DONE])


def tool(name: str, **more: object) -> dict[str, object]:
    return {"kind": "python", "name": name, "function": HERE + name, **more}


def retriever(name: str, function: str, **more: object) -> dict[str, object]:
    return {"kind": "python", "name": name, "function": HERE + function, **more}


def bot(**more: object) -> dict[str, dict[str, object]]:
    return {"bot": {"model": "m", "system_prompt": "Help. {documents}", **more}}


def in_turn(*replies: Reply) -> Callable[[Asked], Reply]:
    left = list(replies)
    return lambda _: left.pop(0)


async def ask(
    replies: Sequence[Reply], pipeline: dict[str, dict[str, object]], **body: object
) -> tuple[httpx.Response, list[dict[str, object]], LiveProxy, FakeLlm]:
    async with (
        fake_llm(in_turn(*replies)) as fake,
        live_proxy(fake.url, pipelines=pipeline) as proxy,
        httpx.AsyncClient(timeout=20) as client,
    ):
        given = {"model": "bot", "messages": USER, **body}
        sent = json.dumps(given)  # in escapes: httpx's own way cannot tell half a character
        kind = {"content-type": "application/json"}
        answer = await client.post(proxy.url + CHAT, content=sent, headers=kind)
        roots = await proxy.sink.wait_for(1)
        return answer, roots, proxy, fake


async def leave_after(
    word: str, client: httpx.AsyncClient, proxy: LiveProxy, linger_s: float = 0.0
) -> None:
    """A client that asks for a stream, and leaves ``linger_s`` after a line of it held ``word``."""
    body = {"model": "bot", "messages": USER, "stream": True}
    async with client.stream("POST", proxy.url + CHAT, json=body) as answer:
        async for line in answer.aiter_lines():
            if word in line:
                break
        await asyncio.sleep(linger_s)


def chunks(answer: httpx.Response) -> list[dict[str, object]]:
    lines = [line[6:] for line in answer.text.split("\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def text_of(answer: httpx.Response) -> str:
    choices = [c["choices"][0] for c in chunks(answer) if c["choices"]]
    return "".join(c["delta"].get("content") or "" for c in choices)


def names(proxy: LiveProxy) -> list[str]:
    return [span.name for span in proxy.sink.requests[0]]
