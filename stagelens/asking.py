"""The commands that ask what differs and what would help: `compare`, `whatif`."""

from __future__ import annotations

from typing import Any

import click

from stagelens.reading import filter_options, show, source_options


@click.command()
@click.argument("changes", nargs=-1, required=True, metavar="STAGE=CHANGE...")
@filter_options
@source_options
def whatif(changes: tuple[str, ...], **given: Any) -> None:  # noqa: ANN401
    """Percentiles of E2E and TTFT had stages changed: decode=-20% queue=+50ms."""
    from dashboards.analyses.whatif import parse_changes
    from dashboards.terminal.analysis import render_whatif

    parse_changes(changes)
    show(given, lambda source, filters: source.whatif(filters, changes), render_whatif)


@click.command()
@click.argument("a")
@click.argument("b")
@click.option("--match", is_flag=True, help="Cut both to the same mix of lengths.")
@filter_options
@source_options
def compare(a: str, b: str, match: bool, **given: Any) -> None:  # noqa: ANN401
    """Two runs (NAME) or windows (2h..1h, or ISO times) per stage, with intervals.

    A run is looked for at all times unless --since is given.
    """
    from dashboards.terminal.analysis import render_compare

    if click.get_current_context().get_parameter_source("since") is not (
        click.core.ParameterSource.COMMANDLINE
    ):
        given["since"] = None
    show(given, lambda source, filters: source.compare(filters, a, b, match=match), render_compare)
