"""Whether an operation that is asked for exists at all."""

from __future__ import annotations

from typing import Final

from dashboards.errors import BadValueError
from dashboards.filters import ANY_OPERATION, WITH_MODEL_CALL, Filters
from dashboards.queries.base import QueryLimits, QueryStore, run

KNOWN_OPERATIONS: Final = ("chat", "text_completion", "embeddings")
"""Operations that Stagelens writes itself: asking for one before it was used is no mistake."""
_SHOWN: Final = 20
_SQL: Final = """\
SELECT DISTINCT Operation AS name FROM {database:Identifier}.requests
WHERE Operation != '' ORDER BY name LIMIT {most:UInt32}"""


def check_operation(store: QueryStore, filters: Filters, limits: QueryLimits) -> None:
    """Return when the operation of ``filters`` is a known one or some stored request has it.

    Raises:
        BadValueError: it is neither; the sentence lists those there are.
        UnavailableError: the store gave no answer.
    """
    asked = filters.operation
    if asked in {WITH_MODEL_CALL, ANY_OPERATION, *KNOWN_OPERATIONS}:
        return
    there = [row["name"] for row in run(store, _SQL, {"most": _SHOWN}, limits)]
    if asked not in there:
        names = sorted({*KNOWN_OPERATIONS, *there})
        raise BadValueError(
            f"operation {asked!r} is not known and no stored request has it: give "
            f"{WITH_MODEL_CALL}, {ANY_OPERATION}, or one of {', '.join(map(repr, names))}"
        )
