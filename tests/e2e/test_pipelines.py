"""Pipelines around the real engine: all seven stages in one stored record."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from dashboards.models.trace import Trace
from tests.e2e.conftest import MODEL, Served, start_server, stop_server, stored_in
from tests.support import raw_client
from tests.support.live_mcp import COMMAND, live_mcp
from tests.support.slow_api import slow_api

pytestmark = pytest.mark.engine
STAGES = ("prompt", "retrieval", "queue", "prefill", "decode", "tool", "deliver")
MS = 1_000_000
SCRIPTED = 195 * MS
"""Tools and the Python retriever take 200 ms; their timers may be a little early."""
LONGEST = 5_000 * MS
TOOLS = {"python": "pause", "mcp-stdio": "rest", "mcp-http": "rest", "openapi": "nap"}


def config(mcp_url: str, api_url: str, document: Path) -> str:
    """One pipeline for each kind of tool, all with the store's documents."""
    tools = {
        "python": {"kind": "python", "name": "pause",
                   "function": "tests.support.pipeline_functions:pause"},
        "mcp-stdio": {"kind": "mcp", "command": COMMAND, "tools": ["rest"]},
        "mcp-http": {"kind": "mcp", "url": mcp_url, "tools": ["rest"]},
        "openapi": {"kind": "openapi", "document": str(document), "base_url": api_url,
                    "operations": ["nap"], "allow_hosts": ["127.0.0.1"],
                    "private_hosts": ["127.0.0.1"]},
    }  # fmt: skip
    retrievers = [
        {"kind": "documents", "name": "store", "collection": "tales", "top_k": 2},
        {"kind": "python", "name": "slow", "top_k": 1,
         "function": "tests.support.pipeline_functions:find_slowly"},
    ]  # fmt: skip
    pipelines = {
        name: {"model": MODEL, "system_prompt": "Help. {documents}", "retrievers": retrievers,
               "tools": [one]}
        for name, one in tools.items()
    }  # fmt: skip
    return json.dumps({"pipelines": pipelines})


@pytest.fixture(scope="module")
def served(tiny_model, tmp_path_factory) -> Iterator[tuple[Served, list[str]]]:
    """A server of its own (its tool parser changes what the shared one answers), with documents
    that the command put into its store; and the ``traceparent`` of each call of the HTTP tool.
    """
    folder = tmp_path_factory.mktemp("pipelines")
    with live_mcp() as mcp_url, slow_api(folder) as (api_url, document, parents):
        (folder / "config.yaml").write_text(config(mcp_url, api_url, document))
        one = start_server(
            folder, tiny_model, "--enable-auto-tool-choice", "--tool-call-parser", "xlam",
            config=folder / "config.yaml",
        )  # fmt: skip
        for name, text in (("cat", "The cat sleeps on the mat."), ("ship", "The ship sails.")):
            (folder / f"{name}.txt").write_text(text)
        added = documents(one, "add", str(folder / "cat.txt"), str(folder / "ship.txt"),
                          "--collection", "tales")  # fmt: skip
        assert [d["chunks"] for d in added["documents"]] == [1, 1]
        yield one, parents
        if one.process.poll() is None:  # the last test ends it: an engine takes long to start
            assert stop_server(one) == 0


