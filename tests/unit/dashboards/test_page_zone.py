"""Times that are typed into the page, and those in its links."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest

from dashboards.api import build_api
from tests.support.browser import S, clean_tab, served, shown
from tests.support.clock import FakeClock
from tests.unit.dashboards.conftest import NOW_UNIX_NS, HandStore

MINUTE = 60 * S


@pytest.fixture(scope="module")
def url(module_store: HandStore) -> Iterator[str]:
    """Requests at 12:00 and at 12:30 UTC on 2026-01-01, as two runs of other lengths."""
    module_store.requests(
        {"decode": S, "Tags": {"run": "x"}, "InputTokens": 10, "OutputTokens": 10},
        {"start": 30 * MINUTE, "decode": S, "Tags": {"run": "y"}, "InputTokens": 10, "OutputTokens": 10},
        {"start": 31 * MINUTE, "decode": S, "Tags": {"run": "y"}, "InputTokens": 9000, "OutputTokens": 10},
    )
    with served(build_api(module_store, None, FakeClock(unix_ns=NOW_UNIX_NS))) as at:
        yield at


@pytest.fixture(params=["Asia/Tokyo", "America/St_Johns", "UTC"])
def placed(browser, request):
    """A tab in a zone, and the wall clock there at 12:15 UTC with its offset."""
    told = {"Asia/Tokyo": ("2026-01-01T21:15", "+09:00"), "UTC": ("2026-01-01T12:15", "+00:00"),
            "America/St_Johns": ("2026-01-01T08:45", "-03:30")}[request.param]  # fmt: skip
    with clean_tab(browser, timezone_id=request.param) as one:
        yield one, request.param, *told


def given(tab, name: str) -> str:
    """What stands in the address."""
    return parse_qs(urlsplit(tab.url).query)[name][0]


def counted(tab) -> str:
    """n of A and of B."""
    row = tab.locator("tbody tr", has=tab.locator("th:text-is('e2e p50')"))
    return row.locator("td").last.inner_text()


def test_a_time_is_read_in_the_zone_that_is_shown(placed, url):
    """A quarter past, by the clock on the wall: one request before, two after; the URL has its offset."""
    tab, zone, wall, offset = placed
    shown(tab, url, view="requests")
    field = tab.get_by_label("Since")
    assert f"read in {zone} unless" in field.get_attribute("title")
    field.fill(wall)
    field.press("Enter")
    tab.get_by_text("2 of 2 requests").wait_for()
    assert given(tab, "since") == field.input_value() == wall + offset
    field.fill("2h")
    tab.get_by_label("Until").fill(f"{wall.replace('T', ' ')}:00.5")
    field.press("Enter")
    tab.get_by_text("1 of 1 request,").wait_for()
    assert (given(tab, "since"), given(tab, "until")) == ("2h", f"{wall.replace('T', ' ')}:00.5{offset}")


def test_a_link_without_a_zone_is_utc_everywhere_and_says_so(placed, url):
    """As for the API; what the field shows means the same when it is sent again."""
    tab = placed[0]
    shown(tab, url, view="requests", since="2026-01-01T12:15")
    tab.get_by_text("2 of 2 requests").wait_for()
    field = tab.get_by_label("Since")
    assert field.input_value() == "2026-01-01T12:15Z"
    field.press("Enter")
    tab.wait_for_url("**12%3A15Z*")
    tab.get_by_text("2 of 2 requests").wait_for()


def test_windows_to_compare_are_read_in_the_zone_too(placed, url):
    """FROM..TO, each end of it; a run's name and a length of time stay as they are."""
    tab, zone, wall, offset = placed
    shown(tab, url, view="compare")
    tab.get_by_text(f"Times without a zone are read in {zone}.").wait_for()
    tab.get_by_label("A: a run").fill(f"2h..{wall}")
    tab.get_by_label("B: a run").fill("y")
    tab.get_by_role("button", name="Compare", exact=True).press("Enter")
    tab.get_by_role("region").wait_for()
    assert (given(tab, "a"), given(tab, "b")) == (f"2h..{wall}{offset}", "y")
    assert counted(tab) == "1 / 2"
    shown(tab, url, view="compare", a="2026-01-01..2026-01-01T12:15", b="y")
    assert tab.get_by_label("A: a run").input_value() == "2026-01-01Z..2026-01-01T12:15Z"
    assert counted(tab) == "1 / 2"


def test_what_is_no_time_is_sent_as_it_stands(tab, url):
    """The API says what is wrong with it."""
    shown(tab, url, view="requests")
    for text in ("2026-13-01T10:00", "10:00", "2026-01-01T25:00"):
        tab.get_by_label("Since").fill(text)
        tab.get_by_label("Since").press("Enter")
        tab.get_by_role("alert").filter(has_text=f"since '{text}'").wait_for()


def test_lengths_are_matched_where_the_link_or_the_box_says_so(tab, url):
    """The box is in the URL and the URL in the box; what is left out is counted."""
    shown(tab, url, view="compare", a="x", b="y")
    box = tab.get_by_label("Match lengths")
    assert (box.is_checked(), counted(tab)) == (False, "1 / 2")
    box.check()
    tab.get_by_role("button", name="Compare", exact=True).press("Enter")
    tab.wait_for_url("**match=true*")
    tab.get_by_text("Lengths matched: 0 of A and 1 of B left out.").wait_for()
    assert counted(tab) == "1 / 1"
    tab.reload()
    tab.get_by_text("Lengths matched: 0 of A and 1 of B left out.").wait_for()
    assert box.is_checked()
    box.uncheck()
    tab.get_by_role("button", name="Compare", exact=True).press("Enter")
    tab.wait_for_function("!location.search.includes('match')")
    tab.get_by_text("Lengths are not matched").wait_for()
