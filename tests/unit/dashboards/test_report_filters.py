"""Which requests a question is about."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from dashboards.errors import BadValueError
from dashboards.filters import Filters, parse_filters, to_query, where
from dashboards.queries.report import report

NOW = 1_767_272_400_000_000_000
S = 1_000_000_000
HOSTILE = [
    "x' OR 1=1 --",
    "x') OR (1=1",
    "d'arc",
    "a--b",
    "x\\y",
    "\\'; DROP TABLE requests; --",
    "{since:Int64}",
    "a\tb\nc",
    "\\N",
    "模型",
    "%s %(x)s",
    "a\x00b",
]


def total(store, **given):
    """How many stored requests the condition picks."""
    picked = where(parse_filters(now_unix_ns=NOW, **given))
    sql = f"SELECT count() AS n FROM {store.database}.requests WHERE {picked.sql}"
    return store.query(sql, picked.params)[0]["n"]


@pytest.mark.parametrize("value", HOSTILE)
def test_a_hostile_value_is_only_a_value(value):
    """The text of the condition is the same whatever the values are."""
    tame = parse_filters(
        now_unix_ns=0, model=["m"], route=["r"], run="x", tags=["a=b"], operation="o"
    )
    wild = parse_filters(
        now_unix_ns=0,
        model=[value],
        route=[value],
        run=value,
        tags=[f"{value.replace('=', '')}={value}"],
        operation=value,
    )
    assert where(wild).sql == where(tame).sql


def test_hostile_values_pick_just_the_rows_that_hold_them(store):
    """Each odd model, route, tag and run is found once, and an injection finds nothing."""
    for value in HOSTILE:
        store.requests({"Model": value, "Route": value, "Tags": {"run": value, value: value}})
    for value in HOSTILE:
        assert total(store, model=[value]) == 1, value
        assert total(store, route=[value]) == 1, value
        assert total(store, run=value) == 1, value
        if "=" not in value:
            assert total(store, tags=[f"{value}={value}"]) == 1, value
    for value in HOSTILE[:2]:
        by = report(store, Filters(model=tuple(HOSTILE)), [f"tag:{value}"], now_unix_ns=NOW)
        assert [one.key[f"tag:{value}"] for one in by.groups] == [value, None]
    assert total(store, model=["nothing' OR '1'='1"]) == 0
    assert total(store) == len(HOSTILE)


def test_time_bounds_hold_their_start_and_not_their_end(store):
    """`since` is included, `until` is not, both to the nanosecond."""
    store.requests({"start": 0}, {"start": 1}, {"start": 2})
    assert total(store, since="2026-01-01T12:00:00.000000001Z") == 2
    assert total(store, until="2026-01-01T12:00:00.000000001Z") == 1
    assert total(store, since="1h") == 3


def test_several_values_of_one_field_widen_and_fields_narrow(store):
    """Values of one option are alternatives; different options must all hold."""
    store.requests(
        {"Model": "a", "Status": "ok", "Tags": {"tenant": "x", "run": "r1"}},
        {"Model": "b", "Status": "error", "Tags": {"tenant": "x"}},
        {"Model": "c", "Status": "cancelled", "Tags": {"tenant": ""}},
        {"Model": "c"},
    )
    assert total(store, model=["a", "b"]) == 2
    assert total(store, model=["a", "b"], status=["error", "cancelled"]) == 1
    assert total(store, tags=["tenant=x"], run="r1") == 1
    assert total(store, tags=["tenant="]) == 1


def test_warm_and_cached_keep_the_unknown_apart(store):
    """`exclude` drops only what is known to be so; `only` keeps nothing else."""
    for warm, cached in ((True, 5), (False, 0), (None, None)):
        store.requests({"Warm": warm, "CachedTokens": cached})
    for name in ("warm", "cached"):
        found = [total(store, **{name: choice}) for choice in ("include", "exclude", "only")]
        assert found == [3, 2, 1]


def test_only_requests_with_a_model_call_unless_asked(store):
    """A health check is not a slow model call."""
    store.requests({"Operation": "chat"}, {"Operation": "embeddings"}, {"Operation": ""})
    assert total(store) == 2
    assert total(store, operation="any") == 3
    assert total(store, operation="embeddings") == 1


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"since": "soon"}, "since 'soon' is not a time"),
        ({"since": "1h", "until": "2h"}, "since '1h' is not before until '2h'"),
        ({"status": ["failed"]}, "status 'failed' is not known: it is one of ok, error, cancelled"),
        ({"warm": "yes"}, "warm 'yes' is not known: it is one of include, exclude, only"),
        ({"cached": ""}, "cached '' is not known"),
        ({"tags": ["tenant"]}, "tag 'tenant' names no value: write it as NAME=VALUE"),
        ({"tags": ["=x"]}, "tag '=x' names no value"),
        ({"tags": ["a=1", "a=2"]}, "tag 'a' is asked to be both '1' and '2'"),
        ({"model": ["\ud800"]}, "is not valid text"),
    ],
)
def test_a_bad_value_is_one_clear_sentence(given, words):
    """The sentence names the thing, the rule and the way out."""
    with pytest.raises(BadValueError) as caught:
        parse_filters(now_unix_ns=NOW, **given)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_filters_are_frozen_and_strict():
    """Code cannot change filters or invent a field."""
    with pytest.raises(ValidationError):
        Filters(tenant="x")
    with pytest.raises(ValidationError):
        Filters().run = "x"


def test_filters_survive_the_way_through_a_query_string():
    """What the client sends is what the server reads, exactly."""
    filters = parse_filters(
        now_unix_ns=NOW,
        since="2026-01-01T12:00:00.000000001Z",
        until="now",
        model=["a", "b&c=d"],
        route=["/v1/chat/completions"],
        status=["ok", "error"],
        run="r 1",
        tags=["tenant=x=y"],
        warm="only",
        cached="exclude",
        operation="any",
    )
    texts = {}
    for name, value in to_query(filters):
        texts.setdefault(name, []).append(value)
    many = {name: texts.pop(name) for name in ("model", "route", "status")}
    tags = texts.pop("tag")
    single = {name: values[0] for name, values in texts.items()}
    assert parse_filters(now_unix_ns=0, tags=tags, **many, **single) == filters