def documents(served: Served, *arguments: str) -> dict[str, object]:
    """`stagelens documents …` as a user runs it."""
    done = subprocess.run(
        [sys.executable, "-m", "stagelens", "documents", *arguments, "--format", "json",
         "--data-dir", str(served.data_dir)],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def ask(served: Served, pipeline: str, run: str, **more: object) -> httpx.Response:
    body = {"model": pipeline, "messages": [{"role": "user", "content": "Who sleeps on the mat?"}],
            "max_tokens": 12, **more}  # fmt: skip
    headers = {"x-stagelens-tags": f"run={run}"}
    return httpx.post(f"{served.proxy}/v1/chat/completions", json=body, headers=headers, timeout=60)


def test_pipelines_are_listed_beside_the_engines_model(served):
    """All are models to a client."""
    listed = httpx.get(f"{served[0].proxy}/v1/models", timeout=10).json()["data"]
    assert {MODEL, *TOOLS} <= {one["id"] for one in listed}


@pytest.mark.parametrize("pipeline", TOOLS)
def test_a_forced_tool_runs_between_two_rounds_and_all_seven_stages_are_stored(served, pipeline):
    """Each kind of tool, after the store's documents: every stage has its time, retrieval and
    tool at least that of their scripts, and the stages add up to the nanosecond.
    """
    server, parents = served
    forced = {"type": "function", "function": {"name": TOOLS[pipeline]}}
    answer = ask(server, pipeline, pipeline, stream=True, tool_choice=forced)
    assert answer.status_code == 200
    lines = [line[6:] for line in answer.text.split("\n") if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    assert {json.loads(line)["model"] for line in lines[:-1]} == {pipeline}
    [stored] = server.stored(1, run=pipeline)
    trace = server.source.trace(stored.trace_id)
    [record] = trace.requests
    times = {s.stage: s.ns for s in record.stages if not s.part_of}
    assert sum(times.values()) == record.e2e_ns
    assert all(times[stage] > 0 for stage in STAGES), times
    assert SCRIPTED <= times["retrieval"] < LONGEST
    assert SCRIPTED <= times["tool"] < LONGEST
    check_order(trace, TOOLS[pipeline])
    if pipeline == "openapi":
        tool = next(s for s in trace.spans if s.name == "execute_tool nap")
        assert parents[-1] == f"00-{trace.trace_id}-{tool.span_id}-01"


def check_order(trace: Trace, tool: str) -> None:
    """Retrievals overlap and end before the model; the tool lies between the two rounds."""
    spans: dict[str, list[tuple[int, int]]] = {}
    for span in trace.spans:
        ends = span.start_unix_ns + span.duration_ns
        spans.setdefault(span.name, []).append((span.start_unix_ns, ends))
    [store], [slow] = spans["retrieval store"], spans["retrieval slow"]
    [ran] = spans[f"execute_tool {tool}"]
    first, second = sorted(spans[f"chat {MODEL}"])
    assert max(store[0], slow[0]) < min(store[1], slow[1])
    assert max(store[1], slow[1]) <= first[0]
    assert first[1] <= ran[0]
    assert ran[1] <= second[0]
    found = next(s for s in trace.spans if s.name == "retrieval store")
    assert found.attributes["stagelens.retrieval.documents"] == "2"
    parts = [int(found.attributes[f"stagelens.retrieval.{n}_ns"]) for n in ("embed", "search")]
    assert sum(parts) <= found.duration_ns


def test_a_whole_answer_of_a_pipeline_comes_from_the_engine(served):
    """Without a stream too, under the pipeline's name."""
    body = ask(served[0], "python", "whole", tool_choice="none").json()
    assert body["model"] == "python"
    assert body["usage"]["completion_tokens"] > 0


def test_documents_are_listed_and_removed_while_the_server_runs(served):
    """The command asks the collector that owns the store; the vectors are the local model's."""
    server, _ = served
    listed = documents(server, "list", "--collection", "tales")["documents"]
    assert [one["dimensions"] for one in listed] == [384, 384]
    (server.data_dir / "more.txt").write_text("More.")
    documents(server, "add", str(server.data_dir / "more.txt"), "--collection", "more",
              "--embedding", "none")  # fmt: skip
    assert documents(server, "remove", "--all", "--collection", "more") == {
        "documents": 1, "chunks": 1,
    }  # fmt: skip


def test_a_killed_engine_leaves_error_records_and_exit_code_1(served):
    """kill -9 of the engine core with requests in flight: one error record each, exit 1."""
    server, _ = served
    log = server.data_dir.parent / "serve.log"
    long = {"model": MODEL, "messages": [{"role": "user", "content": "x"}], "max_tokens": 900,
            "ignore_eos": True}  # fmt: skip

    async def load() -> list[raw_client.Seen]:
        asked = [raw_client.post(server.port, "/v1/chat/completions", {**long, "stream": streams})
                 for streams in (True, False)]  # fmt: skip
        tasks = [asyncio.create_task(one) for one in asked]
        await asyncio.sleep(1.0)
        os.kill(server.engine_core_pid(), signal.SIGKILL)
        return await asyncio.gather(*tasks)

    streamed, plain = asyncio.run(load())
    assert server.process.wait(60) == 1
    assert plain.status == 500
    assert b"EngineDeadError" in plain.body or b"EngineCore" in plain.body
    assert b"has no attribute" not in plain.body
    assert b'"error"' in streamed.body
    said = log.read_text()
    assert "the engine died" in said
    assert "Traceback" not in said
    ids = {streamed.trace_id, plain.trace_id}
    found = [r for r in stored_in(server) if r["trace_id"] in ids]
    assert len(ids) == 2
    assert [r["status"] for r in found] == ["error", "error"]
