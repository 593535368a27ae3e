"""Gauges: pages of metrics and GPUs as OTLP metrics in the store."""

from __future__ import annotations

import http.server
import logging
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.gauges.gpu import Gpus, NoGpu
from collectors.gauges.loop import Gauges, build_gauges
from collectors.gauges.metrics import Buckets, Point, request_of
from collectors.gauges.prometheus import PrometheusPage, readings
from collectors.receive.metric_rows import METRIC_COLUMNS, metric_batch
from collectors.receive.rows import TimeWindow
from collectors.settings import GaugeSettings, ScrapeSettings
from tests.support.clock import FakeClock

PAGE = b"""# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0"} 1200.0
vllm:prompt_tokens_created{engine="0"} 1.7e9
# TYPE sglang:cache_hit_rate gauge
sglang:cache_hit_rate NaN
# TYPE vllm:ttft histogram
vllm:ttft_bucket{le="0.1",engine="0"} 2
vllm:ttft_bucket{le="1.0",engine="0"} 5
vllm:ttft_bucket{le="+Inf",engine="0"} 6
vllm:ttft_sum{engine="0"} 4.5
vllm:ttft_count{engine="0"} 6
"""


class Kept:
    """Takes every batch."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, tuple[object, ...]]] = []

    def offer(self, batch, size, origin=None) -> bool:
        self.rows += [(table, row) for table, rows in batch.rows.items() for row in rows]
        return True

    def named(self) -> list[dict[str, object]]:
        return [dict(zip(METRIC_COLUMNS[table], row, strict=True)) for table, row in self.rows]

    def values(self) -> dict[str, object]:
        return {str(row["MetricName"]): row.get("Value") for row in self.named()}


@contextmanager
def served(pages: list[bytes | None]) -> Iterator[str]:
    """A server that answers with one page after the other; None is a 500."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = pages.pop(0) if len(pages) > 1 else pages[0]
            self.send_response(500 if page is None else 200)
            self.end_headers()
            self.wfile.write(page or b"")

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/metrics"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_page_becomes_gauges_sums_and_histograms():
    """Counters are sums, buckets count between bounds, what is no number is left out."""
    found = list(readings(PAGE.decode()))
    points = {one.name: one for one in found if isinstance(one, Point)}
    assert points["vllm:num_requests_running"].value == 3
    assert points["vllm:num_requests_running"].attributes == {"engine": "0", "model_name": "m"}
    assert points["vllm:prompt_tokens_total"].kind == "sum"
    assert set(points) == {"vllm:num_requests_running", "vllm:prompt_tokens_total"}
    (bucket,) = [one for one in found if isinstance(one, Buckets)]
    assert (bucket.bounds, bucket.counts, bucket.total) == ((0.1, 1.0), (2, 3, 1), 4.5)
    request = request_of({"service.name": "x"}, 7, found)
    kinds = {m.name: m.WhichOneof("data") for m in request.resource_metrics[0].scope_metrics[0].metrics}
    assert kinds["vllm:ttft"] == "histogram"
    assert kinds["vllm:prompt_tokens_total"] == "sum"


@given(st.text(max_size=300))
def test_any_page_is_readings_or_one_error(page):
    """No other exception, whatever a server answers, and no value that is not finite."""
    try:
        found = list(readings(page))
    except ValueError:
        return
    assert all(math.isfinite(one.value) for one in found if isinstance(one, Point))


def test_a_server_is_read_over_http_and_its_silence_is_a_value(caplog):
    """Up is 1, then 0 with one warning however long, then 1 again with a second one."""
    with served([PAGE, None, None, PAGE]) as url:
        kept = Kept()
        gauges = Gauges({}, 1, kept, FakeClock())
        page = PrometheusPage(url, "engine-a")
        ups = []
        with caplog.at_level(logging.WARNING):
            for _ in range(4):
                kept.rows.clear()
                gauges.take(url, page)
                ups.append(kept.values()["stagelens.scrape.up"])
    assert ups == [1, 0, 0, 1]
    assert len(caplog.records) == 2
    assert kept.values()["vllm:num_requests_running"] == 3
    assert {row["ServiceName"] for row in kept.named()} == {"engine-a"}
    assert {row["TimeUnix"] for row in kept.named()} == {FakeClock().unix_ns()}
    (histogram,) = [row for row in kept.named() if "BucketCounts" in row]
    assert (histogram["Count"], histogram["BucketCounts"]) == (6, [2, 3, 1])


