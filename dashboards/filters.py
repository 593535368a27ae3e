"""Which requests a question is about, and the WHERE clause that picks them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, cast, get_args

from pydantic import BaseModel, ConfigDict, Field

from dashboards.errors import BadValueError
from dashboards.times import LATEST_UNIX_NS, parse_when, to_iso

Choice = Literal["include", "exclude", "only"]
Status = Literal["ok", "error", "cancelled"]

WITH_MODEL_CALL: Final = "model"
ANY_OPERATION: Final = "any"
RUN_TAG: Final = "run"
MOST_VALUES: Final = 100
"""Of one filter; each tag is a term of the condition, and the store reads only so long a one."""


class Filters(BaseModel):
    """The chosen requests: those that began in ``[since, until)`` and match every field.

    An empty tuple or ``None`` leaves that field open. ``warm`` and ``cached`` keep all
    requests (``include``), drop those known to be warm or to have hit the prefix cache
    (``exclude``), or keep those alone (``only``); a request of which it is not known
    stays under ``exclude`` and goes under ``only``. ``operation`` is ``model`` (any
    request that made a model call; an application's own task, whose requests are told
    apart from it, is not one), ``any``, or one operation's name (``invoke_workflow``: tasks).
    ``exact``: every one is read, however many they are (:mod:`dashboards.queries.sample`).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    since_unix_ns: int | None = Field(default=None, ge=0, le=LATEST_UNIX_NS)
    until_unix_ns: int | None = Field(default=None, ge=0, le=LATEST_UNIX_NS)
    model: tuple[str, ...] = ()
    route: tuple[str, ...] = ()
    status: tuple[Status, ...] = ()
    run: str | None = None
    tags: dict[str, str] = Field(default_factory=dict)
    warm: Choice = "include"
    cached: Choice = "include"
    operation: str = WITH_MODEL_CALL
    exact: bool = False


def parse_filters(
    *,
    now_unix_ns: int,
    since: str | None = None,
    until: str | None = None,
    model: Iterable[str] = (),
    route: Iterable[str] = (),
    status: Iterable[str] = (),
    run: str | None = None,
    tags: Iterable[str] = (),
    warm: str = "include",
    cached: str = "include",
    operation: str = WITH_MODEL_CALL,
    exact: bool = False,
) -> Filters:
    """Filters from the texts of a command line or a query string.

    ``since`` and ``until`` are read by :func:`dashboards.times.parse_when`; ``tags`` are
    ``NAME=VALUE``.

    Raises:
        BadValueError: one sentence on the first value that cannot be used.
    """
    lists = {"model": tuple(model), "route": tuple(route), "status": tuple(status), "tag": tuple(tags)}
    for name, values in lists.items():
        if len(values) > MOST_VALUES:
            raise BadValueError(
                f"{name} is given {len(values):,} times: at most {MOST_VALUES} at once; ask in several "
                "questions, or give all of these requests a tag of their own"
            )
    begin = None if since is None else parse_when(since, "since", now_unix_ns)
    end = None if until is None else parse_when(until, "until", now_unix_ns)
    if begin is not None and end is not None and begin >= end:
        raise BadValueError(
            f"since {since!r} is not before until {until!r}: nothing lies between them; "
            "give an earlier since or a later until"
        )
    return Filters(
        since_unix_ns=begin,
        until_unix_ns=end,
        model=_texts("model", lists["model"]),
        route=_texts("route", lists["route"]),
        status=tuple(
            cast("Status", _one_of("status", s, get_args(Status))) for s in lists["status"]
        ),
        run=None if run is None else _text("run", run),
        tags=_tags(lists["tag"]),
        warm=cast("Choice", _one_of("warm", warm, get_args(Choice))),
        cached=cast("Choice", _one_of("cached", cached, get_args(Choice))),
        operation=_text("operation", operation),
        exact=exact,
    )


