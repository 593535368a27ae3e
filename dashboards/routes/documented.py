"""The OpenAPI document: what each route really answers, and the token it may ask for."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from fastapi import FastAPI
from pydantic import BaseModel, Field

from dashboards.access import OPEN

MEANINGS: Final[Mapping[int | str, str]] = MappingProxyType({
    400: "A value cannot be used: `detail` names it, the rule and the way out.",
    401: "The token is missing or is another.",
    404: "What was asked for is not stored.",
    409: "The beginning of an id is that of several.",
    503: "The store gave no answer in time, or too many questions are being answered.",
    "default": "Any other error, in the same form.",
})  # fmt: skip
SCHEME: Final = "token"


class Problem(BaseModel):
    """What every error is."""

    error: str = Field(description="its kind", examples=["bad_value"])
    detail: str = Field(description="one sentence for a user")


def errors(*codes: int | str) -> dict[int | str, dict[str, Any]]:
    """``responses`` of routes that may answer ``codes``."""
    return {code: {"model": Problem, "description": MEANINGS[code]} for code in codes}


class DescribedApi(FastAPI):
    """An app that describes itself as it is; ``asks_token``: whether one has to be brought.

    Its own 422 is told nowhere, because ``default`` is: a value that cannot be used is a 400.
    """

    def __init__(self, *, asks_token: bool, **settings: Any) -> None:  # noqa: ANN401  FastAPI's own
        codes = (400, *((401,) if asks_token else ()), 503, "default")
        super().__init__(responses=errors(*codes), **settings)
        self._asks_token = asks_token

    def openapi(self) -> dict[str, Any]:
        """The document; made once."""
        if self.openapi_schema is not None:
            return self.openapi_schema
        found = super().openapi()  # which keeps it
        found["components"]["securitySchemes"] = {SCHEME: {"type": "http", "scheme": "bearer"}}
        needed: list[dict[str, list[str]]] = [{SCHEME: []}]
        found["security"] = needed if self._asks_token else [{}, *needed]
        for path in OPEN & found["paths"].keys():
            for operation in found["paths"][path].values():
                operation["security"] = []
                operation["responses"].pop("401", None)
        return found
