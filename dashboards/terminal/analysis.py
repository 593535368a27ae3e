"""The analyses on a terminal of 80 columns or more."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from dashboards.models.analysis import Compare, WhatIf
from dashboards.terminal.figures import plain_table
from dashboards.terminal.text import decimals, in_unit, is_ascii, number, shown, unit_for
from dashboards.times import many


def render_whatif(found: WhatIf, console: Console) -> None:
    """Print the percentiles before and after, and what is not modelled."""
    table = plain_table(console.width)
    unit = unit_for(value for one in found.effects for value in (one.before_ns, one.after_ns))
    table.add_column(Text("figure"), no_wrap=True)
    for head in ("n", f"now {unit.name}", f"then {unit.name}"):
        table.add_column(Text(head), justify="right", no_wrap=True)
    for one in found.effects:
        name = f"{one.measure} {one.percentile}"
        cells = (name, number(one.n), in_unit(one.before_ns, unit), in_unit(one.after_ns, unit))
        table.add_row(*map(Text, cells))
    console.print(table)
    left = f"{many(found.requests, 'request')}; {found.ttft_left_out:,} left out of ttft"
    for line in (left, *found.assumptions):
        console.print(Text(shown(line, ascii_only=is_ascii(console)), "dim"))


def render_compare(found: Compare, console: Console) -> None:
    """Print A, B and the interval of B - A for every figure that has data."""
    ascii_only = is_ascii(console)
    table = plain_table(console.width)
    unit = unit_for(value for one in found.differences for value in (one.a_ns, one.b_ns))
    table.add_column(Text("figure"), no_wrap=True)
    for head in ("n A", "n B", f"A {unit.name}", "B", "B - A", "95 % from", "to"):
        table.add_column(Text(head), justify="right", no_wrap=True)
    for one in found.differences:
        if one.n_a or one.n_b:
            signed = [one.difference_ns, one.low_ns, one.high_ns]
            cells = [number(one.n_a), number(one.n_b)]
            cells += [in_unit(one.a_ns, unit), in_unit(one.b_ns, unit)]
            cells += ["-" if ns is None else decimals(ns / unit.ns, 3, "+z") for ns in signed]
            table.add_row(Text(f"{one.quantity} {one.percentile}"), *map(Text, cells))
    console.print(table)
    head = f"A: {found.a} ({many(found.requests_a, 'request')}), B: {found.b} ({found.requests_b:,})"
    if found.matched:
        head += f"; left out to match lengths: {found.left_out_a:,} of A, {found.left_out_b:,} of B"
    for line in (head, *found.reading, *found.warnings):
        console.print(Text(shown(line, ascii_only=ascii_only), "bold"))
    for line in found.assumptions:
        console.print(Text(shown(line, ascii_only=ascii_only), "dim"))
