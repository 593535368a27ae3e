"""The models, routes, runs and tags that the latest of the chosen requests have."""

from __future__ import annotations

from typing import Final

from dashboards.filters import RUN_TAG, Filters, where
from dashboards.models.facets import Facets
from dashboards.queries.base import QueryLimits, QueryStore, run

LATEST: Final = 20_000
MOST_VALUES: Final = 100
MOST_TAGS: Final = 50

_VALUES: Final = f"""\
count() AS Seen,
groupUniqArray({MOST_VALUES})(toString(Model)) AS Models,
groupUniqArray({MOST_VALUES})(toString(Route)) AS Routes,
groupUniqArray({MOST_VALUES})(toString(Operation)) AS Operations,
groupUniqArrayIf({MOST_VALUES})(Tags[{{run:String}}], mapContains(Tags, {{run:String}})) AS Runs"""
_TAGS: Final = f"""\
SELECT toString(tag.1) AS Name, groupUniqArray({MOST_VALUES})(tag.2) AS Found FROM (%s)
ARRAY JOIN CAST(Tags, 'Array(Tuple(String, String))') AS tag
WHERE Name != {{run:String}} GROUP BY Name ORDER BY count() DESC, Name LIMIT {MOST_TAGS}"""


def facets(store: QueryStore, filters: Filters, limits: QueryLimits | None = None) -> Facets:
    """Values of the latest ``LATEST`` of the chosen requests.

    Raises:
        UnavailableError: the store gave no answer.
    """
    picked, bound = where(filters), limits or QueryLimits()
    latest = (
        "SELECT Model, Route, Operation, Tags FROM {database:Identifier}.requests "
        f"WHERE {picked.sql} ORDER BY Timestamp DESC LIMIT {LATEST}"
    )
    params = {**picked.params, "run": RUN_TAG}
    row = run(store, f"SELECT {_VALUES} FROM ({latest})", params, bound)[0]
    tags = run(store, _TAGS % latest, params, bound)
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
