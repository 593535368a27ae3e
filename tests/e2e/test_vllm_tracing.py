"""A real vLLM server that exports its own spans: joined behind the proxy, a request alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import openai
import pytest

from collectors.normalise import names
from dashboards.client import CollectorClient
from dashboards.models.trace import RequestRecord
from tests.support.programs import free_port

START_LIMIT_S = 300
MODEL = "tiny"
pytestmark = pytest.mark.engine


@dataclass
class Pair:
    """`stagelens serve --upstream` before `vllm serve --otlp-traces-endpoint`."""

    proxy: str
    vllm: str
    source: CollectorClient

    def record(self, trace_id: str, stage: str, within_s: float = 40) -> RequestRecord:
        """The trace's one record, once ``stage`` is in it."""
        ends = time.monotonic() + within_s
        while True:
            found = []
            try:
                found = list(self.source.trace(trace_id).requests)
            except Exception:  # noqa: BLE001  nothing stored yet
                assert time.monotonic() < ends
            if len(found) == 1 and any(one.stage == stage and one.count for one in found[0].stages):
                return found[0]
            assert time.monotonic() < ends, found
            time.sleep(0.2)


@pytest.fixture(scope="module")
def pair(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("pair")
    port, ready = free_port(), folder / "ready.json"
    config = folder / "config.yaml"
    config.write_text("collect: {normalise: {quiet_s: 1, interval_s: 0.5}}\n", encoding="utf-8")
    ours = subprocess.Popen(
        [sys.executable, "-m", "stagelens", "serve", "--upstream", f"http://127.0.0.1:{port}",
         "--port", "0", "--otlp-port", "0", "--api-port", "0", "--data-dir", str(folder / "data"),
         "--config", str(config), "--ready-file", str(ready)],
        stderr=(folder / "ours.log").open("wb"),
    )  # fmt: skip
    wait(ready.exists, ours, folder / "ours.log")
    collector = json.loads((folder / "data" / "collector.json").read_text())
    vllm = subprocess.Popen(
        # what `vllm serve` runs; the command looks for a package named vllm, which the CPU's is not
        [sys.executable, "-m", "vllm.entrypoints.launchers.api_server.entry", "--model",
         str(tiny_model), "--host", "127.0.0.1", "--port", str(port),
         "--otlp-traces-endpoint", f"http://{collector['grpc']}", "--max-model-len",
         "1024", "--enforce-eager", "--dtype", "float32", "--served-model-name", MODEL],
        env={**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1",
             "OTEL_BSP_SCHEDULE_DELAY": "200", "OTEL_SERVICE_NAME": "vllm"},
        stdout=(folder / "vllm.log").open("wb"), stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        wait(lambda: healthy(port), vllm, folder / "vllm.log")
        facts = json.loads(ready.read_text())
        yield Pair(facts["proxy"], f"http://127.0.0.1:{port}", CollectorClient(facts["api"]))
    finally:
        for process in (vllm, ours):
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def healthy(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health", timeout=2).status_code == 200
    except httpx.HTTPError:
        return False


def wait(true: object, process: subprocess.Popen[bytes], log: Path) -> None:
    ends = time.monotonic() + START_LIMIT_S
    while not true():  # type: ignore[operator]
        assert process.poll() is None, log.read_text(errors="replace")[-4000:]
        assert time.monotonic() < ends, log.read_text(errors="replace")[-4000:]
        time.sleep(0.2)


def asked(url: str, stream: bool, trace_id: str) -> None:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0) as client:
        answer = client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "hello there"}], max_tokens=16,
            stream=stream, extra_headers={"traceparent": f"00-{trace_id}-{7:016x}-01"},
            extra_body={"ignore_eos": True},
        )  # fmt: skip
        if stream:
            assert sum(1 for _ in answer) > 1


def ns(record: RequestRecord) -> dict[str, int]:
    return {one.stage: one.ns for one in record.stages if one.part_of is None}


def told_ns(pair: Pair, trace_id: str) -> dict[str, int]:
    """What the engine's own span says of its stages."""
    spans = pair.source.trace(trace_id).spans
    [engine] = [one for one in spans if names.LATENCY_QUEUE in one.attributes]
    keys = {"queue": names.LATENCY_QUEUE, "prefill": names.LATENCY_PREFILL,
            "decode": names.LATENCY_DECODE}  # fmt: skip
    return {stage: round(float(engine.attributes[key]) * 1e9) for stage, key in keys.items()}


@pytest.mark.parametrize("stream", [True, False])
def test_the_proxys_record_has_the_engines_queue_prefill_and_decode(pair, stream):
    """Joined by trace id; the stages still add up, and the wait is no longer one piece."""
    trace_id = f"{0xA1 + stream:032x}"
    asked(pair.proxy, stream, trace_id)
    record = pair.record(trace_id, "prefill")
    found = ns(record)
    assert sum(found.values()) == record.e2e_ns
    assert found["prefill"] > 0
    assert found["decode"] > 0
    assert found["unattributed"] <= record.e2e_ns - sum(told_ns(pair, trace_id).values())
    for stage, length in told_ns(pair, trace_id).items():
        assert abs(found[stage] - length) <= 1_000_000, (stage, record)
    assert record.source == "upstream"
    assert record.output_tokens == 16
    assert record.input_tokens
    if stream:
        assert record.ttft_ns is not None
        before = found["prompt"] + found["queue"] + found["prefill"]
        assert before <= record.ttft_ns + 5_000_000


def test_a_request_past_the_proxy_is_a_request_of_vllms_own(pair):
    """One llm_request span makes one row, divided by the engine."""
    trace_id = f"{0xB1:032x}"
    asked(pair.vllm, True, trace_id)
    record = pair.record(trace_id, "prefill")
    found = ns(record)
    assert sum(found.values()) == record.e2e_ns
    assert min(found["prefill"], found["decode"]) > 0
    assert (record.source, record.operation, record.output_tokens) == ("engine", "inference", 16)
    assert record.tpot_ns is not None
    assert record.ttft_ns is not None
