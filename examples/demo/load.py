"""A varied load on an OpenAI-compatible server, by the official `openai` client.

Short and long prompts, streamed and not, different answer lengths, chat and text
completions, structured output, a tool call, several choices, a shared prefix in a third
of the requests, phases of rising concurrency. The same seed gives the same requests.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import httpx
import openai
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from examples.demo.plan import EXTRAS, Ask, Phase, plan
from tracer.clock import SystemClock

CLOCK = SystemClock()
MISTAKES = (openai.OpenAIError, httpx.HTTPError, OSError, ValueError)
"""What a request may fail with: the client lets its transport's and its parser's errors through."""
REFUSALS = (openai.BadRequestError, openai.NotFoundError, openai.UnprocessableEntityError)


@dataclass
class Seen:
    """What the client saw of one request; durations count from before the client's call."""

    ask: Ask
    trace_id: str = ""
    first_token_ns: int | None = None
    e2e_ns: int = 0
    finished: set[int] = field(default_factory=set)
    refused: str = ""
    error: str = ""


@dataclass
class Outcome:
    """All requests in the order they ended; one that failed is kept with its error."""

    began_unix_ns: int
    seen: list[Seen] = field(default_factory=list)

    @property
    def failed(self) -> list[Seen]:
        return [s for s in self.seen if s.error]

    @property
    def refused(self) -> list[Seen]:
        return [s for s in self.seen if s.refused]

    @property
    def answered(self) -> list[Seen]:
        return [s for s in self.seen if not s.error and not s.refused]


async def run_load(
    url: str, model: str, phases: list[Phase], on_done: Callable[[Seen], None]
) -> Outcome:
    """Send one phase after the other, each at its concurrency."""
    outcome = Outcome(began_unix_ns=CLOCK.unix_ns())
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        for phase in phases:
            gate = asyncio.Semaphore(phase.concurrency)

            async def one(ask: Ask, gate: asyncio.Semaphore = gate) -> None:
                async with gate:
                    seen = await _send(client, model, ask)
                outcome.seen.append(seen)
                on_done(seen)

            await asyncio.gather(*(one(ask) for ask in phase.asks))
    return outcome


async def _send(client: openai.AsyncOpenAI, model: str, ask: Ask) -> Seen:
    seen = Seen(ask)
    began = CLOCK.mono_ns()
    try:
        await _answer(client, model, seen, began)
    except MISTAKES as problem:
        said = " ".join(f"{type(problem).__name__}: {problem}".split())[:300]
        if ask.kind in EXTRAS and isinstance(problem, REFUSALS):
            seen.refused = said
        else:
            seen.error = said
    seen.e2e_ns = CLOCK.mono_ns() - began
    if len(seen.finished) < ask.n and not seen.error and not seen.refused:
        seen.error = f"the answer ended with {len(seen.finished)} of {ask.n} choices finished"
    return seen


async def _answer(client: openai.AsyncOpenAI, model: str, seen: Seen, began: int) -> None:
    made = await _create(client, model, seen.ask)
    seen.trace_id = made.headers.get("x-stagelens-trace-id", "")
    body = made.parse()
    if not seen.ask.stream:
        seen.finished = {c.index for c in body.choices if c.finish_reason}
        return
    async for chunk in body:
        for choice in chunk.choices:
            if seen.first_token_ns is None and _has_token(choice):
                seen.first_token_ns = CLOCK.mono_ns() - began
            if choice.finish_reason:
                seen.finished.add(choice.index)


async def _create(client: openai.AsyncOpenAI, model: str, ask: Ask) -> Any:  # noqa: ANN401
    """No ``seed``: vLLM 0.32 on a CPU dies of one when a prompt is computed in several steps."""
    common: dict[str, Any] = {
        "model": model, "max_tokens": ask.max_tokens, "n": ask.n, "stream": ask.stream,
        "temperature": ask.temperature,
        "extra_headers": {"x-stagelens-tags": f"phase={ask.phase},kind={ask.kind}"},
    }  # fmt: skip
    if ask.kind == "text":
        return await client.completions.with_raw_response.create(prompt=ask.prompt, **common)
    messages = [{"role": "user", "content": ask.prompt}]
    if ask.system:
        messages.insert(0, {"role": "system", "content": ask.system})
    common |= EXTRAS.get(ask.kind, {})
    if ask.tool:
        common["tool_choice"] = {"type": "function", "function": {"name": ask.tool}}
    return await client.chat.completions.with_raw_response.create(messages=messages, **common)


def _has_token(choice: Any) -> bool:  # noqa: ANN401
    """Content or tool-call text: the role prelude is not a token."""
    if not hasattr(choice, "delta"):
        return bool(choice.text)
    return bool(choice.delta.content or choice.delta.tool_calls)


@contextmanager
def progress(console: Console, phases: list[Phase]) -> Iterator[Callable[[Seen], None]]:
    """A bar with the time left; a request weighs by its length and its phase's concurrency."""
    weights = {p.name: p.concurrency**-0.5 for p in phases}
    total = sum(ask.tokens * weights[p.name] for p in phases for ask in p.asks)
    count, done = sum(len(p.asks) for p in phases), 0
    if not console.is_terminal:
        console.print(f"sending {count} requests (one to two minutes on two cores)")
    with Progress(
        TextColumn("sending the load"), BarColumn(), TextColumn("{task.fields[said]}"),
        TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(), console=console,
        transient=True, disable=not console.is_terminal,
    ) as bar:  # fmt: skip
        task = bar.add_task("load", total=total, said=f"0/{count}")

        def on_done(seen: Seen) -> None:
            nonlocal done
            done += 1
            said = f"{done}/{count} requests, {seen.ask.phase.removeprefix('c')} at a time"
            bar.update(task, advance=seen.ask.tokens * weights[seen.ask.phase], said=said)

        yield on_done


def summary(outcome: Outcome) -> str:
    """One line on what was sent."""
    kinds = Counter(s.ask.kind for s in outcome.seen)
    parts = [f"{n} {kind}" for kind, n in kinds.most_common()]
    parts.append(f"{sum(s.ask.stream for s in outcome.seen)} of them streamed")
    refused = f", {len(outcome.refused)} refused by the server" if outcome.refused else ""
    return f"{len(outcome.seen)} requests ({', '.join(parts)}), {len(outcome.failed)} failed{refused}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--model", required=True, help="the served model's name")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--scale", type=float, default=1.0, help="more or fewer requests")
    parser.add_argument("--out", type=Path, help="write what was seen as JSON lines")
    options = parser.parse_args()
    phases = plan(options.seed, options.scale)
    try:
        with progress(Console(stderr=True), phases) as on_done:
            outcome = asyncio.run(run_load(options.url.rstrip("/"), options.model, phases, on_done))
    except KeyboardInterrupt:
        print("load: stopped", file=sys.stderr)
        return 130
    print(summary(outcome))
    if options.out:
        rows = [asdict(s) | {"finished": sorted(s.finished)} for s in outcome.seen]
        options.out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for seen in outcome.failed + outcome.refused:
        print(f"{'failed' if seen.error else 'refused'}: {seen.ask.kind}: {seen.error or seen.refused}",
              file=sys.stderr)  # fmt: skip
    return 1 if outcome.failed else 0


if __name__ == "__main__":
    sys.exit(main())
