"""An analysis for the whole, and again for each group of ``by``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from dashboards.filters import Where
from dashboards.models.report import GroupsLeftOut
from dashboards.queries.base import QueryLimits, QueryStore, run
from dashboards.queries.dimensions import dimensions, parse_by

MOST_GROUPS: Final = 20
"""Each group is asked for by itself, so they are fewer than those of a report."""

A = TypeVar("A")
Key = dict[str, str | None]


def whole_and_groups(
    store: QueryStore,
    picked: Where,
    by: Sequence[str],
    limits: QueryLimits,
    ask: Callable[[Where, Key], A],
) -> tuple[A, tuple[A, ...], GroupsLeftOut]:
    """``ask`` of all requests of ``picked``, and of the ``MOST_GROUPS`` largest groups of ``by``.

    Raises:
        BadValueError: ``by`` holds a name that is no dimension.
        UnavailableError: the store gave no answer.
    """
    overall = ask(picked, {})
    parts = dimensions(parse_by(by))
    if not parts:
        return overall, (), GroupsLeftOut(groups=0, requests=0)
    given = {name: value for one in parts for name, value in one.params}
    keys = ", ".join(f"{one.sql} AS k{i}" for i, one in enumerate(parts))
    names = ", ".join(f"k{i}" for i in range(len(parts)))
    counts = "count() AS n, count() OVER () AS all_groups, sum(count()) OVER () AS all_n"
    source = f"FROM {{database:Identifier}}.requests WHERE {picked.sql}"
    order = f"GROUP BY {names} ORDER BY n DESC, {names} LIMIT {MOST_GROUPS}"
    sql = f"SELECT {keys}, {counts} {source} {order}"
    rows = run(store, sql, {**picked.params, **given}, limits)
    kept = sorted(rows, key=lambda r: [p.rank(r[f"k{i}"]) for i, p in enumerate(parts)])
    found: list[A] = []
    for row in kept:
        terms = [f"{one.sql} = {{group{i}:String}}" for i, one in enumerate(parts)]
        values = {f"group{i}": row[f"k{i}"] for i in range(len(parts))}
        one = Where(" AND ".join([picked.sql, *terms]), {**picked.params, **given, **values})
        found.append(ask(one, {p.name: p.read(row[f"k{i}"]) for i, p in enumerate(parts)}))
    left = GroupsLeftOut(
        groups=int(rows[0]["all_groups"]) - len(rows) if rows else 0,
        requests=int(rows[0]["all_n"]) - sum(int(r["n"]) for r in rows) if rows else 0,
    )
    return overall, tuple(found), left
