"""The reading commands: `report`, `trace`, `requests`, `status`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., object])
FORMATS = click.Choice(["table", "json"])
WITH_HTML = click.Choice(["table", "json", "html"])


def source_options(command: F, formats: click.Choice[str] = FORMATS) -> F:
    """``--collector``, ``--store``, ``--data-dir`` and ``--format``, the same everywhere."""
    for option in (
        click.option("--format", "form", type=formats, default="table", show_default=True),
        click.option("--data-dir", type=click.Path(path_type=Path), help="Folder of the store."),
        click.option("--store", help="Store: chdb:///PATH or clickhouse://USER@HOST:PORT/DB."),
        click.option("--collector", help="API of a running collector (http://127.0.0.1:8090)."),
    ):
        command = option(command)
    return command


def filter_options(command: F) -> F:
    """Which requests: time, model, route, status, tags, warm and cached ones."""
    choice = click.Choice(["include", "exclude", "only"])
    for option in (
        click.option("--exact", is_flag=True, help="Read all requests, however many."),
        click.option("--operation", default="model", help="model, any, or one operation."),
        click.option("--cached", type=choice, default="include", show_default=True),
        click.option("--warm", type=choice, default="include", show_default=True),
        click.option("--tag", multiple=True, metavar="NAME=VALUE", help="Repeatable."),
        click.option("--run", help="A named run (tag run=NAME)."),
        click.option("--status", multiple=True, help="ok, error, cancelled; repeatable."),
        click.option("--route", multiple=True),
        click.option("--model", multiple=True),
        click.option("--until", help="End: 10m (ago) or an ISO time."),
        click.option("--since", default="1h", show_default=True, help="30m, 2d or an ISO time."),
    ):
        command = option(command)
    return command


@click.command()
@filter_options
@click.option("--by", default="", help="Slice by model, input_tokens, cached, tag:NAME, …")
@partial(source_options, formats=WITH_HTML)
def report(by: str, **given: Any) -> None:  # noqa: ANN401
    """Percentiles of every stage, with n, losses and what was assumed.

    --format html writes one file with plots, which needs nothing beside it, to standard output.
    """
    from dashboards.queries.dimensions import parse_by
    from dashboards.terminal.report import render_report

    groups = parse_by(by)
    if given["form"] == "html":
        _write_html(given, groups)
        return
    show(given, lambda source, filters: source.report(filters, groups), render_report)


def _write_html(given: dict[str, Any], groups: tuple[str, ...]) -> None:
    from dashboards.html.report import render_html
    from stagelens.sources import open_source

    filters = _filters(given)
    with open_source(given["collector"], given["store"], given["data_dir"]) as source:
        found = source.report(filters, groups)
        series = [source.series(filters, measure) for measure in ("e2e", "ttft")]
    click.echo(render_html(found, series).encode("utf-8"), nl=False)


@click.command()
@filter_options
@click.option("--sort", type=click.Choice(["start", "e2e", "ttft"]), default="start")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True)
@source_options
def requests(sort: str, limit: int, **given: Any) -> None:  # noqa: ANN401
    """List requests: the latest, or the slowest first."""
    from dashboards.terminal.requests import render_requests

    show(
        given,
        lambda source, filters: source.requests(filters, sort=sort, limit=limit),
        render_requests,
    )


@click.command()
@click.argument("trace_id")
@source_options
def trace(trace_id: str, **given: Any) -> None:  # noqa: ANN401
    """One request as a waterfall. TRACE_ID may be shortened while it is unique."""
    from dashboards.terminal.trace import render_trace

    show(given, lambda source, _: source.trace(trace_id), render_trace)


@click.command()
@source_options
def status(**given: Any) -> None:  # noqa: ANN401
    """What is stored, and what the collector took, wrote and refused."""
    show(given, lambda source, _: source.status(), _lines)


def _lines(answer: Any, console: Any) -> None:  # noqa: ANN401
    """One ``name: value`` line a figure; nested figures are indented."""
    from dashboards.terminal.tables import print_lines

    def walk(values: dict[str, Any], indent: str) -> None:
        for name, value in values.items():
            if isinstance(value, dict) and value:
                print_lines(console, (f"{indent}{name}:",))
                walk(value, indent + "  ")
            else:
                print_lines(console, (f"{indent}{name}: {'none' if value in (None, {}) else value}",))

    walk(answer.model_dump(), "")


def show(given: dict[str, Any], ask: Callable[..., Any], render: Callable[..., None]) -> None:
    """Ask the source, then print one JSON document or the table."""
    from dashboards.terminal.console import make_console
    from stagelens.sources import open_source

    filters = _filters(given)
    with open_source(given["collector"], given["store"], given["data_dir"]) as source:
        answer = ask(source, filters)
    if given["form"] == "json":
        click.echo(answer.model_dump_json(indent=2))
    else:
        render(answer, make_console(sys.stdout))


def _filters(given: dict[str, Any]) -> Any:  # noqa: ANN401
    from dashboards.filters import parse_filters
    from tracer.clock import SystemClock

    names = ("since", "until", "model", "route", "status", "run", "warm", "cached", "operation", "exact")
    chosen = {name: given[name] for name in names if name in given}
    if "tag" in given:
        chosen["tags"] = given["tag"]
    return parse_filters(now_unix_ns=SystemClock().unix_ns(), **chosen)
