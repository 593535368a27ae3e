"""Embeddings by the embedded engine, recorded as what they are."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from proxy.pipelines.callables import Callables
from proxy.pipelines.retrieve.function import FunctionRetriever
from proxy.pipelines.retrieve.rerank import Reranked
from proxy.pipelines.runs import Trace
from proxy.pipelines.settings import PythonRetriever, Rerank
from proxy.pipelines.web import Web
from tests.e2e.conftest import MODEL, Served, start_server, stop_server, stored_in
from tests.support.processes import descendants
from tracer import semconv
from tracer.clock import SystemClock

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def served(tiny_model, tmp_path_factory) -> Iterator[Served]:
    """A server of its own: the engine runs the model as an embedding model."""
    one = start_server(
        tmp_path_factory.mktemp("embeddings"), tiny_model, "--runner", "pooling", "--convert", "embed"
    )
    yield one
    if one.process.returncode != -signal.SIGKILL:  # the last test kills it: an engine takes long to start
        assert stop_server(one) == 0


def post(served: Served, path: str, run: str, **body: object) -> httpx.Response:
    headers = {"x-stagelens-tags": f"run={run}"}
    return httpx.post(served.proxy + path, json={"model": MODEL, **body}, headers=headers, timeout=60)


def test_a_request_for_embeddings_is_a_record_with_stages_and_tokens(served: Served):
    """Prompt, queue, prefill and deliver; no decode, no output tokens; both texts' tokens."""
    answer = post(served, "/v1/embeddings", "embed", input=["one", "two!"])
    assert answer.status_code == 200, answer.text
    body = answer.json()
    vectors = [one["embedding"] for one in body["data"]]
    assert len(vectors) == 2
    assert all(math.isclose(math.hypot(*v), 1.0, rel_tol=1e-3) for v in vectors)
    [stored] = served.stored(1, run="embed", operation="embeddings")
    assert (stored.operation, stored.route, stored.model) == ("embeddings", "/v1/embeddings", MODEL)
    assert (stored.status, stored.input_tokens) == ("ok", body["usage"]["prompt_tokens"])
    assert stored.output_tokens is None
    trace = served.source.trace(stored.trace_id)
    [record] = trace.requests
    times = {s.stage: s.ns for s in record.stages if not s.part_of}
    assert sum(times.values()) == record.e2e_ns
    assert all(times[stage] > 0 for stage in ("prompt", "queue", "prefill", "deliver")), times
    assert times["decode"] == 0
    assert (record.ttft_ns, record.tpot_ns) == (None, None)
    calls = [s for s in trace.spans if s.name == f"embeddings {MODEL}"]
    assert len(calls) == 2
    assert {s.name for s in trace.spans if s.parent_span_id == calls[0].span_id} == {
        "queue", "prefill",
    }  # fmt: skip


def test_a_request_that_is_wrong_is_a_record_too(served: Served):
    """Chat is not what this model does; an input too long for it is refused."""
    assert post(served, "/v1/chat/completions", "chat", messages=[]).status_code in (400, 404)
    too_long = post(served, "/v1/embeddings", "long", input="x" * 5000)
    assert too_long.status_code == 400
    [stored] = served.stored(1, run="long", operation="any")
    assert stored.status == "error"


def test_documents_can_be_embedded_by_it(served: Served, tmp_path):
    """`stagelens documents add` with the engine's URL: its vectors and its name are stored."""
    (tmp_path / "a.txt").write_text("The cat sleeps on the mat.")
    done = subprocess.run(
        [sys.executable, "-m", "stagelens", "documents", "add", str(tmp_path / "a.txt"),
         "--embedding", f"{served.proxy}/v1", "--embedding-model", MODEL,
         "--data-dir", str(served.data_dir), "--format", "json"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert json.loads(done.stdout)["documents"][0]["chunks"] == 1
    listed = httpx.get(f"{served.api}/documents/v1", timeout=10).json()["documents"]
    assert [(one["model"], one["dimensions"]) for one in listed] == [(MODEL, 256)]


async def test_documents_are_reranked_by_it(served: Served):
    """The engine's own `/v1/rerank` is what a retriever's ``rerank`` asks: its scores decide."""
    texts = [f"which {number}" for number in range(5)]  # as the function gives them
    body = {"query": "which", "documents": texts}
    scored = post(served, "/v1/rerank", "rerank", **body).json()["results"]
    best = sorted(scored, key=lambda one: -one["relevance_score"])[:2]
    web = Web()
    await web.start()
    try:
        given = {"name": "docs", "top_k": 5, "function": "tests.support.pipeline_functions:find"}
        inner = FunctionRetriever(PythonRetriever.model_validate(given), Callables(), SystemClock())
        settings = Rerank(url=f"{served.proxy}/v1/rerank", model=MODEL, candidates=5)
        trace = Trace(1, 2, 1)
        found = await Reranked(inner, settings, 2, web, SystemClock()).find("which", trace)
    finally:
        await web.close()
    assert [one.text for one in found] == [texts[one["index"]] for one in best]
    assert trace.notes[semconv.RERANK_NS] > 0


def test_a_killed_proxy_leaves_no_process_behind_and_its_finished_records_are_stored(served: Served):
    """kill -9 of the proxy: the engine's processes and the collector end, the store is whole."""
    assert post(served, "/v1/embeddings", "last", input="one").status_code == 200
    [seen] = served.stored(1, run="last", operation="embeddings")
    below = descendants(served.process.pid)
    assert served.engine_core_pid() in below
    os.kill(served.process.pid, signal.SIGKILL)
    served.process.wait(10)
    give_up = time.monotonic() + 30
    while alive := {p for p in below if Path(f"/proc/{p}/exe").exists()}:
        names = {p: Path(f"/proc/{p}/cmdline").read_bytes()[:80] for p in alive}
        assert time.monotonic() < give_up, f"still there: {names}"
        time.sleep(0.1)
    assert [r["trace_id"] for r in stored_in(served)].count(seen.trace_id) == 1
