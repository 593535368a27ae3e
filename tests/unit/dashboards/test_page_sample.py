"""The page over more requests than are read: each figure of a part says so beside it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dashboards.api import build_api
from dashboards.queries.base import QueryLimits
from tests.support.browser import S, asked, seconds, served, shown
from tests.support.clock import FakeClock
from tests.unit.dashboards.conftest import NOW_UNIX_NS, HandStore


@pytest.fixture(scope="module")
def url(module_store: HandStore) -> Iterator[str]:
    """Two thousand requests of two tenants, of which about two hundred are read."""
    module_store.requests(*(
        {"start": n * S, "queue": S // 10, "prefill": S // 2, "decode": (1 + n * 7 % 11) * S,
         "FirstTokenNs": S // 2 + S // 10, "InputTokens": 100, "OutputTokens": 10,
         "Tags": {"tenant": f"t{n % 2}"}}
        for n in range(2000)
    ))  # fmt: skip
    clock = FakeClock(unix_ns=NOW_UNIX_NS)
    with served(build_api(module_store, None, clock, QueryLimits(most_read=200))) as at_url:
        yield at_url


def test_slices_say_of_how_many_their_times_are(tab, url):
    """n is of all, the times of those read, which is a column; and they are the API's."""
    shown(tab, url, view="slices", by="tag:tenant")
    answer = asked(url, "/summary", since="1h", by="tag:tenant")
    part = answer["sampled"]
    assert (part["one_in"], part["of"]) == (10, 2000)
    basis = tab.locator("[data-test=basis]").inner_text()
    assert f"are those of {part['read']:,} of 2,000 requests" in basis
    assert "one in 10" in basis
    rows = tab.get_by_role("region", name="Slices by tag:tenant").locator("tbody tr")
    for n, group in enumerate(answer["groups"]):
        cells = rows.nth(n).locator("th, td").all_inner_texts()
        e2e = next(m for m in group["measures"] if m["name"] == "e2e")
        assert cells[:3] == [group["key"]["tag:tenant"], f"{group['requests']:,}", str(group["read"])]
        assert cells[5] == seconds(e2e["p50_ns"])
    assert sum(group["requests"] for group in answer["groups"]) == 2000


def test_all_of_them_are_read_when_asked_for(tab, url):
    """The link beside the sentence keeps the filters and asks for the exact answer."""
    shown(tab, url, view="slices", by="tag:tenant")
    tab.get_by_role("link", name="Read all of them instead").click()
    tab.wait_for_url("**exact=true*")
    tab.locator("[data-test=basis]").wait_for(state="detached")
    answer = asked(url, "/summary", since="1h", by="tag:tenant", exact="true")
    assert (answer["exact"], answer["sampled"]) == (True, None)


@pytest.mark.parametrize(("view", "path", "more"), [
    ("whatif", "/whatif", {"change": "decode=-20%"}), ("why", "/attribution", {"measure": "e2e"}),
])  # fmt: skip
def test_analyses_of_a_part_say_so_beside_their_figures(tab, url, view, path, more):
    """In the sentence that the API gives."""
    shown(tab, url, view=view)
    answer = asked(url, path, since="1h", **more)
    lines = [x for x in (*answer.get("reading", []), *answer["assumptions"]) if x.startswith("Read: ")]
    assert lines == [lines[0]]
    assert f"{answer['sampled']['read']:,} of 2,000 requests" in lines[0]
    tab.get_by_text(lines[0], exact=True).first.wait_for()
