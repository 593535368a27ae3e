"""Documents of a running collector, asked over its API."""

from __future__ import annotations

import json
from http.client import HTTPException
from typing import Final, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import ProxyHandler, Request, build_opener

from pydantic import BaseModel, ValidationError

from collectors.documents.http import PATH
from collectors.documents.model import (
    Added,
    BadDocumentsValue,
    DocumentsError,
    DocumentsUnavailable,
    Found,
    Listing,
    NewDocument,
    NoSuchDocuments,
    OtherEmbedding,
    Removed,
    Search,
    Unauthorized,
)

M = TypeVar("M", bound=BaseModel)
KINDS: Final = {
    kind.kind: kind
    for kind in (
        BadDocumentsValue, NoSuchDocuments, OtherEmbedding, DocumentsUnavailable, Unauthorized,
    )
}


class DocumentsClient:
    """A :class:`collectors.documents.table.Documents` at the API's ``url`` (port 8090)."""

    def __init__(self, url: str, timeout_s: float = 120.0, token: str | None = None) -> None:
        """``token`` goes to that address alone, never along a redirect."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadDocumentsValue(f"collector {url!r} is not an address: write http://HOST:PORT")
        self._url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._token = token
        self._opener = build_opener(ProxyHandler({}))

    def add(self, document: NewDocument) -> Added:
        return self._ask("POST", "", Added, document)

    def listing(self, collection: str | None = None) -> Listing:
        return self._ask("GET", _query(collection=collection), Listing)

    def remove(self, collection: str, source: str | None = None) -> Removed:
        return self._ask("DELETE", _query(collection=collection, source=source), Removed)

    def search(self, asked: Search) -> Found:
        return self._ask("POST", "/search", Found, asked)

    def _ask(self, method: str, rest: str, model: type[M], body: BaseModel | None = None) -> M:
        data = None if body is None else body.model_dump_json().encode()
        request = Request(  # noqa: S310  the user's own address, checked above
            f"{self._url}{PATH}{rest}", data, {"Content-Type": "application/json"}, method=method
        )
        if self._token is not None:
            request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        try:
            with self._opener.open(request, timeout=self._timeout_s) as answer:
                return model.model_validate_json(answer.read())
        except HTTPError as error:
            with error:
                raise self._refusal(error.code, error.read(65_536)) from None
        except ValidationError:
            raise DocumentsUnavailable(self._stranger("another kind of answer")) from None
        except (OSError, HTTPException) as error:
            reason = error.reason if isinstance(error, URLError) else error
            raise DocumentsUnavailable(
                f"no collector answers at {self._url} ({reason}): start one with `stagelens "
                "collect` or `stagelens serve`, or give --store"
            ) from None

    def _refusal(self, code: int, body: bytes) -> DocumentsError:
        try:
            told = json.loads(body)
            return KINDS[told["error"]](str(told["detail"]))
        except (ValueError, KeyError, TypeError):
            return DocumentsUnavailable(self._stranger(f"HTTP {code}"))

    def _stranger(self, what: str) -> str:
        return (
            f"{self._url} is not the API of a Stagelens collector of this version ({what}): give "
            "the address of its API, by default port 8090"
        )


def _query(**given: str | None) -> str:
    pairs = {name: value for name, value in given.items() if value is not None}
    return f"?{urlencode(pairs)}" if pairs else ""
