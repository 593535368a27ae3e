"""What the chosen requests can be told apart by."""

from __future__ import annotations

from dashboards.filters import parse_filters
from dashboards.queries.facets import facets
from tests.unit.dashboards.conftest import NOW_UNIX_NS


def test_values_are_those_of_the_chosen_requests(store):
    """Models, routes, runs and tags; the run is no other tag; what is filtered out is not there."""
    store.requests(
        {"Model": "b", "Route": "/r", "Tags": {"run": "one", "tenant": "x"}},
        {"Model": "a", "Tags": {"tenant": "y"}, "Operation": "embeddings"},
        {"Model": "old", "start": -7200 * 10**9},
    )
    found = facets(store, parse_filters(now_unix_ns=NOW_UNIX_NS, since="2h"))
    assert (found.requests, found.models, found.runs) == (2, ("a", "b"), ("one",))
    assert found.routes == ("/r", "/v1/chat/completions")
    assert found.operations == ("chat", "embeddings")
    assert found.tags == {"tenant": ("x", "y")}


def test_no_request_has_no_values(store):
    """Empty, not an error."""
    found = facets(store, parse_filters(now_unix_ns=NOW_UNIX_NS))
    assert (found.requests, found.models, found.tags) == (0, (), {})
