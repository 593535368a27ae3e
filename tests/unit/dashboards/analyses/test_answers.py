"""The analyses over HTTP, on the command line and on the terminal."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from dashboards.analyses.goodput import parse_limits
from dashboards.api import build_api
from dashboards.client import CollectorClient
from dashboards.filters import Filters
from dashboards.prices import Price, Prices
from dashboards.source import StoreSource
from stagelens.cli import cli
from tests.support.clock import FakeClock
from tests.unit.dashboards.analyses.test_critical_path import stored
from tests.unit.dashboards.analyses.test_goodput import GOOD, PRICES, eight, outcome
from tests.unit.dashboards.analyses.test_interference import known_case
from tests.unit.dashboards.analyses.test_throughput import three_levels
from tests.unit.dashboards.test_read_api import Running

NOW = 1_767_268_800_000_000_000 + 3600 * 10**9
CLOCK = FakeClock(unix_ns=NOW)
LIMITS = parse_limits("500ms", None, "5s")
ALL = Filters()


@pytest.fixture(scope="module")
def filled(module_store):
    """The hand-worked cases of all analyses in one store."""
    eight(module_store)
    known_case(module_store)
    three_levels(module_store)
    stored(module_store)
    module_store.requests({**GOOD, "TraceId": "f" * 32, "Model": "[red]\x1b[31m"})
    outcome(module_store, "f" * 32, 9, success=True, score=1)
    return module_store


@pytest.fixture(scope="module")
def served(filled):
    """The API over it, with a price table."""
    with Running(build_api(filled, None, clock=CLOCK, prices=PRICES)) as running:
        yield running


QUESTIONS = [
    lambda s: s.attribution(ALL, "e2e", ["model"]),
    lambda s: s.attribution(ALL, "ttft"),
    lambda s: s.path(ALL, ["model"]),
    lambda s: s.trace_path(f"{1:032x}"),
    lambda s: s.interference(ALL, ["cached"]),
    lambda s: s.cache(ALL, ["model"]),
    lambda s: s.goodput(ALL, LIMITS, ["status"]),
    lambda s: s.goodput(ALL, LIMITS, [], Prices(models={"*": Price(gpu_per_hour=1)})),
    lambda s: s.throughput(ALL, ["tag:x"]),
]


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_client_gets_what_the_store_answers(served, filled, question):
    """Over HTTP and in process the same answer, to the last field."""
    here = StoreSource(filled, CLOCK, prices=PRICES)
    assert question(CollectorClient(served.url)) == question(here)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("attribution?measure=x", "measure 'x' is not known"),
        ("path?by=modle", "by 'modle' is not a dimension"),
        ("goodput", "no limit was given"),
        ("goodput?e2e=fast", "write it as 500ms"),
        ("goodput?e2e=1s&prices=%7B", "prices: the table cannot be used"),
        ("interference?measure=x", "parameter 'measure' is not known here"),
        ("throughput?operation=gone", "operation 'gone' is not known"),
        ("traces/abab/path?by=x", "parameter 'by' is not known here"),
    ],
)
def test_bad_questions_are_400_with_a_sentence(served, path, words):
    """No parameter is passed over."""
    code, kind, body = served.get(f"/api/v1/{path}")
    assert (code, kind) == (400, "application/json")
    assert words in json.loads(body)["detail"]


SINCE = ["--since", "2026-01-01T00:00:00Z"]
COMMANDS = [
    (["attribution", *SINCE], "difference"),
    (["attribution", "--measure", "ttft", "--by", "model", *SINCE], "rest"),
    (["path", "--by", "model", *SINCE], "execute_tool weather"),
    (["path", f"{1:032x}"], "on the path"),
    (["interference", *SINCE], "causer"),
    (["cache", *SINCE], "us a token"),
    (["goodput", "--ttft", "500ms", "--e2e", "5s", *SINCE], "Tasks with an outcome: 1, 1 correct"),
    (["throughput", *SINCE], "one user"),
]


@pytest.mark.parametrize(("command", "says"), COMMANDS)
def test_each_command_prints_a_table_and_json(served, command, says):
    """The table is plain text whatever the names hold; JSON is one document with a version."""
    told = [*command, "--collector", served.url]
    table = CliRunner().invoke(cli, told, env={"COLUMNS": "80", "TERM": "dumb"})
    assert table.exit_code == 0, table.output
    assert says in table.stdout
    assert "\x1b[31m" not in table.stdout
    assert max(map(len, table.stdout.splitlines())) <= 100
    found = CliRunner().invoke(cli, [*told, "--format", "json"])
    assert json.loads(found.stdout)["version"] == 1


def test_prices_from_a_file_reach_the_collector(served, tmp_path):
    """`--prices FILE` outranks the collector's own table."""
    file = tmp_path / "p.yaml"
    file.write_text("currency: CHF\nmodels: {'*': {gpu_per_hour: 1}}")
    told = ["goodput", "--e2e", "5s", "--prices", str(file), *SINCE, "--collector", served.url]
    found = CliRunner().invoke(cli, [*told, "--format", "json"])
    assert json.loads(found.stdout)["overall"]["cost"]["currency"] == "CHF"
