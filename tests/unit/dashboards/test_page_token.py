"""The page before an API that asks for a token."""

from __future__ import annotations

import pytest

from dashboards.api import build_api
from tests.support.browser import served

TOKEN = "0123456789abcdef-token"


@pytest.fixture(scope="module")
def url(module_store):
    """The page over an empty store, with a token."""
    with served(build_api(module_store, None, token=TOKEN)) as at:
        yield at


def test_the_page_asks_for_the_token_and_goes_on_with_it(tab, url):
    """A wrong one is asked for again, the right one is kept for this tab alone."""
    tab.goto(url)
    field = tab.get_by_label("Token", exact=True)
    field.fill("not-the-token-at-all")
    field.press("Enter")
    tab.get_by_role("alert").get_by_text("asks for a token").wait_for()
    field.fill(TOKEN)
    tab.get_by_role("button", name="Use it").click()
    tab.get_by_text("No request matches").wait_for()
    assert tab.evaluate("localStorage.length") == 0
    assert TOKEN not in tab.url


def test_a_token_in_the_fragment_is_taken_out_of_the_url(tab, url):
    """It is used, and neither the address bar nor the history holds it."""
    asked: list[str] = []
    tab.on(
        "request", lambda request: asked.append(request.url) if "/?" not in request.url else None
    )
    tab.goto(f"{url}/?view=requests#token={TOKEN}")
    tab.get_by_text("No request matches").wait_for()
    assert tab.url == f"{url}/?view=requests"
    assert any("/api/v1/requests" in one for one in asked)
    assert not any(TOKEN in one for one in asked)
