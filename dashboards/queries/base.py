"""How a query reaches the store: bound parameters, limits, and errors a user can act on."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from collectors.store.errors import StoreError, StoreGone
from dashboards.errors import UnavailableError
from dashboards.filters import Where

Row = dict[str, Any]
_log = logging.getLogger(__name__)


class QueryStore(Protocol):
    """What the questions need of a store; safe to use from several threads."""

    @property
    def database(self) -> str: ...

    def query(self, sql: str, params: Mapping[str, object]) -> list[dict[str, object]]:
        """Rows by column name; ``params`` fill the ``{name:Type}`` places of ``sql``."""
        ...


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """How much one query may take; past them it fails with a clear error, never in part.

    Of more than ``most_read`` requests a question about distributions reads a part, and says so.
    """

    max_execution_s: int = 30
    max_result_rows: int = 100_000
    most_read: int = 200_000


def run(
    store: QueryStore,
    sql: str,
    params: Mapping[str, object],
    limits: QueryLimits,
) -> list[Row]:
    """The rows of one SELECT. ``{database:Identifier}`` in ``sql`` is the store's database.

    Raises:
        UnavailableError: the store is away, holds no tables, or a limit was passed.
    """
    settings = (
        f"SETTINGS max_execution_time = {limits.max_execution_s}, "
        f"max_result_rows = {limits.max_result_rows}, result_overflow_mode = 'throw'"
    )
    try:
        return store.query(f"{sql}\n{settings}", {**params, "database": store.database})
    except StoreGone as error:  # it says itself what helps
        raise UnavailableError(str(error)) from error
    except StoreError as error:
        raise UnavailableError(_explain(str(error), store.database, limits)) from error


def _explain(text: str, database: str, limits: QueryLimits) -> str:
    """One sentence for the store's error ``text``, which holds ClickHouse's code."""
    match = re.search(r"Code: (\d+)", text)
    code = int(match[1]) if match else 0
    if code in {159, 160}:
        return (
            f"the store did not answer within {limits.max_execution_s} s: choose fewer requests "
            "(a later since, a model, a run)"
        )
    if code == 241:
        return (
            "the store ran out of memory for exact percentiles: choose fewer requests "
            "(a later since, a model, a run)"
        )
    if code == 396:
        return f"the answer has more than {limits.max_result_rows} rows: choose fewer requests"
    if code in {60, 81}:
        return (
            f"database {database!r} does not hold the tables of Stagelens: "
            "start a collector on this store once, it creates them"
        )
    _log.warning("a question failed: %s", text)
    if code in {202, 203, 209, 210} or not code:
        return (
            "the store gave no answer (the log of the process that asked it says why): see "
            "whether it runs, then ask again"
        )
    return (
        f"the store refused the question with ClickHouse code {code} (the log of the process "
        "that asked it has its words): please report this question as a fault"
    )


def count_of(store: QueryStore, picked: Where, limits: QueryLimits) -> int:
    """How many requests ``picked`` chooses.

    Raises:
        UnavailableError: as ``run``.
    """
    sql = f"SELECT count() AS n FROM {{database:Identifier}}.requests WHERE {picked.sql}"  # noqa: S608  values are bound
    return int(run(store, sql, picked.params, limits)[0]["n"])
