"""A varied load on an OpenAI-compatible server, by the official `openai` client.

Short and long prompts, streamed and not, different answer lengths, chat and text
completions, a shared prefix in about a third of the requests, phases of rising
concurrency. The same seed gives the same requests.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import openai

from tracer.clock import SystemClock

TOPICS = (
    "a harbour at night", "the tides", "bread and its history", "a lighthouse keeper",
    "how bees find their way", "an old bridge", "rain on a tin roof", "the first railway",
    "growing tomatoes", "a chess game in a park", "why the sky is blue", "a lost umbrella",
)  # fmt: skip
HANDBOOK = " ".join(
    f"Rule {n}: an assistant of the {topic} desk answers briefly, names its source, never guesses "
    "a figure, asks when a question is unclear, and hands over to a person when it must."
    for n, topic in enumerate(("billing", "travel", "library", "garden", "kitchen", "music"), 1)
)
PHASES = ((1, 10), (4, 28), (8, 48))
"""Concurrency and number of requests."""


@dataclass(frozen=True)
class Ask:
    """One request to be made."""

    phase: str
    kind: str
    prompt: str
    system: str
    max_tokens: int
    stream: bool
    n: int = 1


@dataclass
class Seen:
    """What the client saw of it; times in seconds from the moment before the call."""

    ask: Ask
    trace_id: str = ""
    first_token_s: float | None = None
    e2e_s: float = 0.0
    error: str = ""


@dataclass
class Outcome:
    seen: list[Seen] = field(default_factory=list)
    began_unix_ns: int = 0

    @property
    def failed(self) -> list[Seen]:
        return [s for s in self.seen if s.error]


def plan(seed: int, scale: float = 1.0) -> list[list[Ask]]:
    """The phases' requests, the same for the same seed."""
    rng = random.Random(seed)
    return [
        list(_phase(rng, f"c{concurrency}", max(1, round(count * scale))))
        for concurrency, count in PHASES
    ]


def _phase(rng: random.Random, name: str, count: int) -> Iterator[Ask]:
    for i in range(count):
        topic = rng.choice(TOPICS)
        if i % 3 == 0:
            kind, system = "handbook", HANDBOOK
        elif i % 7 == 1:
            kind, system = "long", ""
        else:
            kind, system = ("text" if i % 11 == 4 else "chat"), ""
        prompt = f"Tell me about {topic}."
        if kind == "long":
            words = " ".join(rng.choice(TOPICS) for _ in range(rng.randint(60, 140)))
            prompt = f"Here are my notes: {words}. {prompt}"
        yield Ask(
            phase=name, kind=kind, prompt=prompt, system=system,
            max_tokens=rng.choice((4, 8, 12, 16, 24, 32, 48)), stream=i % 4 != 3,
            n=2 if i % 13 == 6 else 1,
        )  # fmt: skip


async def run_load(
    url: str, model: str, phases: list[list[Ask]], on_done: Callable[[Seen], None]
) -> Outcome:
    """Send every phase at its concurrency; a request that fails is kept with its error."""
    outcome = Outcome(began_unix_ns=SystemClock().unix_ns())
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        for (concurrency, _), asks in zip(PHASES, phases, strict=True):
            gate = asyncio.Semaphore(concurrency)

            async def one(ask: Ask, gate: asyncio.Semaphore = gate) -> None:
                async with gate:
                    seen = await _send(client, model, ask)
                    outcome.seen.append(seen)
                    on_done(seen)

            await asyncio.gather(*(one(ask) for ask in asks))
    return outcome


async def _send(client: openai.AsyncOpenAI, model: str, ask: Ask) -> Seen:
    seen = Seen(ask)
    began = time.monotonic()
    try:
        if ask.stream:
            await _streamed(client, model, ask, seen, began)
        else:
            made = await _create(client, model, ask, stream=False)
            seen.trace_id = made.headers.get("x-stagelens-trace-id", "")
            made.parse()
    except (openai.OpenAIError, OSError) as problem:
        seen.error = f"{type(problem).__name__}: {problem}"[:300]
    seen.e2e_s = time.monotonic() - began
    return seen


async def _streamed(
    client: openai.AsyncOpenAI, model: str, ask: Ask, seen: Seen, began: float
) -> None:
    made = await _create(client, model, ask, stream=True)
    seen.trace_id = made.headers.get("x-stagelens-trace-id", "")
    async for chunk in made.parse():
        if seen.first_token_s is None and chunk.choices and _text(chunk.choices[0]):
            seen.first_token_s = time.monotonic() - began


async def _create(client: openai.AsyncOpenAI, model: str, ask: Ask, *, stream: bool):  # noqa: ANN202
    headers = {"x-stagelens-tags": f"phase={ask.phase},kind={ask.kind}"}
    common = {"model": model, "max_tokens": ask.max_tokens, "n": ask.n, "stream": stream,
              "temperature": 0.7, "seed": 1, "extra_headers": headers}  # fmt: skip
    if ask.kind == "text":
        return await client.completions.with_raw_response.create(prompt=ask.prompt, **common)
    messages = [{"role": "user", "content": ask.prompt}]
    if ask.system:
        messages.insert(0, {"role": "system", "content": ask.system})
    return await client.chat.completions.with_raw_response.create(messages=messages, **common)


def _text(choice: object) -> str:
    delta = getattr(choice, "delta", None)
    return (getattr(delta, "content", None) if delta else getattr(choice, "text", None)) or ""


def summary(outcome: Outcome) -> str:
    """One line on what was sent."""
    kinds = Counter(s.ask.kind for s in outcome.seen)
    streamed = sum(s.ask.stream for s in outcome.seen)
    parts = ", ".join(f"{n} {kind}" for kind, n in kinds.most_common())
    return (
        f"{len(outcome.seen)} requests ({parts}; {streamed} streamed), {len(outcome.failed)} failed"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--model", required=True)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--scale", type=float, default=1.0, help="more or fewer requests")
    parser.add_argument("--out", type=Path, help="write what was seen as JSON lines")
    options = parser.parse_args()
    phases = plan(options.seed, options.scale)
    outcome = asyncio.run(run_load(options.url, options.model, phases, lambda _: None))
    print(summary(outcome))
    if options.out:
        options.out.write_text("".join(json.dumps(asdict(s)) + "\n" for s in outcome.seen))
    for seen in outcome.failed:
        print(f"failed: {seen.error}", file=sys.stderr)
    return 1 if outcome.failed else 0


if __name__ == "__main__":
    sys.exit(main())