def nvml(**broken: object) -> SimpleNamespace:
    """NVML's functions as its binding has them, over one card."""

    class NVMLError(Exception):
        pass

    def fails(*_: object) -> object:
        raise NVMLError("Not Supported")

    told = {
        "NVMLError": NVMLError, "nvmlInit": lambda: None, "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": lambda i: i, "nvmlDeviceGetUUID": lambda _: "GPU-1",
        "nvmlDeviceGetName": lambda _: b"H200", "NVML_TEMPERATURE_GPU": 0,
        "NVML_CLOCK_SM": 1, "NVML_CLOCK_MEM": 2,
        "nvmlDeviceGetUtilizationRates": lambda _: SimpleNamespace(gpu=40),
        "nvmlDeviceGetMemoryInfo": lambda _: SimpleNamespace(used=10, total=100),
        "nvmlDeviceGetPowerUsage": lambda _: 250_000, "nvmlDeviceGetTemperature": lambda *_: 61,
        "nvmlDeviceGetClockInfo": lambda *_: 1980, "nvmlClocksEventReasonSwPowerCap": 4,
        "nvmlClocksThrottleReasonHwSlowdown": 8, "nvmlDeviceGetCurrentClocksThrottleReasons": lambda _: 5,
    }  # fmt: skip
    return SimpleNamespace(**{**told, **dict.fromkeys(broken, fails)})


def test_a_card_tells_its_use_memory_power_heat_clocks_and_what_holds_it_back():
    """In units of OpenTelemetry; idle is no reason."""
    found = Gpus(nvml()).read()
    values = {
        (one.name, one.attributes.get("reason") or one.attributes.get("clock")): one.value for one in found
    }
    assert values["hw.gpu.utilization", None] == 0.4
    assert (values["hw.gpu.memory.usage", None], values["hw.gpu.memory.limit", None]) == (10, 100)
    assert (values["hw.power", None], values["hw.temperature", None]) == (250, 61)
    assert values["stagelens.gpu.clock", "sm"] == 1.98e9
    assert values["stagelens.gpu.throttled", "sw_power_cap"] == 1
    assert values["stagelens.gpu.throttled", "hw_slowdown"] == 0
    assert found[0].attributes["hw.name"] == "H200"


def test_what_a_card_cannot_tell_is_left_out():
    """No power and no memory are not 0."""
    silent = nvml(nvmlDeviceGetPowerUsage=1, nvmlDeviceGetMemoryInfo=1)
    names = {one.name for one in Gpus(silent).read()}
    assert "hw.gpu.utilization" in names
    assert not names & {"hw.power", "hw.gpu.memory.usage", "hw.gpu.memory.limit"}


def test_no_gpu_is_said_once_and_stops_nothing(caplog, monkeypatch):
    """Without a driver: one line, and the other sources go on."""
    with pytest.raises(NoGpu):
        Gpus(nvml(nvmlInit=1))
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    settings = GaugeSettings(scrape=(ScrapeSettings(url="http://127.0.0.1:1/metrics"),))
    with caplog.at_level(logging.INFO, "stagelens.collector"):
        gauges = build_gauges(settings, Kept(), FakeClock())
    said = [r.getMessage() for r in caplog.records]
    assert said == ["no GPU gauges: the package nvidia-ml-py is not installed"]
    assert list(gauges._sources) == ["http://127.0.0.1:1/metrics"]


def test_what_is_read_can_be_stored():
    """Every reading is a row of the collector's, at the time of the reading."""
    points = [Point("a", 1.5), Point("b", 2, {"x": "y"}, "sum")]
    batch = metric_batch(request_of({"service.name": "s"}, 99, points), TimeWindow(1, 100))
    assert {table: len(rows) for table, rows in batch.rows.items()} == {
        "otel_metrics_gauge": 1, "otel_metrics_sum": 1,
    }  # fmt: skip
    assert not batch.refused
