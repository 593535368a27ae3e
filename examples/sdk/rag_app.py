"""A RAG application with FastAPI: each request is a record of its own, with TTFT.

    uvicorn examples.sdk.rag_app:app

POST /answer with {"question": "..."} streams the answer as server-sent events; POST /feedback
with {"trace_id": "...", "right": true} says later whether it was right.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator

import openai
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

import tracer
from tracer.asgi import StagelensMiddleware

MODEL = os.environ.get("MODEL", "m")
PAGES = {
    "returns": "Goods can be returned within 30 days with their receipt.",
    "shipping": "Orders are shipped within two working days.",
    "payment": "Cards and bank transfer are taken.",
}
tracer.configure(service_name="rag-app")
client = tracer.propagating(openai.AsyncOpenAI(api_key=os.environ.get("OPENAI_API_KEY", "none")))
app = FastAPI()
app.add_middleware(StagelensMiddleware, trace_id_header=True, skip=("/health",))


class Question(BaseModel):
    question: str


class Feedback(BaseModel):
    trace_id: str
    right: bool
    reason: str = ""


@tracer.embedding("words")
async def embed(text: str) -> set[str]:
    return set(text.lower().split())


@tracer.retrieval(data_source="pages")
async def search(query: str, k: int = 2) -> list[dict[str, object]]:
    words = await embed(query)
    await asyncio.sleep(0.02)  # a database would take its time here
    scored = [
        {"id": name, "score": float(len(words & set(text.lower().split()))), "text": text}
        for name, text in PAGES.items()
    ]
    return sorted(scored, key=lambda page: -float(str(page["score"])))[:k]


@tracer.llm(MODEL)
async def model(prompt: str) -> object:
    return await client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": prompt}], stream=True, max_tokens=64
    )


@app.post("/answer")
async def answer(asked: Question) -> StreamingResponse:
    hits = await search(asked.question)
    with tracer.stage("prompt"):
        prompt = "\n".join([*(str(hit["text"]) for hit in hits), asked.question])

    async def events() -> AsyncIterator[str]:
        async for chunk in await model(prompt):  # type: ignore[attr-defined]
            if chunk.choices and chunk.choices[0].delta.content:
                yield f"data: {json.dumps(chunk.choices[0].delta.content)}\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")


@app.post("/feedback")
async def feedback(told: Feedback) -> dict[str, bool]:
    return {"kept": tracer.outcome(told.trace_id, success=told.right, reason=told.reason)}


@app.get("/health")
async def health() -> str:
    return "ok"
