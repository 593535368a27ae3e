"""`stagelens dashboards`: the files for a Grafana that reads a ClickHouse server."""

from __future__ import annotations

import json
import math
from pathlib import Path

import click

from stagelens.errors import UserError

DEFAULT_STORE = "clickhouse://stagelens_reader@clickhouse:8123/otel"


class Finite(click.FloatRange):
    """A range without ``nan``, which no bound keeps out, and ``inf``: neither can be compared in an alert."""

    def convert(self, value: float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value!r} is no limit: give a number, such as 99.", param, ctx)
        return found


_MS = Finite(min=0, min_open=True)


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--store", default=DEFAULT_STORE, show_default=True,
              help="The ClickHouse server as Grafana reaches it, with a user that only reads.")
@click.option("--dashboards-at", default=None, metavar="PATH",
              help="Where Grafana will find the dashboards (/var/lib/grafana/dashboards/stagelens).")
@click.option("--ttft-limit", type=_MS, default=1000, show_default=True,
              help="Alert: p95 of the time to first token, ms.")
@click.option("--tpot-limit", type=_MS, default=100, show_default=True,
              help="Goodput: time per output token, ms.")
@click.option("--e2e-limit", type=_MS, default=30_000, show_default=True,
              help="Goodput: end to end, ms.")
@click.option("--goodput", type=Finite(0, 100), default=99, show_default=True,
              help="Alert: percentage of requests that meet all limits.")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
def dashboards(
    folder: Path,
    store: str,
    dashboards_at: str | None,
    ttft_limit: float,
    tpot_limit: float,
    e2e_limit: float,
    goodput: float,
    form: str,
) -> None:  # fmt: skip
    """Write Grafana dashboards and provisioning files into DIR.

    Grafana takes the password from STAGELENS_GRAFANA_PASSWORD.
    """
    from collectors.store.url import StoreUrl
    from dashboards.grafana.alerts import Limits
    from dashboards.grafana.shipped import DASHBOARDS_AT, Target, write

    url = StoreUrl.parse(store)
    if url.kind != "clickhouse":
        raise UserError(
            "Grafana cannot open an embedded store, which belongs to its collector: keep the store "
            "in a ClickHouse server and give it as clickhouse://USER@HOST:PORT/DB", 2,
        )  # fmt: skip
    limits = Limits(ttft_limit, tpot_limit, e2e_limit, goodput)
    try:
        paths = write(folder, Target(url, dashboards_at or DASHBOARDS_AT, limits))
    except OSError as problem:
        raise UserError(
            f"folder {folder} cannot be written ({problem.strerror}): give one that can"
        ) from None
    names = [str(path) for path in paths]
    click.echo(json.dumps({"files": names}) if form == "json" else "\n".join(names))
