"""What OpenTelemetry's standard variables say, where an argument was left out.

The traces' own variable (``OTEL_EXPORTER_OTLP_TRACES_…``) goes before the general one. A value
that cannot be meant is told in the log and left out, as the standard has it; an endpoint or a
certificate that cannot be used is an error, because nothing would arrive.
"""

from __future__ import annotations

import base64
import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit

from opentelemetry.util.re import parse_env_headers

from tracer.export_settings import ExportSettings

if TYPE_CHECKING:
    from ssl import SSLContext

log = logging.getLogger("stagelens.sdk")
Number = TypeVar("Number", int, float)
DEFAULT_ENDPOINT = "http://127.0.0.1:4318"
EXPORTERS = frozenset({"otlp", "console", "none"})
TRACES, METRICS = "/v1/traces", "/v1/metrics"
_OTLP = "OTEL_EXPORTER_OTLP_"


def is_disabled() -> bool:
    return _said("OTEL_SDK_DISABLED").lower() == "true"


def exporters() -> frozenset[str]:
    """``OTEL_TRACES_EXPORTER``: of ``otlp`` and ``console``; none of them where it says ``none``."""
    told = {name.strip() for name in _said("OTEL_TRACES_EXPORTER").split(",") if name.strip()}
    for name in told - EXPORTERS:
        log.warning("OTEL_TRACES_EXPORTER: %r is not known here: otlp, console and none are", name)
    known = told & EXPORTERS or {"otlp"}
    return frozenset(known - {"none"})


def export_settings(
    endpoint: str | None, headers: Mapping[str, str] | None, queue_items: int | None
) -> ExportSettings:
    """Where and how spans are sent.

    Raises:
        ValueError: an endpoint is no http(s) URL, a header cannot be sent, or a certificate
            cannot be read; the text names which, without its value where it may be a key.
    """
    protocol = _otlp("PROTOCOL")
    if protocol not in ("", "http/protobuf"):
        log.warning("%sPROTOCOL: %r is not spoken here; http/protobuf is used", _OTLP, protocol)
    base, urls, user = _where(endpoint)
    told = _headers(headers)
    if user and not any(name.lower() == "authorization" for name in told):
        told["authorization"] = user
    usual = ExportSettings(base)
    bsp = "OTEL_BSP_"
    return ExportSettings(
        base, urls=urls, headers=told,
        queue_items=queue_items or _number(bsp + "MAX_QUEUE_SIZE", usual.queue_items),
        batch_items=_number(bsp + "MAX_EXPORT_BATCH_SIZE", usual.batch_items),
        interval_s=_number(bsp + "SCHEDULE_DELAY", usual.interval_s * 1e3) / 1e3,
        give_up_s=_number(bsp + "EXPORT_TIMEOUT", usual.give_up_s * 1e3) / 1e3,
        post_timeout_s=_number(_first("TIMEOUT"), usual.post_timeout_s),
        compressed=_is_compressed(), tls=_tls(),
    )  # fmt: skip


def _where(endpoint: str | None) -> tuple[str, dict[str, str], str]:
    """The base URL, the URLs of paths that differ from it, and who asks, from the URL itself."""
    own, general = _said(_OTLP + "TRACES_ENDPOINT"), _said(_OTLP + "ENDPOINT")
    counts = _said(_OTLP + "METRICS_ENDPOINT")
    urls: dict[str, str] = {}
    if endpoint is not None or not own:
        base, user = _url(endpoint or general or DEFAULT_ENDPOINT)
        base = base.removesuffix(TRACES)
    else:
        urls[TRACES], user = _url(own)
        base = _url(general)[0] if general else urls[TRACES].removesuffix(TRACES)
        if not general and base == urls[TRACES]:  # nobody says where counts go
            urls[METRICS] = ""
    if endpoint is None and counts:
        urls[METRICS] = _url(counts)[0]
    if _said("OTEL_METRICS_EXPORTER").lower() == "none":
        urls[METRICS] = ""
    return base, urls, user


def _url(told: str) -> tuple[str, str]:
    """A URL without its user, query and last slash; and its user as a header's value."""
    told = told.strip()
    try:
        parts = urlsplit(told)
        known = parts.scheme in ("http", "https") and bool(parts.hostname)
        port = parts.port
    except ValueError:
        known = False
    if not known:
        shown = told.rpartition("@")[2].partition("?")[0]
        raise ValueError(f"endpoint {shown!r} is not a URL: give http://HOST:PORT or https://HOST:PORT")
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
    at = host if port is None else f"{host}:{port}"
    user = ""
    if parts.username:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        user = "Basic " + base64.b64encode(pair.encode()).decode()
    return urlunsplit((parts.scheme, at, parts.path.rstrip("/"), "", "")), user


def _headers(told: Mapping[str, str] | None) -> dict[str, str]:
    if told is None:
        return dict(parse_env_headers(_otlp("HEADERS"), liberal=True))
    for name, value in told.items():
        if not (isinstance(name, str) and isinstance(value, str) and _is_sendable(name + value)):
            raise ValueError(
                f"headers: the value of {name!r} cannot be sent: give Latin text of one line"
            )
    return dict(told)


def _is_sendable(text: str) -> bool:
    return all(" " <= one <= "ÿ" or one == "\t" for one in text)


def _is_compressed() -> bool:
    told = _otlp("COMPRESSION").lower()
    if told not in ("", "none", "gzip"):
        log.warning("%sCOMPRESSION: %r is not known here: gzip and none are", _OTLP, told)
    return told == "gzip"


def _tls() -> SSLContext | None:
    authority, own, key = _otlp("CERTIFICATE"), _otlp("CLIENT_CERTIFICATE"), _otlp("CLIENT_KEY")
    if not (authority or own):
        return None
    import ssl

    try:
        made = ssl.create_default_context(cafile=authority or None)
        if own:
            made.load_cert_chain(own, key or None)
    except OSError as problem:
        raise ValueError(
            f"{_OTLP}CERTIFICATE, CLIENT_CERTIFICATE or CLIENT_KEY cannot be read: "
            f"{problem.strerror or type(problem).__name__}"
        ) from None
    return made


def _number(name: str, usual: Number) -> Number:
    told = _said(name)
    try:
        found = type(usual)(told) if told else usual
    except ValueError:
        found = type(usual)(0)
    if 0 < found < float("inf"):
        return found
    log.warning("%s: %r is not a number above 0; %g is used", name, told, usual)
    return usual


def _first(name: str) -> str:
    """The traces' own variable where it is set, else the general one."""
    return _OTLP + (f"TRACES_{name}" if _said(f"{_OTLP}TRACES_{name}") else name)


def _otlp(name: str) -> str:
    return _said(_first(name))


def _said(name: str) -> str:
    return os.environ.get(name, "").strip()
