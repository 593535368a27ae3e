"""A list of requests on a terminal of 80 columns or more."""

from __future__ import annotations

from typing import Final

from rich.console import Console
from rich.text import Text

from dashboards.models.trace import Requests, RequestSummary
from dashboards.terminal.figures import plain_table
from dashboards.terminal.stage_style import colour
from dashboards.terminal.text import NO_DATA, fit, in_unit, is_ascii, number, unit_for
from dashboards.times import percent, to_iso
from dashboards.visible import told_apart

_WHOLE_IDS_FROM: Final = 115


def render_requests(found: Requests, console: Console) -> None:
    """Print the list; ids are cut on a narrow console, and still tell its traces apart."""
    width = console.width
    wide = width >= _WHOLE_IDS_FROM
    ascii_only = is_ascii(console)
    unit = unit_for(one.e2e_ns for one in found.requests)
    table = plain_table(width)
    table.add_column(Text("start (UTC)"), no_wrap=True)
    table.add_column(Text("trace"), no_wrap=True)
    table.add_column(Text("status"), no_wrap=True, max_width=9)
    for head in (f"E2E {unit.name}", "TTFT", *(("TPOT",) if wide else ()), "in", "out"):
        table.add_column(Text(head), justify="right", no_wrap=True)
    table.add_column(Text("longest stage"), no_wrap=True, min_width=13)
    cut = told_apart(one.trace_id for one in found.requests)
    for one in found.requests:
        start = to_iso(one.start_unix_ns)
        table.add_row(
            Text(start[:23].replace("T", " ") if wide else start[11:23]),
            Text(fit(one.trace_id if wide else cut(one.trace_id), 32, ascii_only=ascii_only)),
            Text(fit(one.status, 9, ascii_only=ascii_only), "" if one.status == "ok" else "red"),
            Text(in_unit(one.e2e_ns, unit)),
            Text(in_unit(one.ttft_ns, unit)),
            *((Text(in_unit(one.tpot_ns, unit)),) if wide else ()),
            Text(number(one.input_tokens)),
            Text(number(one.output_tokens)),
            _longest(one),
        )
    total = f"{number(found.total)} request{'s' * (found.total != 1)}"
    shown = f"{number(len(found.requests))} of {total}, by {found.sort}"
    console.print(table, Text(shown, "dim"), sep="\n")


def _longest(one: RequestSummary) -> Text:
    if one.longest_stage is None or one.longest_stage_ns is None:
        return Text(NO_DATA)
    share = f" {percent(one.longest_stage_ns / one.e2e_ns).replace(' ', '')}" if one.e2e_ns else ""
    return Text(f"{one.longest_stage}{share}", colour(one.longest_stage))
