"""Tables of the HTML report, and what stands in their cells. All of it is text, escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from dashboards.times import BEYOND, NS_PER_S, beyond
from dashboards.visible import MOST_TITLE_CHARS, short, visible


@dataclass(frozen=True, slots=True)
class Cell:
    """A figure, and in small letters below it its interval, as :func:`bounds` writes it."""

    text: str
    below: str = ""


def shown(text: str) -> str:
    """``text`` as HTML that shows it character by character."""
    return escape(visible(text))


def named(tag: str, text: str, attributes: str = "") -> str:
    """An element with a name in it: a long one is cut, with more of it in the title."""
    title = "" if text == short(text) else f' title="{shown(short(text, MOST_TITLE_CHARS))}"'
    return f"<{tag}{attributes}{title}>{shown(short(text))}</{tag}>"


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str | Cell]]) -> str:
    """A table that is scrolled sideways where it is too wide; a row's first cell is its head."""
    head = "".join(named("th", one, ' scope="col"') for one in heads)
    body = "".join(f"<tr>{''.join(_row(row))}</tr>" for row in rows)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{shown(short(caption))}"><table>'
        f"{named('caption', caption)}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _row(row: Sequence[str | Cell]) -> list[str]:
    return [_cell("th", row[0], ' scope="row"'), *(_cell("td", cell) for cell in row[1:])]


def _cell(tag: str, cell: str | Cell, attributes: str = "") -> str:
    if isinstance(cell, str):
        return named(tag, cell, attributes)
    low, _, high = cell.below.partition("– ")  # broken behind the dash alone
    parts = (f'<span class="whole">{shown(one)}</span>' for one in (f"{low}–", high))
    below = f"<small>{' '.join(parts)}</small>" if high else ""
    return f"<{tag}{attributes}>{shown(cell.text)}{below}</{tag}>"


def time(ns: int | None) -> str:
    """As the page writes it; no data is said."""
    if ns is None:
        return "no data"
    if ns >= BEYOND * NS_PER_S:
        return f"{beyond(ns / NS_PER_S)} s"
    for unit, seconds in (("d", 86_400), ("h", 3600)):
        if ns >= seconds * NS_PER_S:
            return f"{ns / (seconds * NS_PER_S):.2f} {unit}"
    if ns >= 60 * NS_PER_S:
        return f"{ns / (60 * NS_PER_S):.1f} min"
    if ns >= NS_PER_S:
        return f"{ns / NS_PER_S:.2f} s"
    if ns >= 1_000_000:
        return f"{ns / 1e6:.1f} ms"
    return f"{ns / 1e3:.0f} µs" if ns >= 1000 or ns == 0 else f"{ns} ns"


def bounds(low: int | None, high: int | None) -> str:
    """An interval, the unit once where both have the same; an open side is a question mark."""
    first, last = ("?" if ns is None else time(ns) for ns in (low, high))
    same = first.partition(" ")[2] == last.partition(" ")[2]
    return f"{first.partition(' ')[0] if same else first} – {last}"
