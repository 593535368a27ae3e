"""The report on terminals of several widths."""

from __future__ import annotations

import io
import re

import pytest
from rich.cells import cell_len

from dashboards.filters import Filters, parse_filters
from dashboards.queries.report import report
from dashboards.terminal.console import make_console
from dashboards.terminal.report import render_report
from tracer import semconv
from tracer.stages import Stage

MS = 1_000_000
NOW = 1_767_272_400_000_000_000
HOSTILE = "[red]ev\x1b[31mil[/red]\n\u202egnp.\x9b2J模型"


def text_of(found, width=100, encoding="utf-8"):
    """What a pipe of that encoding receives."""
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    render_report(found, make_console(file, width))
    file.flush()
    return raw.getvalue().decode(encoding)


@pytest.fixture(scope="module")
def busy(module_store):
    """Forty requests, of which the two slowest waited in the queue, and some losses."""
    rows = []
    for i in range(40):
        slow = i >= 38
        rows.append(
            {
                "start": i * 100 * MS,
                "prompt": 2 * MS,
                "HandoffNs": 1 * MS,
                "queue": 900 * MS if slow else 10 * MS,
                "decode": 88 * MS,
                "FirstTokenNs": 912 * MS if slow else 22 * MS,
                "ItlNs": [8 * MS] * 10,
                "ItlKind": "token",
                "OutputTokens": 11,
                "CachedTokens": 64 if i % 2 else 0,
                "Model": HOSTILE if i % 4 else "plain",
                "Warm": i > 4,
                "ColdReason": "" if i > 4 else "first_minute",
                "Status": "error" if i == 7 else "ok",
                "ErrorType": "bad\x1b]0;x\x07" if i == 7 else "",
            }
        )
    module_store.requests(*rows)
    module_store.told(semconv.METRIC_SPANS_RECEIVED, 400, at=MS)
    module_store.told(semconv.METRIC_SPANS_DROPPED, 3, at=MS, reason="queue_full")
    return module_store


@pytest.fixture(scope="module")
def whole(busy):
    """The report of all of them."""
    return report(busy, Filters(), now_unix_ns=NOW)


@pytest.fixture(scope="module")
def grouped(busy):
    """The report by model and cached."""
    return report(busy, Filters(), ["model", "cached"], now_unix_ns=NOW)


@pytest.mark.parametrize("width", [80, 100, 160])
def test_no_line_is_wider_than_the_console_or_obeyed_by_it(width, grouped):
    """Hostile model names are shown, not obeyed, and every line fits."""
    text = text_of(grouped, width)
    assert max(cell_len(line) for line in text.splitlines()) <= width
    assert all(one.isprintable() for line in text.split("\n") for one in line)
    assert "\\x1b]0;x\\x07 1" in text
    assert "[red]ev\\x1b" in text
    assert "…" not in text.split("by model, cached")[0]  # no head or figure is cut


@pytest.mark.parametrize("width", [80, 100, 160])
def test_the_figures_are_there_with_their_units(width, whole):
    """n, percentiles in milliseconds, shares, and what is missing, on any width."""
    text = text_of(whole, width)
    queue = next(line for line in text.splitlines() if line.startswith("queue"))
    assert queue.split() == [
        "queue",
        "40",
        "10.0",
        "10.0",
        "54.5",
        "~900",
        "900",
        *queue.split()[-2:],
    ]
    assert "ms" in text
    tool = next(line for line in text.splitlines() if line.startswith("tool"))
    assert tool.split() == ["tool", "0", "40", *["-"] * 5, "0.0", "0.0"]
    itl = next(line for line in text.splitlines() if line.startswith("ITL (gaps)"))
    assert itl.split()[2:5] == ["400", "8.00", "8.00"]
    assert re.search(r"^- handoff +40 +1\.00", text, re.MULTILINE)
    for words in (
        "requests     40: 39 ok, 1 error, 0 cancelled",
        "mean 1.",
        "cached       20 yes, 20 no, 0 unknown",
        "35 warm, 5 cold (first_minute 5), 0 unknown",
        "lost         3 spans at the senders (queue_full 3)",
        "output tokens/s",
        "~ fewer values than this percentile needs",
    ):
        assert words in text


