"""What the proxy can be told."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

UNTRACED_PATHS = (
    "/health", "/ping", "/metrics", "/version", "/load", "/docs", "/redoc", "/openapi.json",
    "/favicon.ico",
)  # fmt: skip
"""Probes and pages: polled by machines, they would drown the requests."""

TAG_NAME = r"[A-Za-z0-9_.\-]{1,64}"
TAG_TEXT = r"[^,\x00-\x1f]{0,128}"
TAG_LIMIT = 16
"""What a request's tags may be, wherever they come from."""
TagName = Annotated[str, Field(pattern=f"^{TAG_NAME}$")]
TagText = Annotated[str, Field(pattern=f"^{TAG_TEXT}$")]


class ProxySettings(BaseModel):
    """Frozen settings of one proxy process; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = "127.0.0.1"
    port: int = Field(default=8000, strict=True, ge=0, le=65535, description="0 takes any free port")
    service_name: str = Field(default="stagelens-proxy", min_length=1)
    request_timeout_s: float | None = Field(
        default=None, gt=0, description="longest a whole request may take; none by default"
    )
    shutdown_timeout_s: int = Field(
        default=15, ge=1, description="how long running requests may finish at shutdown"
    )
    flush_timeout_s: float = Field(default=5.0, gt=0)
    warm_after_s: float = Field(
        default=60.0, ge=0, description="requests sooner after start-up are marked cold"
    )
    access_log: bool = False
    trace_id_header: bool = Field(
        default=True, description="answer with x-stagelens-trace-id (not where an upstream answers)"
    )
    tags: dict[TagName, TagText] = Field(
        default_factory=dict, max_length=TAG_LIMIT, description="tags on every request"
    )
    untraced_paths: tuple[str, ...] = UNTRACED_PATHS


class UpstreamTarget(BaseModel):
    """One server to forward to.

    ``models`` maps the names clients use to the names this server knows; empty: it
    takes any model under its own name. The credential is read from the environment
    or a file at start-up; where it is set, the client's own one goes no further.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    url: str
    name: str = Field(default="", max_length=64, description="in spans; host:port by default")
    models: dict[str, str] = Field(default_factory=dict)
    provider: str = Field(default="openai", min_length=1, max_length=64)
    api_key_env: str | None = None
    api_key_file: Path | None = None
    api_key_header: Literal["authorization", "api-key", "x-api-key"] = "authorization"
    verify_tls: bool = True
    http2: bool = Field(
        default=False,
        description="speak HTTP/2: chosen by ALPN behind https, from the first byte behind http",
    )
    strip_baggage: bool = False

    @field_validator("url")
    @classmethod
    def _is_plain_url(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("an upstream is given as http://HOST[:PORT][/PATH] or https://…")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError(
                "an upstream's URL holds no credentials, query or fragment: "
                "give the key with api_key_env or api_key_file"
            )
        return url.rstrip("/")

    @model_validator(mode="after")
    def _one_key(self) -> UpstreamTarget:
        if self.api_key_env and self.api_key_file:
            raise ValueError("give api_key_env or api_key_file, not both")
        return self

    @property
    def label(self) -> str:
        return self.name or urlsplit(self.url).netloc


class UpstreamSettings(BaseModel):
    """Frozen settings of forwarding; times in seconds, None is no limit."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    targets: tuple[UpstreamTarget, ...] = Field(min_length=1)
    connect_timeout_s: float | None = Field(default=10.0, gt=0)
    first_token_timeout_s: float | None = Field(
        default=None, gt=0, description="from hand-over to the first token, or a whole answer's head"
    )
    idle_connection_s: float = Field(
        default=4.0, gt=0, description="below the 5 s after which uvicorn servers hang up"
    )
    ask_usage: bool = Field(
        default=False, description="ask for the usage chunk of streams and take it out again"
    )
    force_sample: bool = Field(default=False, description="tell upstreams that each trace is kept")
    max_attempts: int = Field(default=2, ge=1, le=10)
    retry_statuses: tuple[int, ...] = (502, 503, 504)
    replay_limit_bytes: int = Field(
        default=1024 * 1024, ge=0, description="largest request read whole before it is forwarded"
    )
    prefix_affinity_bytes: int = Field(
        default=0, ge=0, description="same first bytes of a prompt go to the same upstream; 0: off"
    )
    affinity_slack: int = Field(
        default=8, ge=0, description="how much busier than the least busy it may be for that"
    )
    eject_after_failures: int = Field(default=3, ge=1)
    eject_s: float = Field(default=1.0, gt=0, description="first rest of a failing one; doubles")
    eject_max_s: float = Field(default=30.0, gt=0)


class ClientKey(BaseModel):
    """A client's key: its name and the SHA-256 of the key in hex, never the key."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    name: str = Field(min_length=1, max_length=64)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    requests_per_minute: float | None = Field(default=None, gt=0, allow_inf_nan=False)

    @field_validator("sha256", mode="before")
    @classmethod
    def _in_small_letters(cls, digest: object) -> object:
        return digest.lower() if isinstance(digest, str) else digest


class AccessSettings(BaseModel):
    """Who may ask, how much and how often; without keys everybody may."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    keys: tuple[ClientKey, ...] = ()
    keys_file: Path | None = Field(default=None, description="lines NAME:SHA256[:PER_MINUTE]")
    requests_per_minute: float | None = Field(default=None, gt=0, description="for each key")
    max_request_bytes: int | None = Field(default=64 * 1024 * 1024, gt=0)
    max_in_flight: int | None = Field(default=None, gt=0)
    retry_after_s: float = Field(default=1.0, gt=0)
