"""The records of a run, however many, for the requests that a client sent."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sized
from typing import Protocol

from dashboards.filters import ANY_OPERATION, Filters
from dashboards.models.records import Record
from dashboards.queries.records import MOST_RECORDS
from dashboards.source import Source

PATIENCE_S = 15.0
POLL_S = 0.5


class Ids(Container[str], Sized, Protocol):
    """The trace ids that are asked for."""


def wait_for(
    asked: Ids, run: str, source: Source, sleep: Callable[[float], None], patience_s: float,
) -> tuple[list[Record], int]:  # fmt: skip
    """The records that were asked for, one a trace, and how many the run holds in all.

    Waits until all are there, at most ``PATIENCE_S``; ``patience_s`` for the first one. They
    are read again only when so many have come that the missing ones may be among them.

    Raises:
        DashboardError: the source does not answer.
    """
    filters = Filters(run=run, operation=ANY_OPERATION)
    found: list[Record] = []
    waited, read = 0.0, 0
    while True:
        total = source.records(filters, limit=1).total
        last = waited >= (PATIENCE_S if found else patience_s)
        if total != read and (last or not found or total - read >= len(asked) - len(found)):
            found, read = chosen(asked, filters, source), total
            last = waited >= (PATIENCE_S if found else patience_s)
        if last or len(found) >= len(asked):
            return found, total
        sleep(POLL_S)
        waited += POLL_S


def chosen(asked: Ids, filters: Filters, source: Source) -> list[Record]:
    """Of each asked trace its earliest request: another proxy behind the first has one too."""
    found: dict[str, Record] = {}
    for one in all_records(filters, source):
        if one.trace_id in asked:
            found.setdefault(one.trace_id, one)
    return list(found.values())


def all_records(filters: Filters, source: Source, part: int = MOST_RECORDS) -> Iterator[Record]:
    """Every record by its start, ``part`` at a time; those of one nanosecond may come twice.

    More than ``part`` of one nanosecond are cut: no clock gives them.
    """
    while True:
        told = source.records(filters, limit=part).records
        yield from told
        if len(told) < part or told[-1].start_unix_ns == filters.since_unix_ns:
            return
        filters = filters.model_copy(update={"since_unix_ns": told[-1].start_unix_ns})
