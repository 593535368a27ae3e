"""The page's files under ``/``, with a policy under which nothing else can run.

No build step and nothing from the network: the page is plain modules, the charts are
plotly's bundle out of its Python package.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Final

from fastapi import FastAPI, Request
from fastapi.responses import Response

PLOTLYS_STYLES: Final = (
    "'sha256-V2sIX92Uh6ZaGSFTKMHghsB85b9toJtmazgG09AI2uk=' "
    "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"
)
"""The inline styles that plotly sets: what hides the element it measures texts with, and none."""
POLICY: Final = (
    "default-src 'none'; script-src 'self'; "
    f"style-src 'self' 'unsafe-hashes' {PLOTLYS_STYLES}; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
KINDS: Final[Mapping[str, str]] = MappingProxyType({
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
})  # fmt: skip
SECURITY: Final[Mapping[str, str]] = MappingProxyType({
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
})  # fmt: skip
PLOTLY: Final = "plotly.min.js"


@dataclass(frozen=True, slots=True)
class _File:
    body: bytes
    packed: bytes
    kind: str


@cache
def _file(name: str) -> _File | None:
    """A file of the page; None where there is none. ``name`` is never a path."""
    ending = name.rpartition(".")[2]
    if "/" in name or "\\" in name or ending not in KINDS:
        return None
    folder = files("plotly") / "package_data" if name == PLOTLY else files(__package__) / "static"
    found = folder / name
    if not found.is_file():
        return None
    body = found.read_bytes()
    return _File(body, gzip.compress(body, 6), KINDS[ending])


def add_page(app: FastAPI) -> None:
    """Serve the page at ``/`` and its files under ``/web/``."""

    @app.get("/", include_in_schema=False)
    def page(request: Request) -> Response:
        return _answer("index.html", request)

    @app.get("/web/{name}", include_in_schema=False)
    def part(name: str, request: Request) -> Response:
        return _answer(name, request)


def _answer(name: str, request: Request) -> Response:
    found = _file(name)
    if found is None:
        return Response("not found", 404, dict(SECURITY), media_type="text/plain")
    headers = {**SECURITY, "cache-control": "no-cache", "vary": "accept-encoding"}
    if name == PLOTLY:
        headers["cache-control"] = "max-age=86400"
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["content-encoding"] = "gzip"
        return Response(found.packed, headers=headers, media_type=found.kind)
    return Response(found.body, headers=headers, media_type=found.kind)
