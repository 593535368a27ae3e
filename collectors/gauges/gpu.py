"""NVIDIA GPUs of this host, by NVML: use, memory, power, clocks, and why they are held back."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from collectors.gauges.metrics import Point
from tracer import semconv

REASONS = {
    "sw_power_cap": "nvmlClocksEventReasonSwPowerCap",
    "hw_slowdown": "nvmlClocksThrottleReasonHwSlowdown",
    "hw_thermal": "nvmlClocksThrottleReasonHwThermalSlowdown",
    "hw_power_brake": "nvmlClocksThrottleReasonHwPowerBrakeSlowdown",
    "sw_thermal": "nvmlClocksEventReasonSwThermalSlowdown",
}
"""Our names for NVML's bits. An idle GPU's low clock is no throttling and is not told."""
CLOCKS = {"sm": "NVML_CLOCK_SM", "memory": "NVML_CLOCK_MEM"}


class NoGpu(Exception):
    """Why there are no GPU gauges here, in a few words."""


class Gpus:
    """The GPUs that NVML sees. Not for several threads at once."""

    def __init__(self, nvml: Any = None) -> None:  # noqa: ANN401
        """Raises: NoGpu: no package, no driver or no device."""
        self._nvml = nvml or _nvml()
        try:
            self._nvml.nvmlInit()
            count = self._nvml.nvmlDeviceGetCount()
            self._devices = [self._nvml.nvmlDeviceGetHandleByIndex(i) for i in range(count)]
        except self._nvml.NVMLError as problem:
            raise NoGpu(str(problem)) from None
        if not self._devices:
            raise NoGpu("the driver lists no device")
        self.resource = {semconv.SERVICE_NAME: "gpu", "host.name": socket.gethostname()}

    def read(self) -> list[Point]:
        """All that the devices tell now; what one cannot tell is left out."""
        return [
            point for i, device in enumerate(self._devices) for point in self._device(i, device)
        ]

    def _device(self, index: int, device: Any) -> Iterator[Point]:  # noqa: ANN401
        nvml = self._nvml
        labels = {
            "hw.id": _text(self._ask(lambda: nvml.nvmlDeviceGetUUID(device))),
            "hw.name": _text(self._ask(lambda: nvml.nvmlDeviceGetName(device))),
            "hw.type": "gpu", "gpu": str(index),
        }  # fmt: skip
        use = self._ask(lambda: nvml.nvmlDeviceGetUtilizationRates(device).gpu)
        memory = self._ask(lambda: nvml.nvmlDeviceGetMemoryInfo(device))
        power = self._ask(lambda: nvml.nvmlDeviceGetPowerUsage(device))
        heat = self._ask(lambda: nvml.nvmlDeviceGetTemperature(device, nvml.NVML_TEMPERATURE_GPU))
        for name, unit, value in (
            (semconv.METRIC_GPU_UTILIZATION, "1", None if use is None else use / 100),
            (semconv.METRIC_GPU_MEMORY_USAGE, "By", None if memory is None else memory.used),
            (semconv.METRIC_GPU_MEMORY_LIMIT, "By", None if memory is None else memory.total),
            (semconv.METRIC_GPU_POWER, "W", None if power is None else power / 1000),
            (semconv.METRIC_GPU_TEMPERATURE, "Cel", heat),
        ):
            if value is not None:
                yield Point(name, float(value), labels, unit=unit)
        for clock, constant in CLOCKS.items():
            which = getattr(nvml, constant)
            mhz = self._ask(partial(nvml.nvmlDeviceGetClockInfo, device, which))
            if mhz is not None:
                yield Point(semconv.METRIC_GPU_CLOCK, mhz * 1e6, {**labels, "clock": clock}, unit="Hz")
        bits = self._ask(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(device))
        if bits is not None:
            for reason, constant in REASONS.items():
                held = float(bool(bits & getattr(nvml, constant, 0)))
                yield Point(semconv.METRIC_GPU_THROTTLED, held, {**labels, "reason": reason}, unit="1")

    def _ask(self, question: Callable[[], Any]) -> Any:  # noqa: ANN401
        """None where this device or driver does not tell."""
        try:
            return question()
        except (self._nvml.NVMLError, AttributeError):
            return None


def _text(of: object) -> str:
    return of.decode("utf-8", "replace") if isinstance(of, bytes) else str(of or "")


def _nvml() -> Any:  # noqa: ANN401
    try:
        import pynvml
    except ImportError:
        raise NoGpu("the package nvidia-ml-py is not installed") from None
    return pynvml
