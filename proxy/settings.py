"""What the proxy can be told."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

UNTRACED_PATHS = (
    "/health", "/ping", "/metrics", "/version", "/load", "/docs", "/redoc", "/openapi.json",
    "/favicon.ico",
)  # fmt: skip
"""Probes and pages: polled by machines, they would drown the requests."""


class ProxySettings(BaseModel):
    """Frozen settings of one proxy process; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535, description="0 takes any free port")
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
        default=True, description="answer with x-stagelens-trace-id (embedded engine only)"
    )
    tags: dict[str, str] = Field(default_factory=dict, description="tags on every request")
    untraced_paths: tuple[str, ...] = UNTRACED_PATHS
