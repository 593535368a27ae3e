"""How users write times."""

from __future__ import annotations

import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards.errors import BadValueError
from dashboards.times import LATEST_UNIX_NS, in_words, parse_when, plain, to_iso, to_text

NOW = 1_767_268_800_000_000_000  # 2026-01-01T12:00:00Z
S = 1_000_000_000


@pytest.mark.parametrize(
    ("text", "ago_ns"),
    [
        ("1h", 3600 * S),
        ("30m", 1800 * S),
        ("2d", 172_800 * S),
        ("1w", 604_800 * S),
        ("90s", 90 * S),
        ("1.5h", 5400 * S),
        ("250ms", S // 4),
        ("now", 0),
        (" 1h ", 3600 * S),
    ],
)
def test_a_length_of_time_is_that_long_ago(text, ago_ns):
    """`1h` means an hour before now, to the nanosecond."""
    assert parse_when(text, "since", NOW) == NOW - ago_ns


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-01T12:00:00Z",
        "2026-01-01T12:00",
        "2026-01-01 12:00:00",
        "2026-01-01T21:00:00+09:00",
        "2026-01-01T07:00:00.000-0500",
        "2026-01-01t12:00:00z",
    ],
)
def test_an_iso_time_is_utc_unless_it_names_a_zone(text):
    """The same instant written in several ways is the same nanosecond."""
    assert parse_when(text, "since", NOW) == NOW


def test_a_date_is_its_first_instant_in_utc():
    """A bare date is midnight UTC."""
    assert parse_when("2026-01-01", "since", NOW) == NOW - 12 * 3600 * S


@pytest.mark.parametrize("zone", ["Asia/Shanghai", "America/New_York"])
def test_the_zone_of_this_machine_changes_nothing(zone, monkeypatch):
    """A naive time means the same instant wherever the machine stands (case 76)."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert parse_when("2026-01-01T12:00:00.000000001", "since", NOW) == NOW + 1
        assert to_iso(NOW + 1) == "2026-01-01T12:00:00.000000001Z"
    finally:
        monkeypatch.undo()
        time.tzset()
    assert "TZ" not in os.environ or os.environ["TZ"] != zone


@given(st.integers(min_value=0, max_value=LATEST_UNIX_NS))
def test_iso_text_reads_back_exactly(unix_ns):
    """Writing an instant and reading it again gives the same nanosecond."""
    assert parse_when(to_iso(unix_ns), "since", 0) == unix_ns


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "1",
        "-1h",
        "1 h",
        "1y",
        "١h",
        "2026-02-30",
        "2026-01-01T25:00:00",
        "2026-01-01T12:00:00+99:99",
        "2026-01-01T12:00:00.0000000001Z",
        "1969-12-31",
        "9999-01-01",
        "999999999999w",
        "1h; DROP TABLE requests",
    ],
)
def test_a_bad_time_is_one_sentence_with_a_way_out(text):
    """The error names the option, the value given and what would be taken."""
    with pytest.raises(BadValueError) as caught:
        parse_when(text, "since", NOW)
    message = str(caught.value)
    assert message.startswith(f"since {text!r} ")
    assert "30m" in message
    assert "\n" not in message


def test_times_for_people_name_their_zone():
    """No time is shown without its zone."""
    assert to_text(NOW + 999_999_999) == "2026-01-01 12:00:00 UTC"


@pytest.mark.parametrize(
    ("ns", "said"),
    [
        (0, "0 s"), (4, "4 ns"), (999.7, "1 µs"), (34_500, "34.5 µs"), (200_000_000, "0.2 s"),
        (999_400_000_000, "999 s"), (9_034_000_000_000, "9,034 s"), (-2_500_000_000_000, "-2,500 s"),
    ],
)  # fmt: skip
def test_a_length_of_time_in_a_sentence_has_no_power_of_ten(ns, said):
    """Three digits, or whole seconds; a small one has a small unit."""
    assert in_words(ns) == said


def test_a_rate_in_a_sentence_has_no_power_of_ten():
    """24,600 tokens a second is written out."""
    assert (plain(24_600.4, 4), plain(24.61, 4), plain(999.6)) == ("24,600", "24.61", "1,000")
