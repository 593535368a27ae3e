"""What the chosen requests can be told apart by."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Facets(BaseModel):
    """The values there are, sorted; of each at most a limit, of the latest requests."""

    model_config = ConfigDict(frozen=True)

    version: int = 1
    requests: int = Field(description="the latest requests that were looked at")
    models: tuple[str, ...]
    routes: tuple[str, ...]
    operations: tuple[str, ...]
    runs: tuple[str, ...]
    tags: dict[str, tuple[str, ...]]
