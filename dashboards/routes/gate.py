"""What all routes share: a bound on how many are answered at once, and answers as JSON."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from fastapi import Depends, Request
from fastapi.responses import Response
from pydantic import BaseModel

from dashboards.errors import BadValueError, UnavailableError


class Gate:
    """Lets so many through at once; the others wait ``longest_s`` and are turned away."""

    def __init__(self, most: int, longest_s: float) -> None:
        self._places = threading.BoundedSemaphore(most)
        self._longest_s = longest_s

    @contextmanager
    def pass_through(self) -> Iterator[None]:
        if not self._places.acquire(timeout=self._longest_s):
            raise UnavailableError("too many questions are being answered: ask again in a while")
        try:
            yield
        finally:
            self._places.release()


def as_json(answer: BaseModel) -> Response:
    return Response(answer.model_dump_json(), media_type="application/json")


def unknown(name: str) -> str:
    """What is said of a parameter that a route does not take."""
    return f"parameter {name!r} is not known here: see /api/v1/openapi.json for those that are"


def _takes_no_parameters(request: Request) -> None:
    for name in request.query_params:
        raise BadValueError(unknown(name))


PLAIN = Depends(_takes_no_parameters)
"""For a route without query parameters: none is passed over."""
