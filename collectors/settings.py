"""What the collector can be told."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from collectors.store.client import StoreSettings


class CollectorSettings(BaseModel):
    """Frozen settings of one collector process; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    store: StoreSettings = StoreSettings()
    max_body_bytes: int = Field(
        default=64 << 20, ge=1024, description="largest body, after decompression"
    )
    queue_bytes: int = Field(
        default=256 << 20, ge=1024, description="most bytes that may wait for the store"
    )
    batch_rows: int = Field(default=50_000, ge=1)
    batch_interval_s: float = Field(default=1.0, gt=0)
    retry_deadline_s: float = Field(
        default=60.0, gt=0, description="how long one batch is tried before it is refused"
    )
    shutdown_timeout_s: float = Field(default=10.0, gt=0)
