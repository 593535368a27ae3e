"""What a user can choose reaches SQL as a value, whatever characters it has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

import pytest

from dashboards.grafana.sql import one_of
from tests.support.grafana import ALL, View
from tests.unit.dashboards.grafana.boards import documents, panel, panels, variables
from tests.unit.dashboards.grafana.conftest import HOUR, MS, UNTOUCHED, Grafana

MODELS = (
    "d'arc", "a--b", "x\\y", "ends\\", "no\\newline", 'say "hi"', "a,b", "a+b", "a b", "100%25",
    "a&var-model=b", "{x}", "${tag}", "'); DROP TABLE requests; --", "models/ünï:7b", "a\nb",
)  # fmt: skip
REQUESTS = panel("overview", "Requests").sql
ONE_EACH = panel("overview", "By model and route").sql
REPEATED = panel("overview", "$model")


@pytest.fixture(scope="module", autouse=True)
def filled(grafana: Grafana) -> Iterator[None]:
    """One request a model and one that died before it named any; tags hold the same texts."""
    grafana.store.requests(
        *({"Model": name, "Route": name, "Tags": {"t": name}, "decode": MS} for name in MODELS),
        {"Model": "", "Route": "", "decode": MS},
    )
    yield
    grafana.store.empty()


@pytest.mark.parametrize("url_style", [False, True], ids=["strict", "address bar"])
@pytest.mark.parametrize("name", MODELS)
def test_one_value(grafana: Grafana, name: str, url_style: bool) -> None:
    """A choice of one model, route or tag gives that one's request, in both of Grafana's encodings."""
    view = View(HOUR, url_style=url_style)
    for chosen in ({"model": [name]}, {"model": name}, {"route": [name]}, {"tag": [f"t={name}"]}):
        rows = grafana.ask(ONE_EACH, view, **chosen)
        assert [row["model"] for row in rows] == [name]


@pytest.mark.parametrize("url_style", [False, True], ids=["strict", "address bar"])
def test_several_values(grafana: Grafana, url_style: bool) -> None:
    """Each choice of two gives those two."""
    view = View(HOUR, url_style=url_style)
    for pair in pairwise(MODELS):
        rows = grafana.ask(ONE_EACH, view, model=list(pair))
        assert {row["model"] for row in rows} == set(pair)


@pytest.mark.parametrize("chosen", [[ALL], ALL, [], ""], ids=["all", "all as text", "none", "empty"])
def test_all_and_none(grafana: Grafana, chosen: str | list[str]) -> None:
    """All, and nothing chosen, take every request, also one without a model."""
    view = View(HOUR, options={"model": list(MODELS)})
    assert grafana.ask(REQUESTS, view, model=chosen)[0]["requests"] == len(MODELS) + 1


@pytest.mark.parametrize("chosen", [[ALL], list(MODELS[:2])], ids=["all", "two"])
@pytest.mark.parametrize("name", MODELS[:3])
def test_a_copy_of_a_repeated_panel_shows_its_own_value(
    grafana: Grafana, name: str, chosen: list[str]
) -> None:
    """Also while All is chosen: the macro, which sees the whole choice, would take every model."""
    assert REPEATED.whole["repeat"] == "model"
    counted = re.sub(r"SELECT.*?\nFROM", "SELECT\n  Model AS model\nFROM", REPEATED.sql, flags=re.DOTALL)
    counted = re.sub(r"\nGROUP BY.*", "", counted, flags=re.DOTALL)
    view = View(HOUR, {**UNTOUCHED, "model": chosen})
    assert grafana.rows(view.expand(counted, {"model": name})) == [{"model": name}]


def test_grafanas_own_quoting_would_not_do(grafana: Grafana) -> None:
    """``singlequote`` leaves backslashes: one name is read as another, one ends its string."""
    sql = "SELECT count() AS n FROM requests WHERE Model IN (${model:singlequote})"
    assert grafana.ask(sql, model=["no\\newline"]) == [{"n": 0}]
    with pytest.raises(Exception, match="62"):  # a syntax error
        grafana.ask(sql, model=["ends\\"])
    ours = f"SELECT count() AS n FROM requests WHERE {one_of('Model', 'model')}"
    assert grafana.ask(ours, model=["ends\\"]) == [{"n": 1}]


@pytest.mark.parametrize("box", ["find", "least_e2e", "traceId", "ttft_limit", "order", "percentile"])
@pytest.mark.parametrize("text", ["'", "\\", "') OR 1=1 --", "\\') OR 1=1 --"])
def test_no_text_becomes_sql(grafana: Grafana, box: str, text: str) -> None:
    """Whatever is typed into a box, the query stays one that ClickHouse can read."""
    used = [one for one in panels() if f"${{{box}:" in one.sql]
    assert used
    for one in used:
        sql = grafana.expanded(one.sql, **{box: text})
        assert text not in sql or text == "'"
        assert grafana.rows(f"EXPLAIN AST {sql}")


def every_sql() -> list[tuple[str, str]]:
    found = [(f"{one.board}: {one.title}", one.sql) for one in panels()]
    for board, document in documents().items():
        found += [(f"{board}: ${name}", sql) for name, sql in variables(document).items()]
    return found


@pytest.mark.parametrize(("where", "sql"), every_sql(), ids=[where for where, _ in every_sql()])
def test_lint(where: str, sql: str) -> None:
    """A variable stands in SQL only percent-encoded inside a decoder, or as a macro's name."""
    assert not re.search(r"IN\s*\(\s*\$", sql), "bare IN ($var)"
    assert not re.search(r"'\$(?!__all')\w|'\$\{\w+\}'", sql), "bare '${var}'"
    assert "[[" not in sql, "an old form of variables"
    rest = re.sub(r"decodeURLComponent\('\$\{\w+:percentencode\}'\)", "", sql)
    rest = re.sub(r"splitByChar\('&', '\$\{\w+:queryparam\}'\)", "", rest)
    rest = re.sub(r", \$\w+\)(?=[\s)]|$)", ")", rest)
    rest = re.sub(r"\$__(conditionalAll|timeFilter|timeInterval)\(", "", rest)
    rest = re.sub(r"\$__(fromTime|toTime|interval_s)\b", "", rest)
    assert "$" not in rest.replace("'$__all'", ""), rest
