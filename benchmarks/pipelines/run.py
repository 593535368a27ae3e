"""Are the recorded times of retrievals and tools those that their scripts took?

Starts `stagelens serve` with the real engine on a model, pipelines whose retriever and
tools wait for a scripted time and say how long they really took, and compares each
recorded span with that: a Python function, an MCP server over stdio, one over HTTP and
an HTTP API. What a span has more is the way there and back. One request at a time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import httpx
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.e2e.conftest import Served, start_server, stop_server
from tests.e2e.test_pipelines import TOOLS, config, documents
from tests.support.live_mcp import COMMAND, ROOT, live_mcp
from tests.support.slow_api import slow_api
from tests.support.tiny_model import make_tiny_model

SCRIPT_MS = 200.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=20, help="of each kind of tool")
    parser.add_argument("--out", type=Path, help="write all figures as JSON")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        model = make_tiny_model(folder / "model")
        mcp_url = stack.enter_context(live_mcp())
        api_url, document, _ = stack.enter_context(slow_api(folder))
        (folder / "config.yaml").write_text(config(mcp_url, api_url, document))
        server = start_server(
            folder, model, "--enable-auto-tool-choice", "--tool-call-parser", "xlam",
            config=folder / "config.yaml",
        )  # fmt: skip
        try:
            found = measure(server, folder, options.requests)
        finally:
            stop_server(server)
        child = StdioServerParameters(command=COMMAND[0], args=[*COMMAND[1:]], cwd=ROOT)
        alone = {"mcp-stdio": stdio_client(child), "mcp-http": streamable_http_client(mcp_url)}
        for kind, transport in alone.items():
            took = asyncio.run(bare(transport, TOOLS[kind], options.requests))
            found[f"the official client alone, {kind}"] = took
    show(found)
    if options.out:
        rows = [{"what": f"{name}, beyond its script", "unit": "ms", "values": values}
                for name, values in found.items()]  # fmt: skip
        told = {"machine": machine(), "load": f"{options.requests} requests of each kind of tool",
                "rows": rows}  # fmt: skip
        options.out.write_text(json.dumps(told, indent=2))
    return 0


def measure(server: Served, folder: Path, requests: int) -> dict[str, list[float]]:
    """What each recorded span has beyond its script, in milliseconds."""
    (folder / "tale.txt").write_text("The cat sleeps on the mat.")
    documents(server, "add", str(folder / "tale.txt"), "--collection", "tales")
    found: dict[str, list[float]] = {}
    for kind, tool in TOOLS.items():
        for number in range(requests + 2):
            trace = ask(server, kind, tool)
            if number < 2:  # connections, imports, compiled schemas
                continue
            if not refused(trace, f"execute_tool {tool}"):
                found.setdefault(f"tool, {kind}", []).append(beyond(trace, f"execute_tool {tool}"))
            found.setdefault("retrieval, Python", []).append(beyond(trace, "retrieval slow"))
            spans = {s.name: s for s in trace.spans}
            found.setdefault("retrieval, store (whole)", []).append(
                spans["retrieval store"].duration_ns / 1e6
            )
            [record] = trace.requests
            times = {s.stage: s.ns for s in record.stages if not s.part_of}
            found.setdefault("sum of the stages less E2E", []).append(
                (sum(times.values()) - record.e2e_ns) / 1e6
            )
    return found


def ask(server: Served, pipeline: str, tool: str):  # noqa: ANN201
    body = {"model": pipeline, "max_tokens": 8, "stream": True,
            "messages": [{"role": "user", "content": "Who sleeps?"}],
            "tool_choice": {"type": "function", "function": {"name": tool}}}  # fmt: skip
    answer = httpx.post(f"{server.proxy}/v1/chat/completions", json=body, timeout=60)
    answer.raise_for_status()
    trace_id = answer.headers["x-stagelens-trace-id"]
    ends = time.monotonic() + 20
    while True:
        try:
            return server.source.trace(trace_id)
        except Exception:
            if time.monotonic() > ends:
                raise
            time.sleep(0.2)


def refused(trace, name: str) -> bool:  # noqa: ANN001
    """Whether the model's arguments did not fit: random weights write some that do not."""
    [span] = [s for s in trace.spans if s.name == name]
    return "error.type" in span.attributes


async def bare(transport, tool: str, requests: int) -> list[float]:  # noqa: ANN001
    """The same calls by the official client alone: what its way there and back takes."""
    took = []
    async with Client(transport) as client:
        for number in range(requests + 2):
            began = time.monotonic()
            await client.call_tool(tool, {})
            if number >= 2:
                took.append((time.monotonic() - began) * 1e3 - SCRIPT_MS)
    return took


def beyond(trace, name: str) -> float:  # noqa: ANN001
    [span] = [s for s in trace.spans if s.name == name]
    return span.duration_ns / 1e6 - SCRIPT_MS


def show(found: dict[str, list[float]]) -> None:
    print(f"milliseconds beyond the scripted {SCRIPT_MS:g} ms ({machine()})")
    print(f"{'':28} {'n':>4} {'min':>8} {'median':>8} {'p95':>8} {'max':>8}")
    for name, values in found.items():
        p95 = statistics.quantiles(values, n=20, method="inclusive")[18]
        row = (min(values), statistics.median(values), p95, max(values))
        print(f"{name:28} {len(values):>4} " + " ".join(f"{v:8.2f}" for v in row))


def machine() -> str:
    cores = subprocess.run(["nproc"], capture_output=True, text=True, check=False).stdout.strip()
    return f"{cores} cores, Python {sys.version.split()[0]}, {json.dumps(sys.platform)}"


if __name__ == "__main__":
    sys.exit(main())
