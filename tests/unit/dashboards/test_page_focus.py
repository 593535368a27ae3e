"""The focus stays on the control that was used, when what holds it is drawn again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dashboards.api import build_api
from tests.support.browser import S, served, shown
from tests.support.clock import FakeClock
from tests.unit.dashboards.conftest import NOW_UNIX_NS, HandStore


@pytest.fixture(scope="module")
def url(module_store: HandStore) -> Iterator[str]:
    module_store.requests(*(
        {"start": n * S, "decode": (1 + n) * S, "Model": "ab"[n % 2], "Tags": {"run": "xy"[n % 2]}}
        for n in range(20)
    ))  # fmt: skip
    with served(build_api(module_store, None, FakeClock(unix_ns=NOW_UNIX_NS))) as at:
        yield at


def focused(tab) -> str:
    return tab.evaluate("document.activeElement.dataset.focus ?? document.activeElement.name ?? ''")


def settled(tab, part: str) -> None:
    """Until the address holds ``part`` and its view is there."""
    tab.wait_for_url(f"**{part}*")
    tab.wait_for_selector("main:not([aria-busy])")


def test_live_is_turned_on_and_off_by_the_same_key(tab, url):
    """Enter on Live: the button in its place has the focus, also after a refresh, and Enter turns it off."""
    shown(tab, url, view="requests")
    tab.get_by_role("button", name="Live: off").press("Enter")
    settled(tab, "live=1")
    assert focused(tab) == "live"
    with tab.expect_response("**/api/v1/requests?*"):  # the next refresh
        pass
    assert focused(tab) == "live"
    tab.keyboard.press("Enter")
    tab.get_by_role("button", name="Live: off").wait_for()
    assert focused(tab) == "live"


@pytest.mark.parametrize("view", ["overview", "slices", "requests", "why"])
def test_a_filter_that_is_entered_keeps_the_focus_and_the_cursor(tab, url, view):
    """Enter in a field, then more is typed where the cursor stood."""
    shown(tab, url, view=view)
    tab.get_by_label("Model").fill("a")
    tab.keyboard.press("Enter")
    settled(tab, "model=a")
    assert focused(tab) == "model-0"
    tab.keyboard.type("b")
    assert tab.get_by_label("Model").input_value() == "ab"


def test_show_keeps_the_focus_and_takes_that_of_a_field_that_is_gone(tab, url):
    """Enter on Show; and in the second field of a filter, emptied."""
    shown(tab, url, view="requests")
    tab.get_by_role("button", name="Show").press("Enter")
    settled(tab, "since=1h")
    assert focused(tab) == "show"
    tab.goto(f"{url}/?view=requests&model=a&model=b")
    tab.wait_for_selector("main:not([aria-busy])")
    tab.get_by_label("or Model 2").fill("")
    tab.keyboard.press("Enter")
    tab.get_by_text("10 of 10 requests").wait_for()
    assert focused(tab) == "show"


@pytest.mark.parametrize(
    ("view", "field", "text", "part"),
    [("goodput", "TTFT at most", "3s", "ttft=3s"), ("compare", "B: a run", "x", "b=x")],
)
def test_a_form_within_a_view_keeps_the_focus(tab, url, view, field, text, part):
    """Its field by Enter, then its button."""
    shown(tab, url, view=view, a="x", b="y")
    name = tab.get_by_label(field).get_attribute("name")
    tab.get_by_label(field).fill(text)
    tab.keyboard.press("Enter")
    settled(tab, part)
    assert focused(tab) == name
    button = tab.locator("main form button")
    button.press("Enter")
    tab.wait_for_selector("main:not([aria-busy])")
    assert tab.evaluate("document.activeElement.type") == "submit"


def test_what_is_asked_again_keeps_the_focus(tab, url):
    """A view that fails twice: the button that asks again; when it is gone, the view itself."""
    shown(tab, url, view="requests", since="sideways")
    tab.get_by_role("button", name="Ask again").press("Enter")
    tab.wait_for_selector("main:not([aria-busy])")
    assert focused(tab) == "again"
    tab.evaluate("history.replaceState(null, '', '?view=requests')")
    tab.keyboard.press("Enter")
    tab.get_by_text("20 of 20 requests").wait_for()
    assert tab.evaluate("document.activeElement.id") == "main"


def test_a_row_keeps_the_focus_when_another_comes_above_it(tab, url, module_store):
    """In a live list the same request's link, and not the one in its place."""
    shown(tab, url, view="requests", live="1", model="a")
    link = tab.locator("tbody a").first
    href = link.get_attribute("href")
    link.focus()
    module_store.requests({"start": 100 * S, "decode": S, "Model": "a"})
    tab.get_by_text("11 of 11 requests").wait_for()
    assert tab.evaluate("document.activeElement.getAttribute('href')") == href
    assert tab.locator("tbody a").nth(1).get_attribute("href") == href
