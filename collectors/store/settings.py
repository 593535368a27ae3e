"""How the store is kept."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, model_validator

NAME = r"^[A-Za-z_][A-Za-z0-9_-]{0,63}$"
"""Names that are put into statements."""
MOST_DAYS = 20_000
"""ClickHouse adds days to a time in 32 bits, which begin anew in February 2106: with more days than
are left until then new rows would be born expired. This bound holds until 2051."""


class StoreSettings(BaseModel):
    """How the store is kept; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ttl_days: int = Field(
        default=30, ge=1, le=MOST_DAYS, description="age at which rows are dropped"
    )
    rollup_ttl_days: int = Field(
        default=365, ge=1, le=MOST_DAYS, description="the same for the roll-ups"
    )
    query_timeout_s: int = Field(default=30, ge=1)
    cluster: str | None = Field(
        default=None, pattern=NAME, description="replicated and distributed tables on this cluster"
    )
    storage_policy: str | None = Field(default=None, pattern=NAME)
    move_after_days: int | None = Field(
        default=None, ge=1, le=MOST_DAYS,
        description="age at which rows move to another volume of the policy",
    )
    move_to_volume: str | None = Field(default=None, pattern=NAME)

    @model_validator(mode="after")
    def _tiers_are_whole(self) -> StoreSettings:
        if (self.move_after_days is None) != (self.move_to_volume is None):
            raise ValueError("move_after_days and move_to_volume need each other: give both")
        if self.move_after_days is not None and self.move_after_days >= self.ttl_days:
            raise ValueError("move_after_days must be less than ttl_days: nothing would be moved")
        return self
