"""What tokens and GPUs cost: a table by model, from the settings or a YAML file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dashboards.errors import BadValueError

OTHERS: Final = "*"
"""The name that prices every model which has no line of its own."""


class Price(BaseModel):
    """Prices of one model; ``None`` is not known. Cached input costs as input unless told."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input_per_million: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    cached_input_per_million: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    output_per_million: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    gpu_per_hour: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    gpus: int = Field(default=1, ge=1, description="that serve this model")


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


def read_prices(path: Path) -> Prices:
    """The table in a YAML file.

    Raises:
        BadValueError: it cannot be read, or is no such table.
    """
    try:
        data: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadValueError(f"price file {path} cannot be read ({error.strerror})") from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise BadValueError(f"price file {path} is not valid YAML: mend it") from None
    try:
        return Prices.model_validate(data or {})
    except ValidationError as error:
        raise BadValueError(_problem(f"price file {path}", error)) from None


def _problem(source: str, error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in first["loc"]) or "the table"
    return f"{source}: {key} cannot be used ({first['msg']}): see docs/analyses.md for the table"
