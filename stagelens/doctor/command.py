"""`stagelens doctor`: checks settings, engine, store, collector, ports and clocks."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stagelens.doctor.finding import Finding, failed, ok

if TYPE_CHECKING:
    from stagelens.settings import Config

SIGNS = {"ok": "ok     ", "warning": "warning", "failed": "FAILED "}


@click.command()
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="Settings (YAML).")
@click.option("--model", help="Also look at this model folder.")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Folder of store and logs.")
@click.option("--store", help="Store: chdb:///PATH or clickhouse://USER@HOST:PORT/DB.")
@click.option("--collector", help="API of a collector: http://HOST:8090.")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
def doctor(form: str, **given: Any) -> None:  # noqa: ANN401
    """Check settings, engine, store and clocks, and say what to do. Exit 1 if anything failed."""
    found = list(_findings(**given))
    bad = any(one.state == "failed" for one in found)
    if form == "json":
        click.echo(json.dumps({"ok": not bad, "findings": [one.model_dump() for one in found]}))
    else:
        for one in found:
            click.echo(f"{SIGNS[one.state]}  {one.area:<10} {one.told}")
    sys.exit(1 if bad else 0)


def _findings(config_file: Path | None, collector: str | None, **given: Any) -> Iterator[Finding]:  # noqa: ANN401
    from stagelens.errors import UserError
    from stagelens.settings import Config, load_config

    config = Config()
    try:
        config = load_config(config_file, given)
        yield ok("settings", f"{config_file} is understood" if config_file else "the defaults")
    except UserError as problem:
        yield failed("settings", str(problem))
    yield from _looked_at(config, collector)


def _looked_at(config: Config, collector: str | None) -> Iterator[Finding]:
    from stagelens.doctor import engine, place
    from stagelens.paths import DataFolder, default_data_dir
    from stagelens.ready import read_ready

    folder = DataFolder(config.data_dir or default_data_dir())
    facts = read_ready(folder.running)
    api = collector or (str(facts["api"]) if facts and "api" in facts else None)
    yield from engine.engine_findings()
    yield from engine.model_findings(config.model)
    yield from place.folder_findings(folder)
    yield from place.store_findings(config.store or folder.store_url, running=api is not None)
    yield from place.collector_findings(api)
    ports = {"--port": config.proxy.port, "--otlp-port": 4318, "--grpc-port": 4317, "--api-port": 8090}
    yield from place.port_findings(ports, config.proxy.host, ours=facts is not None)
    yield from place.clock_findings()
