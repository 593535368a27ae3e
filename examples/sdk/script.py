"""A plain script: one question, one answer, one trace.

    python examples/sdk/script.py "How do I return goods?"

Wants an OpenAI-compatible server at OPENAI_BASE_URL (``stagelens serve`` is one) and a
collector at OTEL_EXPORTER_OTLP_ENDPOINT (the same command is that, too).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import openai

import tracer

HANDBOOK = {
    "returns": "Goods can be returned within 30 days with their receipt.",
    "shipping": "Orders are shipped within two working days.",
}
MODEL = os.environ.get("MODEL", "m")
client = tracer.propagating(openai.OpenAI(api_key=os.environ.get("OPENAI_API_KEY", "none")))


@tracer.retrieval(data_source="handbook")
def search(query: str, k: int = 1) -> list[dict[str, str]]:
    words = set(query.lower().split())
    ranked = sorted(HANDBOOK.items(), key=lambda page: -len(words & set(page[1].lower().split())))
    return [{"id": name, "text": text} for name, text in ranked[:k]]


@tracer.llm(MODEL)
def model(prompt: str) -> object:
    return client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": prompt}], stream=True, max_tokens=64
    )


@tracer.trace("answer")
def answer(question: str) -> Iterator[str]:
    hits = search(question)
    with tracer.stage("prompt"):
        prompt = "\n".join([*(hit["text"] for hit in hits), question])
    for chunk in model(prompt):  # type: ignore[attr-defined]
        if chunk.choices and chunk.choices[0].delta.content:
            yield chunk.choices[0].delta.content


def main() -> int:
    tracer.configure(service_name="script")
    for text in answer(" ".join(sys.argv[1:]) or "How do I return goods?"):
        print(text, end="", flush=True)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
