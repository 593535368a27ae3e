"""Groups of the report."""

from __future__ import annotations

import pytest

from dashboards.errors import BadValueError
from dashboards.filters import Filters
from dashboards.queries import report as report_module
from dashboards.queries.dimensions import (
    CONCURRENCY_BOUNDS,
    INPUT_BOUNDS,
    OUTPUT_BOUNDS,
    bucket_labels,
    bucket_of,
    known,
    parse_by,
)
from dashboards.queries.report import report

NOW = 1_767_272_400_000_000_000


def groups(store, *by):
    return report(store, Filters(), by, now_unix_ns=NOW).groups


def sizes(store, name):
    return {one.key[name]: one.counts.total for one in groups(store, name)}


def test_each_dimension_divides_by_its_own_value(store):
    """Every known dimension groups by what its name says, the unknown last."""
    store.requests(
        {
            "Model": "a",
            "InputTokens": 0,
            "OutputTokens": 20,
            "CachedTokens": 0,
            "InFlight": 0,
            "Warm": True,
            "Stream": False,
            "FinishReason": "length",
        },
        {"Model": "b", "InputTokens": 127, "CachedTokens": 3, "InFlight": 2, "Warm": False},
        {"Model": "b", "InputTokens": 128, "InFlight": 3, "Status": "error", "ErrorType": "x"},
        {"Model": "", "InputTokens": 999_999, "Route": "/v1/completions", "FinishReason": ""},
    )
    assert sizes(store, "model") == {"a": 1, "b": 2, None: 1}
    assert list(sizes(store, "input_tokens").items()) == [
        ("0", 1),
        ("1-127", 1),
        ("128-511", 1),
        ("131072+", 1),
    ]
    assert list(sizes(store, "output_tokens").items()) == [("16-63", 1), (None, 3)]
    assert sizes(store, "cached") == {"no": 1, "yes": 1, None: 2}
    assert list(sizes(store, "concurrency").items()) == [("1", 2), ("3-4", 2)]
    assert sizes(store, "route") == {"/v1/chat/completions": 3, "/v1/completions": 1}
    assert sizes(store, "status") == {"ok": 3, "error": 1}
    assert sizes(store, "warm") == {"yes": 1, "no": 1, None: 2}
    assert sizes(store, "stream") == {"yes": 3, "no": 1}
    assert sizes(store, "finish_reason") == {"length": 1, "stop": 2, None: 1}
    assert sizes(store, "error_type") == {"x": 1, None: 3}


def test_a_tag_groups_by_its_value_and_tells_the_untagged_apart(store):
    """An empty tag and a tag named like our unknown are groups of their own."""
    for tags in ({"t": "x"}, {"t": ""}, {"t": "unknown"}, {}, {"u": "x"}):
        store.requests({"Tags": tags})
    assert sizes(store, "tag:t") == {"x": 1, "": 1, "unknown": 1, None: 2}


def test_several_dimensions_make_one_group_a_combination(store):
    """`--by model,cached` has a group for each pair of values that occurs."""
    store.requests(
        {"Model": "a", "CachedTokens": 0, "decode": 10},
        {"Model": "a", "CachedTokens": 9, "decode": 20},
        {"Model": "b", "CachedTokens": 9, "decode": 30},
        {"Model": "b", "CachedTokens": 9, "decode": 50},
    )
    found = groups(store, "model", "cached")
    assert [one.key for one in found] == [
        {"model": "a", "cached": "no"},
        {"model": "a", "cached": "yes"},
        {"model": "b", "cached": "yes"},
    ]
    assert [one.measure("e2e").p50_ns for one in found] == [10, 20, 40]


def test_each_group_has_its_own_slowest_and_its_own_window(store):
    """The tail and the rates of a group are of that group's requests alone."""
    s = 1_000_000_000
    store.requests(
        {"Model": "a", "start": 0, "queue": 1 * s},
        {"Model": "a", "start": 1 * s, "decode": 1 * s},
        {"Model": "b", "start": 50 * s, "tool": 4 * s},
    )
    a, b = groups(store, "model")
    assert a.activity.requests_per_s == pytest.approx(1.0)
    assert b.activity.requests_per_s == pytest.approx(0.25)
    assert b.stage("tool").slowest_share == 1.0
    assert a.stage("tool").slowest_share == 0.0


def test_groups_beyond_the_limit_are_counted(store, monkeypatch):
    """The largest groups stay; the others are told as so many groups and requests."""
    monkeypatch.setattr(report_module, "MOST_GROUPS", 2)
    for model, n in (("a", 1), ("b", 3), ("c", 2), ("d", 1)):
        store.requests(*({"Model": model} for _ in range(n)))
    found = report(store, Filters(), ["model"], now_unix_ns=NOW)
    assert [one.key["model"] for one in found.groups] == ["b", "c"]
    assert (found.groups_left_out.groups, found.groups_left_out.requests) == (2, 2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("modle", "by 'modle' is not a dimension: it is one of model, input_tokens"),
        ("tag:", "by 'tag:' is not a dimension"),
        ("model,model", "by names 'model' twice"),
        ("model,route,status,warm,stream", "at most 4 at once"),
        ("model); DROP TABLE requests; --", "is not a dimension"),
    ],
)
def test_an_unknown_dimension_lists_the_known(text, words):
    """The error is one sentence with the way out."""
    with pytest.raises(BadValueError) as caught:
        parse_by(text)
    assert words in str(caught.value)


def test_by_reads_a_comma_separated_text():
    """Spaces and empty parts do not matter."""
    assert parse_by(" model, tag:a b ,") == ("model", "tag:a b")
    assert parse_by("") == ()
    assert "tag:NAME" in known()


@pytest.mark.parametrize("bounds", [INPUT_BOUNDS, OUTPUT_BOUNDS, CONCURRENCY_BOUNDS])
def test_bucket_labels_name_their_first_and_last_number(bounds):
    """The label of a value holds it."""
    labels = bucket_labels(bounds)
    assert len(labels) == len(bounds) + 1
    for bound in bounds:
        assert bucket_of(bound, bounds).rstrip("+").split("-")[0] == str(bound)
        assert bucket_of(bound - 1, bounds).split("-")[-1] == str(bound - 1)
