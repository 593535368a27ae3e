"""Documents over HTTP, beside the read-only API and no part of it.

The process that owns the store serves both. An embedded store can be open in one process only,
so the proxy and the commands ask here, and ask alike where the store is a server. Bodies
are JSON and must say so: a browser sends no such request to another site without asking first,
and nothing here answers that question.
An error is ``{"error": KIND, "detail": SENTENCE}``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from fastapi import Depends, FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ValidationError

from collectors.documents.model import (
    BadDocumentsValue,
    DocumentsError,
    NewDocument,
    Search,
)
from collectors.documents.table import Documents

PATH: Final = "/documents/v1"
MOST_BYTES: Final = 256 << 20
M = TypeVar("M", bound=BaseModel)


def add_documents(app: FastAPI, documents: Documents) -> None:
    """Serve ``documents`` under ``/documents/v1``; the read-only API does not list them."""

    @app.exception_handler(DocumentsError)
    def told(_: Request, error: DocumentsError) -> JSONResponse:
        return JSONResponse({"error": error.kind, "detail": str(error)}, error.status)

    @app.post(PATH, include_in_schema=False)
    async def add(request: Request) -> Response:
        return await _answer(documents.add, await _body(request, NewDocument))

    @app.post(f"{PATH}/search", include_in_schema=False)
    async def search(request: Request) -> Response:
        return await _answer(documents.search, await _body(request, Search))

    @app.get(PATH, include_in_schema=False, dependencies=[Depends(_knows("collection"))])
    def listing(collection: str | None = None) -> Response:
        return _json(documents.listing(collection))

    @app.delete(PATH, include_in_schema=False, dependencies=[Depends(_knows("collection", "source"))])
    def remove(collection: str, source: str | None = None) -> Response:
        return _json(documents.remove(collection, source))


def _knows(*names: str) -> Callable[[Request], None]:
    """Refuses other parameters: with a misspelt ``source`` a whole collection would go."""

    def check(request: Request) -> None:
        for name in request.query_params:
            if name not in names:
                raise BadDocumentsValue(
                    f"parameter {name!r} is not known here: give {' and '.join(names)}"
                )

    return check


async def _answer(ask: Callable[[M], BaseModel], given: M) -> Response:
    return _json(await run_in_threadpool(ask, given))


def _json(answer: BaseModel) -> Response:
    return Response(answer.model_dump_json(), media_type="application/json")


async def _body(request: Request, model: type[M]) -> M:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise BadDocumentsValue("the body must be JSON, with content-type application/json")
    read = bytearray()
    async for part in request.stream():
        read += part
        if len(read) > MOST_BYTES:
            raise BadDocumentsValue(
                f"the body is larger than {MOST_BYTES >> 20} MiB: divide the document"
            )
    try:
        return await run_in_threadpool(model.model_validate_json, bytes(read))
    except ValidationError as problem:
        raise BadDocumentsValue(_sentence(problem)) from None


def _sentence(problem: ValidationError) -> str:
    first = problem.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "the body"
    return f"{where}: {first['msg'].removeprefix('Value error, ')}"
