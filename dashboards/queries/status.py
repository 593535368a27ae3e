"""What the store holds now, and whether it answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dashboards.models.status import Status
from dashboards.queries.base import QueryLimits, QueryStore, run
from dashboards.queries.losses import read_counts

_SQL: Final = """\
SELECT
  (SELECT count() FROM {database:Identifier}.otel_traces) AS spans,
  (SELECT count() FROM {database:Identifier}.engine_steps) AS steps,
  count() AS requests,
  toUnixTimestamp64Nano(min(Timestamp)) AS first,
  toUnixTimestamp64Nano(max(Timestamp)) AS last
FROM {database:Identifier}.requests"""


def status(
    store: QueryStore,
    *,
    now_unix_ns: int,
    counts: Mapping[str, object] | None = None,
    limits: QueryLimits | None = None,
) -> Status:
    """How much is stored, beside the collector's own ``counts``.

    Raises:
        UnavailableError: the store gave no answer.
    """
    row = run(store, _SQL, {}, limits or QueryLimits())[0]
    some = int(row["requests"]) > 0
    return Status(
        made_at_unix_ns=now_unix_ns,
        database=store.database,
        requests=int(row["requests"]),
        spans=int(row["spans"]),
        engine_steps=int(row["steps"]),
        first_request_unix_ns=row["first"] if some else None,
        last_request_unix_ns=row["last"] if some else None,
        collector=None if counts is None else read_counts(counts),
    )


def check_store(store: QueryStore) -> None:
    """Return when the store answers.

    Raises:
        UnavailableError: it does not.
    """
    run(store, "SELECT 1 AS one", {}, QueryLimits(max_execution_s=5))