def to_query(filters: Filters) -> list[tuple[str, str]]:
    """The same filters as query parameters, which :func:`parse_filters` reads back exactly."""
    pairs: list[tuple[str, str]] = []
    for name, unix_ns in (("since", filters.since_unix_ns), ("until", filters.until_unix_ns)):
        if unix_ns is not None:
            pairs.append((name, to_iso(unix_ns)))
    pairs += [("model", one) for one in filters.model]
    pairs += [("route", one) for one in filters.route]
    pairs += [("status", one) for one in filters.status]
    if filters.run is not None:
        pairs.append(("run", filters.run))
    pairs += [("tag", f"{name}={value}") for name, value in filters.tags.items()]
    pairs += [("warm", filters.warm), ("cached", filters.cached)]
    pairs.append(("operation", filters.operation))
    if filters.exact:
        pairs.append(("exact", "true"))
    return pairs


@dataclass(frozen=True, slots=True)
class Where:
    """A condition on ``requests`` and the values bound to its ``{name:Type}`` parameters."""

    sql: str
    params: Mapping[str, object]


def where(filters: Filters) -> Where:
    """The condition for ``filters``. Its text holds only our own words; values are bound."""
    terms: list[str] = []
    params: dict[str, object] = {}
    _where_time(filters, terms, params)
    lists: tuple[tuple[str, str, Sequence[str]], ...] = (
        ("Model", "models", filters.model),
        ("Route", "routes", filters.route),
        ("Status", "statuses", filters.status),
    )
    for column, name, values in lists:
        if values:
            terms.append(f"{column} IN {{{name}:Array(String)}}")
            params[name] = list(values)
    _where_tags(filters, terms, params)
    terms += _where_marks(filters)
    if filters.operation == WITH_MODEL_CALL:
        terms.append("Operation != '' AND Source != 'app'")
    elif filters.operation != ANY_OPERATION:
        terms.append("Operation = {operation:String}")
        params["operation"] = filters.operation
    return Where(" AND ".join(terms) or "1", params)


def _where_time(filters: Filters, terms: list[str], params: dict[str, object]) -> None:
    if filters.since_unix_ns is not None:
        terms.append("Timestamp >= fromUnixTimestamp64Nano({since:Int64}, 'UTC')")
        params["since"] = filters.since_unix_ns
    if filters.until_unix_ns is not None:
        terms.append("Timestamp < fromUnixTimestamp64Nano({until:Int64}, 'UTC')")
        params["until"] = filters.until_unix_ns


def _where_tags(filters: Filters, terms: list[str], params: dict[str, object]) -> None:
    wanted = list(filters.tags.items())
    if filters.run is not None:
        wanted.append((RUN_TAG, filters.run))
    for i, (name, value) in enumerate(wanted):
        if not value:  # which is what a map gives for a key that it has not
            terms.append(f"has(Tags.keys, {{tag{i}:String}})")
        terms.append(
            f"arrayElement(Tags.values, indexOf(Tags.keys, {{tag{i}:String}})) = {{is{i}:String}}"
        )
        params[f"tag{i}"], params[f"is{i}"] = name, value


def _where_marks(filters: Filters) -> list[str]:
    terms: list[str] = []
    for choice, fact in (
        (filters.warm, "coalesce(Warm, false)"),
        (filters.cached, "coalesce(CachedTokens, 0) > 0"),
    ):
        if choice != "include":
            terms.append(fact if choice == "only" else f"NOT ({fact})")
    return terms


def _texts(name: str, values: Iterable[str]) -> tuple[str, ...]:
    return tuple(_text(name, one) for one in values)


def _text(name: str, value: str) -> str:
    """``value``, when it can be sent to the store at all."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise BadValueError(f"{name} {value!r} is not valid text: give it in UTF-8") from error
    return value


def _one_of(name: str, value: str, known: Sequence[str]) -> str:
    if value not in known:
        raise BadValueError(f"{name} {value!r} is not known: it is one of {', '.join(known)}")
    return value


def _tags(texts: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = _text("tag", text).partition("=")
        if not equals or not name:
            raise BadValueError(f"tag {text!r} names no value: write it as NAME=VALUE")
        if found.get(name, value) != value:
            raise BadValueError(
                f"tag {name!r} is asked to be both {found[name]!r} and {value!r}: no request "
                "has two values of one tag; give one"
            )
        found[name] = value
    return found
