"""What the collector can be told."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from collectors.normalise.settings import NormaliseSettings
from collectors.receive.tls import ReceiverTls
from collectors.store.settings import StoreSettings


class SpoolSettings(BaseModel):
    """Bodies on disk before they are acknowledged."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: Path | None = Field(default=None, description="beside the store unless told")
    max_bytes: int = Field(
        default=4 << 30, ge=1 << 20, description="bytes that may wait; then senders get 503"
    )
    fsync: Literal["always", "interval", "never"] = Field(
        default="interval",
        description="before each answer, once an interval, or when the system likes; "
        "a killed process loses nothing with any of them, a power cut the unsynced part",
    )


class ScrapeSettings(BaseModel):
    """One server whose metrics are read."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str = Field(pattern=r"^https?://[^\s/]+", description="its page, with /metrics")
    name: str | None = Field(default=None, description="service.name; host and port unless told")


class GaugeSettings(BaseModel):
    """What is measured beside the requests."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    interval_s: float = Field(default=10.0, ge=0.1)
    gpu: bool = Field(default=True, description="NVIDIA GPUs of the collector's host")
    scrape: tuple[ScrapeSettings, ...] = ()


class CollectorSettings(BaseModel):
    """Frozen settings of one collector process; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    store: StoreSettings = StoreSettings()
    spool: SpoolSettings = SpoolSettings()
    gauges: GaugeSettings = GaugeSettings()
    normalise: NormaliseSettings = NormaliseSettings()
    tls: ReceiverTls = ReceiverTls()
    tokens_file: Path | None = Field(
        default=None, description="lines NAME:SHA256 of the tokens that senders need"
    )
    max_body_bytes: int = Field(
        default=64 << 20, ge=1024, description="largest body, after decompression"
    )
    queue_bytes: int = Field(
        default=256 << 20, ge=1024, description="most bytes that may wait for the store"
    )
    batch_rows: int = Field(default=50_000, ge=1)
    plain_route: bool = Field(
        default=True, description="let the store's engine read spans that need no rule of ours"
    )
    batch_interval_s: float = Field(default=1.0, gt=0)
    rollup_check_s: float | None = Field(
        default=300.0, gt=0, description="how often the roll-ups are compared with the requests"
    )
    retry_deadline_s: float = Field(
        default=60.0, gt=0, description="how long one batch is tried before it is refused"
    )
    shutdown_timeout_s: float = Field(default=10.0, gt=0)
