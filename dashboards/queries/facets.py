"""The models, routes, runs and tags that the latest of the chosen requests have."""

from __future__ import annotations

from typing import Final

from dashboards.filters import RUN_TAG, Filters, where
from dashboards.models.facets import Facets
from dashboards.queries.base import QueryLimits, QueryStore, run

LATEST: Final = 20_000

_LATEST: Final = (
    "SELECT Model, Route, Operation, Tags FROM {database:Identifier}.requests WHERE",
    "ORDER BY Timestamp DESC LIMIT {latest:UInt32}",
)
_EDGE: Final = (
    "SELECT toUnixTimestamp64Nano(Timestamp) AS edge FROM {database:Identifier}.requests WHERE",
    "ORDER BY Timestamp DESC LIMIT 1 OFFSET {before:UInt32}",
)
_SINCE: Final = "AND Timestamp >= fromUnixTimestamp64Nano({edge:Int64}, 'UTC')"
"""From here on there are as many as are read: so the store reads wide columns of those alone."""
_VALUES: Final = """\
SELECT count() AS Seen, groupUniqArray(100)(toString(Model)) AS Models,
  groupUniqArray(100)(toString(Route)) AS Routes, groupUniqArray(100)(toString(Operation)) AS Operations,
  groupUniqArrayIf(100)(Tags[{run:String}], mapContains(Tags, {run:String})) AS Runs
FROM"""
_TAGS: Final = (
    "SELECT toString(tag) AS Name, groupUniqArray(100)(value) AS Found FROM",
    "ARRAY JOIN mapKeys(Tags) AS tag, mapValues(Tags) AS value WHERE Name != {run:String}",
    "GROUP BY Name ORDER BY count() DESC, Name LIMIT 50",
)


def facets(store: QueryStore, filters: Filters, limits: QueryLimits | None = None) -> Facets:
    """Values of the latest ``LATEST`` of the chosen requests.

    Raises:
        UnavailableError: the store gave no answer.
    """
    picked, bound = where(filters), limits or QueryLimits()
    params = {**picked.params, "run": RUN_TAG, "latest": LATEST, "before": LATEST - 1}
    edge = run(store, f"{_EDGE[0]} {picked.sql} {_EDGE[1]}", params, bound)
    params["edge"] = edge[0]["edge"] if edge else 0
    latest = f"({_LATEST[0]} {picked.sql} {_SINCE} {_LATEST[1]})"
    row = run(store, f"{_VALUES} {latest}", params, bound)[0]
    tags = run(store, f"{_TAGS[0]} {latest} {_TAGS[1]} {_TAGS[2]}", params, bound)
    return Facets(
        requests=int(row["Seen"]),
        models=_sorted(row["Models"]),
        routes=_sorted(row["Routes"]),
        operations=_sorted(row["Operations"]),
        runs=_sorted(row["Runs"]),
        tags={one["Name"]: _sorted(one["Found"]) for one in tags},
    )


def _sorted(values: list[str]) -> tuple[str, ...]:
    return tuple(sorted(value for value in values if value))
