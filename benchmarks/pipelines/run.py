"""Are the recorded times of retrievals and tools those that their scripts took?

Starts `stagelens serve` with the real engine on a model, pipelines whose retriever and
tools wait for 200 ms and say how long they really took, and compares each recorded span
with that: a Python function, an MCP server over stdio, one over HTTP and an HTTP API.
What a span has more is the way there and back: the part between a request's arrival at
the server's process and its answer's leaving is the server's own, the rest is the proxy's
(and the system's). Beside them the same calls by the official MCP client alone. One
request at a time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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
        times = Times(folder / "times")
        stack.enter_context(times.told())
        mcp_url = stack.enter_context(live_mcp())
        api_url, document, _ = stack.enter_context(slow_api(folder, times.more))
        settings = json.loads(config(mcp_url, api_url, document))
        [child] = settings["pipelines"]["mcp-stdio"]["tools"]
        child["env"] = {times.VARIABLE: times.VARIABLE}
        (folder / "config.yaml").write_text(json.dumps(settings))
        server = start_server(
            folder, model, "--enable-auto-tool-choice", "--tool-call-parser", "xlam",
            config=folder / "config.yaml",
        )  # fmt: skip
        try:
            found = measure(server, folder, options.requests, times)
            env = {times.VARIABLE: str(times.file)}
            command = StdioServerParameters(
                command=COMMAND[0], args=[*COMMAND[1:]], cwd=ROOT, env=env
            )
            alone = {"mcp-stdio": stdio_client(command), "mcp-http": streamable_http_client(mcp_url)}
            for kind, transport in alone.items():
                took = asyncio.run(bare(transport, kind, options.requests, times))
                found[f"official client alone, {kind}"] = took
        finally:
            stop_server(server)
    show(found)
    if options.out:
        rows = [{"what": f"{name}, beyond its script", "unit": "ms", "values": values}
                for name, values in found.items()]  # fmt: skip
        told = {"machine": machine(), "load": f"{options.requests} requests of each kind of tool",
                "rows": rows}  # fmt: skip
        options.out.write_text(json.dumps(told, indent=2))
    return 0


class Times:
    """What scripts say of themselves, as ``tests.support.timed`` writes it."""

    VARIABLE = "STAGELENS_TIMES"

    def __init__(self, file: Path) -> None:
        self.file = file
        self.more: list[dict[str, object]] = []
        file.touch()

    @contextmanager
    def told(self) -> Iterator[None]:
        """Programs started meanwhile write there."""
        os.environ[self.VARIABLE] = str(self.file)
        try:
            yield
        finally:
            del os.environ[self.VARIABLE]

    def take(self, kind: str) -> tuple[float, float | None]:
        """The last script of ``kind``, and what its server took besides; in milliseconds."""
        lines = [json.loads(line) for line in self.file.read_text().splitlines()] + self.more
        said = [line for line in lines if line["kind"] == kind][-1]
        took = (said["script"][1] - said["script"][0]) / 1e6
        door = said["door"]
        return took, None if door is None else (door[1] - door[0]) / 1e6 - took


def measure(
    server: Served, folder: Path, requests: int, times: Times
) -> dict[str, list[float]]:
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
                script, own = times.take(kind)
                more = beyond(trace, f"execute_tool {tool}", script)
                found.setdefault(f"tool, {kind}", []).append(more)
                found.setdefault("scripts beyond 200 ms", []).append(script - SCRIPT_MS)
                if own is not None:
                    found.setdefault(f"  {kind}: in its server", []).append(own)
                    found.setdefault(f"  {kind}: the rest", []).append(more - own)
            script, _ = times.take("retrieval")
            found.setdefault("retrieval, Python", []).append(beyond(trace, "retrieval slow", script))
            spans = {s.name: s for s in trace.spans}
            found.setdefault("retrieval, store (whole)", []).append(
                spans["retrieval store"].duration_ns / 1e6
            )
            [record] = trace.requests
            stages = {s.stage: s.ns for s in record.stages if not s.part_of}
            found.setdefault("sum of the stages less E2E", []).append(
                (sum(stages.values()) - record.e2e_ns) / 1e6
            )
    return found


def ask(server: Served, pipeline: str, tool: str):  # noqa: ANN201
    body = {"model": pipeline, "max_tokens": 64, "stream": True,
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
    """Whether no call was made: random weights write arguments that do not fit, or no end of them."""
    spans = [s for s in trace.spans if s.name == name]
    return not spans or "error.type" in spans[0].attributes


async def bare(transport, kind: str, requests: int, times: Times) -> list[float]:  # noqa: ANN001
    """The same calls by the official client alone, beside the idle server: there and back."""
    took = []
    async with Client(transport) as client:
        for number in range(requests + 2):
            began = time.monotonic()
            await client.call_tool(TOOLS[kind], {})
            ended = time.monotonic()
            await asyncio.sleep(0.1)  # its server notes it after the answer
            if number >= 2:
                took.append((ended - began) * 1e3 - times.take(kind)[0])
    return took


def beyond(trace, name: str, script_ms: float) -> float:  # noqa: ANN001
    [span] = [s for s in trace.spans if s.name == name]
    return span.duration_ns / 1e6 - script_ms


def show(found: dict[str, list[float]]) -> None:
    print(f"milliseconds beyond what each script took, about {SCRIPT_MS:g} ms ({machine()})")
    print(f"{'':34} {'n':>4} {'min':>8} {'median':>8} {'p95':>8} {'max':>8}")
    for name, values in found.items():
        p95 = statistics.quantiles(values, n=20, method="inclusive")[18]
        row = (min(values), statistics.median(values), p95, max(values))
        print(f"{name:34} {len(values):>4} " + " ".join(f"{v:8.2f}" for v in row))


def machine() -> str:
    cores = subprocess.run(["nproc"], capture_output=True, text=True, check=False).stdout.strip()
    return f"{cores} cores, Python {sys.version.split()[0]}, {json.dumps(sys.platform)}"


if __name__ == "__main__":
    sys.exit(main())
