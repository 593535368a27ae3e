"""Small pieces of text."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from dashboards.terminal.console import PIPED_WIDTH, make_console
from dashboards.terminal.figures import NARROWEST
from dashboards.terminal.tables import label_of
from dashboards.terminal.text import (
    MS,
    SECONDS,
    apportion,
    duration,
    fit,
    in_unit,
    number,
    percents,
    rate,
    unit_for,
)
from dashboards.times import percent
from dashboards.visible import quoted, told_apart, visible


@given(st.text(), st.integers(0, 40), st.booleans())
def test_any_text_becomes_printable_and_fits(text, width, ascii_only):
    """Nothing a terminal could obey remains, and no cell more than asked is used."""
    assert visible(text).isprintable()
    found = fit(text, width, ascii_only=ascii_only)
    assert cell_len(found) <= width
    assert found.isprintable()
    assert found.isascii() or not ascii_only


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain [bold]x[/bold]", "plain [bold]x[/bold]"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\x9b31m\x07", "\\x9b31m\\x07"),
        ("\u202eabc\u2066", "\\u202eabc\\u2066"),
        ("\ud800", "\\ud800"),
        ("g\u200dpt\u3164\u00ad", "g\\u200dpt\\u3164\\xad"),
        ("模型 é", "模型 é"),
    ],
)
def test_what_could_be_obeyed_is_shown_instead(text, shown):
    """Escapes, line ends, C1 controls, direction marks and surrogates are spelled out."""
    assert visible(text) == shown


@pytest.mark.parametrize(
    ("ns", "shown"),
    [
        (None, "-"),
        (0, "0"),
        (1, "<0.0001"),
        (400_000, "0.400"),
        (1_500_000, "1.50"),
        (41_000, "0.0410"),
        (15_240_000, "15.2"),
        (99_960_000, "100"),
        (228_400_000, "228"),
        (12_345_678_901, "12,346"),
    ],
)
def test_a_small_time_is_never_shown_as_zero(ns, shown):
    """Three digits, and sub-millisecond times stay visible (case 83)."""
    assert in_unit(ns, MS) == shown


def test_units_are_chosen_by_the_longest():
    """A table is in seconds only where milliseconds would take more than five digits."""
    assert unit_for([1, None, 99 * SECONDS.ns]) is MS
    assert unit_for([1, 100 * SECONDS.ns]) is SECONDS
    assert unit_for([]) is MS
    assert duration(1_500_000_000) == "1.50 s"
    assert duration(1_500_000) == "1.50 ms"
    assert duration(None) == "no data"


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9), st.integers(0, 1000))
def test_apportioned_places_add_up(weights, places):
    """Shares of a whole are dealt out without a place too many or too few."""
    if not sum(weights):
        return
    shares = [one / sum(weights) for one in weights]
    dealt = apportion(shares, places)
    assert sum(dealt) == places
    assert all(abs(got - share * places) <= 1 for got, share in zip(dealt, shares, strict=True))


def test_percents_of_no_data_are_no_numbers():
    """Shares that are not known are not shown as 0."""
    assert percents([None, None]) == ["-", "-"]
    assert percents([1 / 3, 1 / 3, 1 / 3]) == ["33.4", "33.3", "33.3"]
    assert percents([0.25]) == ["25.0"]


def test_numbers_are_short():
    """Counts and rates take few cells."""
    assert [number(n) for n in (None, 0, 999_999, 20_270_000)] == ["-", "0", "999,999", "20.27M"]
    assert [rate(r) for r in (None, 0.0123, 1.5, 12.34, 1234.5)] == [
        "no data",
        "0.0123",
        "1.50",
        "12.3",
        "1,234",
    ]


def test_a_pipe_has_a_width_of_its_own(monkeypatch):
    """Off a terminal a hundred columns are written, unless the caller says otherwise."""
    monkeypatch.delenv("COLUMNS", raising=False)
    assert make_console(io.StringIO()).width == PIPED_WIDTH
    assert make_console(io.StringIO(), 80).width == 80
    assert make_console(io.StringIO(), 50).width == NARROWEST
    monkeypatch.setenv("COLUMNS", "40")
    assert make_console(io.StringIO()).width == NARROWEST


def test_ids_that_stand_together_are_told_apart():
    """By 16 digits of their beginning; of small ones by their ends too; whole at last."""
    assert [told_apart(["ab" * 16, "cd" * 16])(one) for one in ("ab" * 16,)] == ["ab" * 8]
    small = [f"{n:032x}" for n in (1, 2)]
    assert list(map(told_apart(small), small)) == ["0000000..0000001", "0000000..0000002"]
    middles = ["a" * 16 + "b" + "a" * 15, "a" * 32]
    assert list(map(told_apart(middles), middles)) == middles
    assert told_apart([])("not known") == "not known"


def test_a_share_is_told_as_none_or_all_only_where_it_is():
    """In a sentence with a digit more where it would round to that, in a column by a bound."""
    told = [percent(part) for part in (0, 1 / 240, 0.00001, 0.5, 0.999, 0.99999, 1, -0.0001, 1.5)]
    assert told == ["0 %", "0.4 %", "<0.1 %", "50 %", "99.9 %", ">99.9 %", "100 %", "0 %", "150 %"]
    assert percent(0.0001, 1) == "<0.1 %"
    assert percents([0.9999, 0.0001]) == [">99.9", "<0.1"]
    assert percents([1.0, 0.0]) == ["100.0", "0.0"]


def test_a_value_that_shows_nothing_is_quoted():
    """An empty tag or one of blanks is told apart from what is not known."""
    assert [quoted(value) for value in ("", " ", "x y")] == ['""', '" "', "x y"]
    assert label_of({"tag:t": "", "model": None}) == '"", (unknown)'
