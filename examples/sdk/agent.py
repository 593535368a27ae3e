"""An agent with tools: rounds of a model that asks for tools, which run side by side.

    python examples/sdk/agent.py "Where is order A1, and what is the weather in Rome?"

Wants a server whose model calls tools at OPENAI_BASE_URL.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import openai
from openai.types.chat import ChatCompletion, ChatCompletionMessageFunctionToolCall

import tracer

MODEL = os.environ.get("MODEL", "m")
MOST_ROUNDS = 4
client = tracer.propagating(openai.OpenAI(api_key=os.environ.get("OPENAI_API_KEY", "none")))


@tracer.tool
def order_status(order: str) -> str:
    time.sleep(0.05)
    return {"A1": "shipped"}.get(order, "there is no such order")


@tracer.tool
def weather(city: str) -> str:
    time.sleep(0.1)
    return f"sunny in {city}"


TOOLS = {"order_status": (order_status, "order"), "weather": (weather, "city")}
TOLD: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {
                "type": "object", "properties": {given: {"type": "string"}}, "required": [given],
            },
        },
    }
    for name, (_, given) in TOOLS.items()
]  # fmt: skip


@tracer.llm(MODEL)
def model(messages: list[Any]) -> ChatCompletion:
    return client.chat.completions.create(model=MODEL, messages=messages, tools=TOLD)


def call(asked: ChatCompletionMessageFunctionToolCall) -> dict[str, str]:
    function = TOOLS[asked.function.name][0]
    result = function(**json.loads(asked.function.arguments))
    return {"role": "tool", "tool_call_id": asked.id, "content": result}


@tracer.agent("helper")
def run(question: str) -> str:
    messages: list[Any] = [{"role": "user", "content": question}]
    with tracer.ThreadPoolExecutor() as pool:
        for _ in range(MOST_ROUNDS):
            said = model(messages).choices[0].message
            if not said.tool_calls:
                return said.content or ""
            messages += [said, *pool.map(call, said.tool_calls)]
    return "too many rounds"


def main() -> int:
    tracer.configure(service_name="agent")
    with tracer.trace("conversation"):
        answer = run(" ".join(sys.argv[1:]) or "Where is order A1?")
        tracer.outcome(success=bool(answer), score=1.0)
    print(answer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
