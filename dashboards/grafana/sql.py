"""The pieces of SQL that the panels are made of.

Table names stand alone: the data source's default database is the store's. Texts that a
user can choose reach SQL only percent-encoded and are decoded by ClickHouse: Grafana's
own quoting (``singlequote``, ``sqlstring``) leaves backslashes as they are, so a value
could end the string that it stands in.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dashboards.queries.measures import STAGE_COLUMNS

PERCENTILES: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
LEVELS: Final = ", ".join(str(level) for level in PERCENTILES.values())
IN_RANGE: Final = "$__timeFilter(Timestamp)"
HOURS: Final = (
    "toStartOfHour(Timestamp) >= toStartOfHour($__fromTime, 'UTC') "
    "AND toStartOfHour(Timestamp) <= toStartOfHour($__toTime, 'UTC')"
)
"""The same by whole hours, as the key of ``requests`` has them: without it a whole day is read."""
STEP: Final = "$__timeInterval(Timestamp) AS time"
TAGS: Final = "arrayMap((k, v) -> concat(k, '=', v), mapKeys(Tags), mapValues(Tags))"


def text(variable: str) -> str:
    """The value of a variable with one value, as a String, whatever stands in it."""
    return f"decodeURLComponent('${{{variable}:percentencode}}')"


def texts(variable: str) -> str:
    """The chosen values of a variable, as an Array(String); one empty string where none is.

    ``queryparam`` gives ``var-NAME=VALUE&…`` with each value percent-encoded; a space may
    come as ``+``.
    """
    return (
        "arrayMap(p -> decodeURLFormComponent(substring(p, position(p, '=') + 1)), "
        f"splitByChar('&', '${{{variable}:queryparam}}'))"
    )


def number(variable: str) -> str:
    """The number in a text box; NULL where there is none."""
    return f"toFloat64OrNull({text(variable)})"


def one_of(column: str, variable: str) -> str:
    """``column`` is one of the values chosen. From a subquery, because the key is not used for
    an array that has to be worked out.
    """
    return f"{column} IN (SELECT arrayJoin({texts(variable)}))"


def chosen(column: str, variable: str) -> str:
    """``column`` is one of the values chosen; with All or none chosen, always true."""
    return f"$__conditionalAll({one_of(column, variable)}, ${variable})"


def chosen_tags() -> str:
    """The request has one of the tags chosen, as ``key=value``."""
    return f"$__conditionalAll(hasAny({TAGS}, {texts('tag')}), $tag)"


def repeated(column: str, variable: str) -> str:
    """``column`` is the value of this copy of a repeated panel.

    ``$__conditionalAll`` would look at the whole choice: with All chosen, each copy would
    show everything.
    """
    values = texts(variable)
    return f"(hasAny({values}, array('', '$__all')) OR {one_of(column, variable)})"


_TELLING: Final = "CachedTokens IS NOT NULL AND InputTokens IS NOT NULL"
CACHED_SHARE: Final = (
    f"sumIf(least(CachedTokens, InputTokens), {_TELLING}) / "
    f"nullIf(sumIf(InputTokens, {_TELLING}), 0)"
)
"""Cached share of the prompt tokens of requests that tell both; of each at most all."""
MODEL_CALLS: Final = "Operation != '' AND Source != 'app'"
"""Requests that made a model call: those that the report counts unless told otherwise."""


def requests(*more: str, model: str | None = None) -> str:
    """FROM and WHERE of the requests that the dashboard's variables choose."""
    terms = (
        IN_RANGE,
        HOURS,
        MODEL_CALLS,
        model or chosen("Model", "model"),
        chosen("Route", "route"),
        chosen_tags(),
        *more,
    )
    return "FROM requests\nWHERE " + "\n  AND ".join(terms)


def exact(name: str, column: str, where: str = "") -> str:
    """The exact percentiles of ``column`` at LEVELS, of which :func:`ms` of ``name`` takes one."""
    return _levels("quantilesExactInclusive", name, column, where)


def sketch(name: str, column: str, where: str = "") -> str:
    """The same from a t-digest: little memory for each of many steps of time."""
    return _levels("quantilesTDigest", name, column, where)


def _levels(function: str, name: str, column: str, where: str) -> str:
    if where:
        return f"{function}If({LEVELS})({column}, {where}) AS {name}_levels"
    return f"{function}({LEVELS})({column}) AS {name}_levels"


TTFT: Final = ("assumeNotNull(FirstTokenNs)", "FirstTokenNs IS NOT NULL")
TPOT: Final = ("assumeNotNull(TpotNs)", "TpotNs IS NOT NULL")
LEVEL: Final = f"indexOf({list(PERCENTILES)}, {text('percentile')})"
"""Place of the chosen percentile in LEVELS; 0, which ClickHouse refuses, for anything else."""


def ms(name: str, level: str | None = None) -> str:
    """One percentile in milliseconds, Float64; NULL where there was no value."""
    at = LEVEL if level is None else str(list(PERCENTILES).index(level) + 1)
    value = f"{name}_levels[{at}]"
    return f"if(isFinite({value}), {value} / 1e6, NULL)"


def stage_means(kind: str = "avg") -> list[str]:
    """Mean exclusive milliseconds of each stage; together they are the mean of E2E."""
    return [f"{kind}({column}) / 1e6 AS {stage}" for stage, column in STAGE_COLUMNS.items()]


def select(columns: Iterable[str], rest: str, *, given: Iterable[str] = ()) -> str:
    """A SELECT, laid out to be read in Grafana's editor; ``given`` goes into WITH."""
    names = ",\n  ".join(given)
    head = f"WITH\n  {names}\n" if names else ""
    return f"{head}SELECT\n  " + ",\n  ".join(columns) + f"\n{rest}"
