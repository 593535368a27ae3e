"""What the API can be told."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from dashboards.errors import BadValueError

TOKEN_VARIABLE: Final = "STAGELENS_API_TOKEN"  # noqa: S105  the variable's name
LEAST_CHARS: Final = 16


class ApiSettings(BaseModel):
    """Frozen settings of the API and its page; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    token_file: Path | None = Field(
        default=None, description="the token that every question must bring, beside the variable"
    )
    most_read: int = Field(
        default=200_000,
        ge=1000,
        description="of more requests than this a question about distributions reads a part",
    )
    hosts: tuple[str, ...] = Field(
        default=(), description="names by which an API on loopback without a token may be asked"
    )


def read_token(settings: ApiSettings) -> str | None:
    """The API's token, out of ``STAGELENS_API_TOKEN`` or else the file; None: anybody may ask.

    Raises:
        BadValueError: it cannot be read, is short, or cannot stand in a header; never quoting it.
    """
    told, where = os.environ.get(TOKEN_VARIABLE, "").strip(), f"${TOKEN_VARIABLE}"
    if not told:
        if settings.token_file is None:
            return None
        where = f"api.token_file {settings.token_file}"
        try:
            told = settings.token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as problem:
            raise BadValueError(f"{where} cannot be read ({type(problem).__name__})") from None
    if len(told) < LEAST_CHARS or not told.isascii() or not told.isprintable() or " " in told:
        raise BadValueError(
            f"the token of {where} must be {LEAST_CHARS} or more ASCII characters without spaces: "
            "make one with `openssl rand -hex 32`"
        )
    return told
