"""The commands that ask why it is slow and what it costs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from stagelens.reading import filter_options, show, source_options
from stagelens.settings_file import read_mapping

F = TypeVar("F", bound=Callable[..., object])


def by_option(command: F) -> F:
    """``--by``, as the report has it."""
    return click.option("--by", default="", help="Slice by model, cached, tag:NAME, …")(command)


@click.command()
@filter_options
@click.option("--measure", type=click.Choice(["e2e", "ttft"]), default="e2e", show_default=True)
@click.option("--by", default="", help="Dimensions to compare; all of them unless given.")
@source_options
def attribution(measure: str, by: str, **given: Any) -> None:  # noqa: ANN401
    """What makes the slow ones slow: the slowest 5 % against the middle ones."""
    from dashboards.queries.dimensions import parse_by
    from dashboards.terminal.causes import render_attribution

    groups = parse_by(by)
    show(given, lambda source, filters: source.attribution(filters, measure, groups), render_attribution)


@click.command()
@click.argument("trace_id", required=False)
@filter_options
@by_option
@source_options
def path(trace_id: str | None, by: str, **given: Any) -> None:  # noqa: ANN401
    """The critical path of one trace, or of many requests taken together."""
    from dashboards.queries.dimensions import parse_by
    from dashboards.terminal.causes import render_path, render_trace_path

    groups = parse_by(by)
    if trace_id is not None:
        show(given, lambda source, _: source.trace_path(trace_id), render_trace_path)
    else:
        show(given, lambda source, filters: source.path(filters, groups), render_path)


@click.command()
@filter_options
@by_option
@source_options
def interference(by: str, **given: Any) -> None:  # noqa: ANN401
    """Decode time lost to other requests' prefills, and who caused it."""
    from dashboards.queries.dimensions import parse_by
    from dashboards.terminal.causes import render_interference

    groups = parse_by(by)
    show(given, lambda source, filters: source.interference(filters, groups), render_interference)


@click.command()
@filter_options
@by_option
@source_options
def cache(by: str, **given: Any) -> None:  # noqa: ANN401
    """Prefill saved by prefix-cache hits, and the cost of preemption."""
    from dashboards.queries.dimensions import parse_by
    from dashboards.terminal.costs import render_cache

    groups = parse_by(by)
    show(given, lambda source, filters: source.cache(filters, groups), render_cache)


@click.command()
@click.option("--ttft", metavar="TIME", help="Most time to the first token: 500ms, 2s.")
@click.option("--tpot", metavar="TIME", help="Most time an output token: 50ms.")
@click.option("--e2e", metavar="TIME", help="Most time for a request: 10s.")
@click.option("--prices", type=click.Path(path_type=Path), help="Price table (YAML).")
@filter_options
@by_option
@source_options
def goodput(
    ttft: str | None,
    tpot: str | None,
    e2e: str | None,
    prices: Path | None,
    by: str,
    **given: Any,  # noqa: ANN401
) -> None:
    """Requests a second within limits, what broke the others, and what it all cost."""
    from dashboards.analyses.goodput import parse_limits
    from dashboards.prices import make_prices
    from dashboards.queries.dimensions import parse_by
    from dashboards.terminal.costs import render_goodput

    limits, groups = parse_limits(ttft, tpot, e2e), parse_by(by)
    table = None
    if prices is not None:
        table = make_prices(read_mapping(prices, "price file") or {}, f"price file {prices}")
    show(
        given,
        lambda source, filters: source.goodput(filters, limits, groups, table),
        render_goodput,
    )


@click.command()
@filter_options
@by_option
@source_options
def throughput(by: str, **given: Any) -> None:  # noqa: ANN401
    """One user's speed beside all users' tokens a second, at each concurrency."""
    from dashboards.queries.dimensions import parse_by
    from dashboards.terminal.costs import render_throughput

    groups = parse_by(by)
    show(given, lambda source, filters: source.throughput(filters, groups), render_throughput)
