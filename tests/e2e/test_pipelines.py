"""A pipeline around the real engine: all its stages in one stored record."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import httpx
import pytest

from tests.e2e.conftest import MODEL, Served, start_server, stop_server

pytestmark = pytest.mark.engine
PIPELINE = "bot"
CONFIG = f"""
pipelines:
  {PIPELINE}:
    model: {MODEL}
    system_prompt: "Help. {{documents}}"
    retrievers:
      - {{kind: python, name: docs, function: "tests.support.pipeline_functions:find_slowly"}}
    tools:
      - {{kind: python, name: pause, function: "tests.support.pipeline_functions:pause"}}
      - kind: mcp
        command: ["{sys.executable}", "-m", "tests.support.mcp_server"]
        tools: [echo]
"""


@pytest.fixture(scope="module")
def served(tiny_model, tmp_path_factory) -> Iterator[Served]:
    """A server of its own: its tool parser changes what the shared one answers."""
    folder = tmp_path_factory.mktemp("pipelines")
    (folder / "config.yaml").write_text(CONFIG)
    one = start_server(
        folder, tiny_model, "--enable-auto-tool-choice", "--tool-call-parser", "xlam",
        config=folder / "config.yaml",
    )  # fmt: skip
    yield one
    assert stop_server(one) == 0


def ask(served: Served, tag: str, **more: object) -> httpx.Response:
    body = {"model": PIPELINE, "messages": [{"role": "user", "content": "hello"}],
            "max_tokens": 12, **more}  # fmt: skip
    headers = {"x-stagelens-tags": f"run={tag}"}
    return httpx.post(f"{served.proxy}/v1/chat/completions", json=body, headers=headers, timeout=60)


def test_pipelines_are_listed_beside_the_engines_model(served: Served):
    """Both are models to a client."""
    listed = httpx.get(f"{served.proxy}/v1/models", timeout=10).json()["data"]
    assert {MODEL, PIPELINE} <= {one["id"] for one in listed}


def test_a_forced_tool_runs_between_two_rounds_and_all_seven_stages_are_stored(served: Served):
    """Retrieval and tool take the 200 ms of their scripts at least, and the stages add up."""
    forced = {"type": "function", "function": {"name": "pause"}}
    answer = ask(served, "pipe", stream=True, tool_choice=forced)
    assert answer.status_code == 200
    lines = [line[6:] for line in answer.text.split("\n") if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    assert {json.loads(line)["model"] for line in lines[:-1]} == {PIPELINE}
    [stored] = served.stored(1, run="pipe")
    [record] = served.source.trace(stored.trace_id).requests
    times = {s.stage: s.ns for s in record.stages if not s.part_of}
    assert sum(times.values()) == record.e2e_ns
    for stage in ("prompt", "retrieval", "queue", "prefill", "decode", "tool", "deliver"):
        assert times[stage] > 0, stage
    for stage in ("retrieval", "tool"):  # the loop's timers may be a millisecond early
        assert times[stage] >= 195_000_000, stage


def test_a_whole_answer_of_a_pipeline_comes_from_the_engine(served: Served):
    """Without a stream too, under the pipeline's name."""
    body = ask(served, "pipe-whole", tool_choice="none").json()
    assert body["model"] == PIPELINE
    assert body["usage"]["completion_tokens"] > 0
