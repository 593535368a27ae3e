"""What the store holds and what the collector has done."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from dashboards.models.report import SignalCounts


class Health(BaseModel):
    model_config = ConfigDict(frozen=True)

    status: str = Field(description="ok: the store answers")


class Status(BaseModel):
    """``collector`` counts across its restarts; the rest is what is stored now."""

    model_config = ConfigDict(frozen=True)

    version: int = 1
    made_at_unix_ns: int
    database: str
    requests: int
    spans: int
    engine_steps: int
    first_request_unix_ns: int | None
    last_request_unix_ns: int | None
    collector: dict[str, SignalCounts] | None
