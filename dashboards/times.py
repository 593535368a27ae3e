"""Times as users write and read them; inside, a time is whole nanoseconds since 1970 UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Final

from dashboards.errors import BadValueError

NS_PER_S: Final = 1_000_000_000
LATEST_UNIX_NS: Final = 2**63 - 1
"""2262-04-11: the last instant that fits the store's DateTime64(9)."""
BEYOND: Final = 1e12
"""From here on a figure is written by :func:`beyond`: as seconds these are 30,000 years."""

_UNIT_NS: Final = {
    "ms": NS_PER_S // 1000,
    "s": NS_PER_S,
    "m": 60 * NS_PER_S,
    "h": 3600 * NS_PER_S,
    "d": 86_400 * NS_PER_S,
    "w": 7 * 86_400 * NS_PER_S,
}
_AGO = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)(ms|s|m|h|d|w)", re.ASCII)
_ISO = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?)?"
    r"(Z|[+-]\d\d:?\d\d)?",
    re.ASCII | re.IGNORECASE,
)
_RULE: Final = (
    "give a length of time ago (90s, 30m, 1h, 2d, 1w), now, or an ISO time such as "
    "2026-01-31T12:00:00Z (UTC unless it says otherwise)"
)


def parse_when(text: str, name: str, now_unix_ns: int) -> int:
    """The instant ``text`` means: ``1h`` is an hour before ``now_unix_ns``.

    An ISO time without a zone is UTC, whatever the zone of this machine.

    Raises:
        BadValueError: naming ``name``, when it is neither or lies outside 1970-2262.
    """
    given = text.strip()
    if given.lower() == "now":
        return now_unix_ns
    if ago := _AGO.fullmatch(given):
        found = now_unix_ns - int(Decimal(ago[1]) * _UNIT_NS[ago[2]])
    elif iso := _ISO.fullmatch(given):
        found = _from_iso(iso, text, name)
    else:
        raise BadValueError(f"{name} {text!r} is not a time: {_RULE}")
    if not 0 <= found <= LATEST_UNIX_NS:
        raise BadValueError(f"{name} {text!r} lies outside 1970 to 2262: {_RULE}")
    return found


def _from_iso(parts: re.Match[str], text: str, name: str) -> int:
    day, minute, second, fraction, zone = parts.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{minute or '00:00'}:{second or '00'}")
        moment = moment.replace(tzinfo=_zone(zone))
    except ValueError as error:
        raise BadValueError(f"{name} {text!r} is no real date or time: {_RULE}") from error
    whole = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)
    return whole * NS_PER_S + int((fraction or "").ljust(9, "0"))


def _zone(text: str | None) -> timezone:
    if text is None or text.upper() == "Z":
        return UTC
    digits = text[1:].replace(":", "")
    hours, minutes = int(digits[:2]), int(digits[2:])
    if minutes > 59:
        raise ValueError(text)
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(-offset if text[0] == "-" else offset)


def to_iso(unix_ns: int) -> str:
    """``2026-01-01T12:00:00.000000001Z``: exact, and read back by :func:`parse_when`."""
    seconds, fraction = divmod(unix_ns, NS_PER_S)
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{fraction:09d}Z"


def to_text(unix_ns: int) -> str:
    """``2026-01-01 12:00:00 UTC``, for people; cut to the second."""
    return to_iso(unix_ns)[:19].replace("T", " ") + " UTC"


def in_words(ns: float) -> str:
    """A length of time with three digits for a sentence: ``12,345 s``, and ``1e+291 s``."""
    size = abs(ns)
    if 0 < size < NS_PER_S // 10_000:
        return f"{ns / 1000:.3g} µs" if size >= 999.5 else f"{ns:.3g} ns"
    return f"{plain(ns / NS_PER_S)} s"


def many(n: int, what: str) -> str:
    """``1 request``, ``2,000 requests``: a count with the word it counts."""
    told = f"{n:,}" if abs(n) < BEYOND else beyond(n)
    return f"{told} {what}" if n == 1 else f"{told} {what}s"


def plain(value: float, digits: int = 3) -> str:
    """``value`` with ``digits`` digits, or whole where it has more before the point: ``12,345``.

    Only what no measurement gives is written in powers of ten (:func:`beyond`).
    """
    if abs(value) >= BEYOND:
        return beyond(value)
    return f"{value:,.0f}" if abs(value) >= 10**digits - 0.5 else f"{value:.{digits}g}"


def percent(part: float, digits: int = 0) -> str:
    """``part`` as ``75 %``. Only 0 is told as 0 and only all as 100: ``99.9 %``, ``<0.1 %``."""
    value = part * 100
    for places in (digits, max(digits, 1)):
        told = f"{value:z.{places}f}"
        if not 0 < value < 100 or 0 < float(told) < 100:
            return f"{told} %"
    return "<0.1 %" if value < 1 else ">99.9 %"


def beyond(value: float) -> str:
    """Three digits and a power of ten, for a figure that would be a row of digits: ``1e+291``."""
    return f"{value:.3g}"