def test_the_shown_shares_add_up_to_a_hundred(whole):
    """Rounded percents of the stages are dealt out so that they add up."""
    text = text_of(whole)
    names = [str(stage) for stage in Stage]
    rows = [
        line.split() for line in text.splitlines() if line.split()[:1] and line.split()[0] in names
    ]
    rows = rows[:8]
    assert [row[0] for row in rows] == names
    for place in (-2, -1):
        assert sum(round(float(row[place]) * 10) for row in rows) == 1000


def test_the_bar_shows_each_stage_by_its_letter(whole):
    """Without colour the shares can still be read, for all and for the slowest."""
    lines = text_of(whole).splitlines()
    everyone = next(line for line in lines if line.startswith("all "))
    slowest = next(line for line in lines if line.startswith("slowest 5 %"))
    assert len(everyone) == len(slowest)
    assert everyone.count("d") > everyone.count("q")
    assert slowest.count("q") > slowest.count("d")
    assert any("q queue" in line and "d decode" in line for line in lines)


def test_it_ends_with_what_the_figures_say(whole):
    """The last lines name the largest stage, what grows in the tail, and the losses."""
    text = " ".join(text_of(whole).split())
    assert text.endswith(
        "decode holds 61 % of the time. Among the slowest 5 % (n=2) queue grows from 38 % to 91 %: "
        "requests wait for the engine; look at concurrency. "
        "At least 3 spans or records are lost: the slowest may be among them."
    )


def test_few_requests_get_no_word_on_their_tail(store):
    """With fewer than twenty the slowest 5 % is one request, and the report says so."""
    store.requests({"decode": 5 * MS})
    text = " ".join(text_of(report(store, Filters(), now_unix_ns=NOW)).split())
    assert text.endswith(
        "With 1 request nothing can be said about the slowest 5 %: 20 are the least."
    )
    assert "no sender has told its losses: not known" in text


def test_no_requests_is_said_in_a_sentence(store):
    """An empty report has no table of zeros."""
    filters = parse_filters(now_unix_ns=NOW, since="1h")
    text = text_of(report(store, filters, now_unix_ns=NOW))
    assert "requests     0: 0 ok" in text
    assert "stage" not in text.split("*")[0]
    assert text.rstrip().endswith("widen the window or drop a filter.")


def test_cut_names_of_groups_are_numbered(busy, grouped):
    """Two groups whose names are cut alike can still be told apart."""
    text = text_of(grouped, 80)
    tables = text.split("\nE2E ")[-1]
    assert re.search(r"^1:\[red\]ev", tables, re.MULTILINE)
    assert re.search(r"^2:\[red\]ev", tables, re.MULTILINE)
    short = text_of(report(busy, Filters(), ["cached"], now_unix_ns=NOW), 80)
    assert re.search(r"^yes +20 ", short, re.MULTILINE)


def test_each_quantity_has_a_table_of_the_groups(busy):
    """E2E, TTFT, ITL and the stages that hold time, one line a group; the rest is named."""
    text = text_of(report(busy, Filters(), ["warm"], now_unix_ns=NOW))
    for head in ("E2E", "TTFT", "ITL (gaps)", "queue", "decode"):
        assert re.search(rf"^{re.escape(head)} .*\nby warm ", text, re.MULTILINE), head


def test_groups_left_out_are_told(busy, monkeypatch, whole):
    """The report never passes a part for the whole."""
    monkeypatch.setattr("dashboards.queries.report.MOST_GROUPS", 1)
    text = text_of(report(busy, Filters(), ["model"], now_unix_ns=NOW))
    assert "smaller groups left out: 1, with 10 requests" in text


def test_off_a_terminal_there_is_no_colour_and_ascii_is_enough(busy):
    """A pipe gets no escape codes; an ASCII one gets no character it cannot take."""
    found = report(busy, Filters(), ["model"], now_unix_ns=NOW)
    assert "\x1b" not in text_of(found)
    assert "\\u6a21" in text_of(found, encoding="ascii")


def test_on_a_terminal_stages_have_their_colours(monkeypatch, whole):
    """Colours are used where they can be seen."""

    class Terminal(io.StringIO):
        encoding = "utf-8"

        def isatty(self):
            return True

    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    file = Terminal()
    render_report(whole, make_console(file, 100))
    assert "\x1b[32mdecode" in file.getvalue()
    assert "\x1b]0" not in file.getvalue()
