"""The config file: one frozen model of everything, checked before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from collectors.settings import CollectorSettings
from dashboards.prices import Prices
from dashboards.settings import ApiSettings
from proxy.pipelines.settings import PipelineSettings
from proxy.pipelines.settings_values import PipelineName
from proxy.pipelines.text import printable
from proxy.settings import AccessSettings, ProxySettings, UpstreamSettings
from stagelens.errors import UserError
from stagelens.settings_file import read_mapping


class TlsSettings(BaseModel):
    """uvicorn's own TLS settings for the reverse proxy; without a certificate it speaks HTTP."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    certfile: Path | None = None
    keyfile: Path | None = None
    ca_certs: Path | None = None

    def options(self) -> dict[str, str]:
        """uvicorn's ``ssl_*`` arguments."""
        return {f"ssl_{name}": str(value) for name, value in self if value is not None}


class Config(BaseModel):
    """A whole configuration; command-line options override the file's values."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str | None = None
    engine_flags: tuple[str, ...] = ()
    data_dir: Path | None = None
    store: str | None = None
    collector: str | None = Field(default=None, description="a collector that runs elsewhere")
    proxy: ProxySettings = ProxySettings()
    upstream: UpstreamSettings | None = None
    pipelines: dict[PipelineName, PipelineSettings] = Field(
        default_factory=dict, description="by the model name that clients ask for"
    )
    access: AccessSettings = AccessSettings()
    tls: TlsSettings = TlsSettings()
    collect: CollectorSettings = CollectorSettings()
    api: ApiSettings = ApiSettings()
    prices: Prices = Prices()

    @field_validator("pipelines")
    @classmethod
    def _plain_models(cls, given: dict[str, PipelineSettings]) -> dict[str, PipelineSettings]:
        """A pipeline asks the engine or the upstream, which know no pipelines. One that bears its
        model's own name stands before that model, and others may ask the model.
        """
        for name, one in given.items():
            if one.model != name and one.model in given and given[one.model].model != one.model:
                raise ValueError(
                    f"pipeline {name} has the pipeline {one.model} for its model: name a plain model, "
                    "pipelines do not ask each other"
                )
        return given


def load_config(path: Path | None, overrides: dict[str, Any]) -> Config:
    """The file's settings with ``overrides`` (nested, ``None`` left out) laid over them.

    Raises:
        UserError: exit code 2; the file cannot be read, is no YAML mapping, or holds
            a key or value that the settings do not know. The key is named.
    """
    data = {} if path is None else read_mapping(path, "config file") or {}
    try:
        return Config.model_validate(_lay_over(data, overrides))
    except ValidationError as problem:
        raise UserError(_first_problem(problem, path), 2) from None


def _lay_over(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        if isinstance(value, dict):
            inner = merged.get(key)
            merged[key] = _lay_over(inner if isinstance(inner, dict) else {}, value)
        elif value is not None:
            merged[key] = value
    return merged


def _named(place: tuple[int | str, ...]) -> str:
    """A setting's dotted name; a name that is itself wrong is quoted."""
    if place[-1:] == ("[key]",):
        return f'{_named(place[:-2])}, the name "{place[-2]}"'
    return ".".join(str(part) if part != "" else '""' for part in place)


def _first_problem(problem: ValidationError, path: Path | None) -> str:
    first = problem.errors(include_url=False)[0]
    key = printable(_named(first["loc"])) or "settings"
    source = f"config file {path}: " if path else ""
    if first["type"] == "extra_forbidden":
        return f"{source}unknown setting {key}: remove it or check its spelling (docs/serve.md)"
    given = "" if key.startswith(("upstream", "access", "pipelines")) else f" = {first['input']!r}"
    return f"{source}setting {key}{given}: {first['msg'].removeprefix('Value error, ')}"
