"""What tokens and GPUs cost: a table by model, from the settings or a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dashboards.errors import BadValueError

MOST_PRICE: Final = 1e12
MOST_GPUS: Final = 1_000_000
"""So that no sum of costs leaves what a float can hold, which JSON would tell as no data."""
OTHERS: Final = "*"
"""The name that prices every model which has no line of its own."""


class Price(BaseModel):
    """Prices of one model; ``None`` is not known. Cached input costs as input unless told."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input_per_million: float | None = Field(default=None, ge=0, le=MOST_PRICE, allow_inf_nan=False)
    cached_input_per_million: float | None = Field(default=None, ge=0, le=MOST_PRICE, allow_inf_nan=False)
    output_per_million: float | None = Field(default=None, ge=0, le=MOST_PRICE, allow_inf_nan=False)
    gpu_per_hour: float | None = Field(default=None, ge=0, le=MOST_PRICE, allow_inf_nan=False)
    gpus: int = Field(default=1, ge=1, le=MOST_GPUS, description="that serve this model")


class Prices(BaseModel):
    """The table: a line a model name, ``*`` for the others."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    currency: str = "USD"
    models: dict[str, Price] = Field(default_factory=dict)

    def of(self, model: str) -> Price | None:
        return self.models.get(model, self.models.get(OTHERS))


def parse_prices(text: str) -> Prices:
    """The table in a JSON text.

    Raises:
        BadValueError: it is none; the sentence names the first wrong key.
    """
    try:
        return Prices.model_validate_json(text)
    except ValidationError as error:
        raise BadValueError(_problem("prices", error)) from None


def make_prices(data: Mapping[str, Any], source: str) -> Prices:
    """The table of what was read from ``source``, which names it in a mistake.

    Raises:
        BadValueError: it is no such table; the sentence names the first wrong key.
    """
    try:
        return Prices.model_validate(data)
    except ValidationError as error:
        raise BadValueError(_problem(source, error)) from None


def _problem(source: str, error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in first["loc"]) or "the table"
    return f"{source}: {key} cannot be used ({first['msg']}): see docs/analyses.md for the table"
