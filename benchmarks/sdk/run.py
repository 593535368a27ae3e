"""What a decorated call costs: off, on, and beside a bare OpenTelemetry span, in one run."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

from opentelemetry import trace as otel
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import tracer
from stagelens.bench.machine import machine, versions
from tracer.clock import Anchor, SystemClock
from tracer.sdk.runtime import Runtime, install

CALLS, ROUNDS = 20_000, 7


class Nowhere(SpanProcessor):
    """Takes each ended span and does nothing, for both contestants."""

    def on_end(self, span: ReadableSpan) -> None:
        """Nothing."""


def work(x: int) -> int:
    return x


@tracer.trace
def decorated(x: int) -> int:
    return x


@tracer.llm("m")
def inner(x: int) -> int:
    return x


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    provider = TracerProvider()
    provider.add_span_processor(Nowhere())
    bare = provider.get_tracer("bare")
    clock = SystemClock()
    runtime = Runtime(provider.get_tracer("ours"), clock, Anchor.take(clock), False, None, 8192, None, 0.0)

    def raw(x: int) -> int:
        with bare.start_as_current_span("work") as span:
            span.set_attribute("gen_ai.operation.name", "chat")
            span.set_attribute("gen_ai.request.model", "m")
            return work(x)

    rounds: dict[str, list[float]] = {name: [] for name in ("plain", "off", "raw", "llm", "trace")}
    for _ in range(ROUNDS):
        install(None)
        rounds["plain"].append(per_call(work))
        rounds["off"].append(per_call(inner))
        rounds["raw"].append(per_call(raw))
        install(runtime)
        rounds["llm"].append(per_call(inner))
        rounds["trace"].append(per_call(decorated))
    off = [o - p for o, p in zip(rounds["off"], rounds["plain"], strict=True)]
    print(f"Python {sys.version.split()[0]}; {ROUNDS} rounds of {CALLS} calls; min / median / max")
    rows = [("not configured, added ns", off, "at most 300"),
            ("raw OpenTelemetry span, ns", rounds["raw"], "")]  # fmt: skip
    for name in ("llm", "trace"):
        ratios = [a / b for a, b in zip(rounds[name], rounds["raw"], strict=True)]
        rows.append((f"@{name} / raw span", ratios, "at most 1.3"))
    for name, values, goal in rows:
        show(name, values, goal)
    if options.out:
        told = {
            "machine": machine(), "versions": versions(("stagelens", "opentelemetry-sdk")),
            "load": f"{ROUNDS} rounds of {CALLS} calls",
            "rows": [{"what": n, "values": v, "goal": g} for n, v, g in rows],
        }  # fmt: skip
        options.out.write_text(json.dumps(told, indent=2))
    assert otel.get_current_span().get_span_context().trace_id == 0
    return 0


def per_call(call: object) -> float:
    began = time.perf_counter_ns()
    for n in range(CALLS):
        call(n)  # type: ignore[operator]
    return (time.perf_counter_ns() - began) / CALLS


def show(name: str, values: list[float], goal: str) -> None:
    low, mid, high = min(values), statistics.median(values), max(values)
    print(f"{name:<32}{low:>12.2f}{mid:>12.2f}{high:>12.2f}   {goal}")


if __name__ == "__main__":
    sys.exit(main())
