"""The live tail beyond an hour: what it asks for, shows and counts when its window moves on."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from dashboards.api import build_api
from tests.support.browser import S, served, shown
from tests.support.clock import FakeClock
from tests.unit.dashboards.conftest import NOW_UNIX_NS, HandStore

HOUR = 3600 * S


def since(request) -> str | None:
    at = urlsplit(request.url)
    return parse_qs(at.query).get("since", [None])[0] if at.path.endswith("/requests") else None


def test_its_window_moves_on_by_the_hour_and_nothing_is_counted_twice(tab, store: HandStore):
    """Three requests, one that it does not show, an hour goes by, one more: each is told once."""
    clock = FakeClock(unix_ns=NOW_UNIX_NS)
    store.requests(*({"start": n * S, "decode": S, "Model": f"first{n}"} for n in range(3)))
    with served(build_api(store, None, clock)) as url:
        tab.clock.install()
        shown(tab, url, view="tail")
        told = tab.get_by_role("status").last
        assert told.inner_text().startswith("3 of 3 requests of the last hour")
        store.requests(*({"start": 50 * 60 * S + n, "decode": S, "Model": "rush"} for n in range(200)),
                       {"start": 4 * S, "decode": 1, "Model": "early"})  # fmt: skip
        tab.clock.run_for(3000)
        tab.get_by_text("; 1 since this view was opened is not shown").wait_for()
        clock.advance(3600)
        with tab.expect_request(lambda r: since(r) == "2026-01-01T13:00:00.000Z") as moved:
            tab.clock.fast_forward("01:00:05")
        assert "limit=1" in moved.value.url
        moved.value.response()
        store.requests({"start": HOUR + 10 * S, "decode": S, "Model": "newcomer"})
        tab.clock.run_for(5000)
        tab.locator("tbody tr", has_text="newcomer").wait_for()
        assert tab.locator("tbody tr").count() == 200
        assert told.inner_text().startswith("1 more request, the latest began")
        assert "; 1 since this view was opened is not shown" in told.inner_text()
