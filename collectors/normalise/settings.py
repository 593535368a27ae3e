"""What the normaliser can be told."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class NormaliseSettings(BaseModel):
    """When spans of other tools become requests; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: bool = Field(default=True, description="off: one collector of several does it")
    quiet_s: float = Field(default=5.0, ge=0, description="a trace without new spans for so long")
    longest_wait_s: float = Field(default=60.0, ge=0, description="one that never is quiet")
    interval_s: float = Field(default=2.0, gt=0, description="how often it is looked")
    duty: float = Field(
        default=0.25, gt=0, le=1, description="most of its time that it holds the interpreter"
    )
