"""One thing that was looked at."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

State = Literal["ok", "warning", "failed"]


class Finding(BaseModel):
    """``told`` names the thing and, where it is not ok, the way out."""

    model_config = ConfigDict(frozen=True)

    area: str
    state: State
    told: str


def ok(area: str, told: str) -> Finding:
    return Finding(area=area, state="ok", told=told)


def warning(area: str, told: str) -> Finding:
    return Finding(area=area, state="warning", told=told)


def failed(area: str, told: str) -> Finding:
    return Finding(area=area, state="failed", told=told)
