"""`stagelens store`: look after a store that no collector has open."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stagelens.errors import UserError

if TYPE_CHECKING:
    from collectors.store.client import Store


@click.group()
def store() -> None:
    """Check, migrate, measure or prune a store.

    One process owns an embedded store: end its collector first.
    """


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--format", "form", type=click.Choice(["table", "json"]), default="table"),
        click.option("--data-dir", type=click.Path(path_type=Path), help="Folder of store and logs."),
        click.option("--store", "url", help="Store: chdb:///PATH or clickhouse://USER@HOST:PORT/DB."),
        click.option("--cluster", help="The ClickHouse cluster that the tables are on."),
        click.option("--config", "config_file", type=click.Path(path_type=Path), help="Settings (YAML)."),
    ):
        command = option(command)
    return command


@contextmanager
def _opened(
    url: str | None,
    data_dir: Path | None,
    config_file: Path | None,
    cluster: str | None,
    *,
    makes: bool = False,
) -> Iterator[Store]:
    """The store that options and config file name, with its settings; only ``makes`` makes one."""
    from collectors.store.client import open_store
    from collectors.store.folder import refuse_no_store
    from collectors.store.url import StoreUrl
    from stagelens.paths import DataFolder, default_data_dir
    from stagelens.settings import load_config

    on = {"store": {"cluster": cluster}}
    config = load_config(config_file, {"store": url, "data_dir": data_dir, "collect": on})
    folder = DataFolder(config.data_dir or default_data_dir())
    parsed = StoreUrl.parse(config.store or folder.store_url)
    if parsed.path is not None and not parsed.path.is_dir():
        raise UserError(f"store folder {parsed.path} does not exist: give --store or --data-dir")
    if not makes:
        refuse_no_store(parsed)
    opened = open_store(parsed, config.collect.store)
    try:
        yield opened
    finally:
        opened.close()


@store.command()
@_options
def check(form: str, **where: Any) -> None:  # noqa: ANN401
    """Are the tables as this program made them?"""
    from collectors.store.migrate import load_migrations, verify

    with _opened(**where) as opened:
        verify(opened)
    _say(form, {"ok": True, "migrations": len(load_migrations())}, "the store is in order")


@store.command()
@_options
def migrate(form: str, **where: Any) -> None:  # noqa: ANN401
    """Bring the tables up to date; a second time nothing is done."""
    from collectors.store.migrate import migrate as run

    with _opened(**where, makes=True) as opened:
        made = run(opened)
    told = f"applied: {', '.join(map(str, made))}" if made else "nothing to do"
    _say(form, {"applied": made}, told)


@store.command()
@_options
def size(form: str, **where: Any) -> None:  # noqa: ANN401
    """Rows and bytes of each table."""
    from dataclasses import asdict

    from collectors.store.upkeep import sizes

    with _opened(**where) as opened:
        found = sizes(opened)
    rows = [
        f"{one.table:28} {one.rows:>14,} rows {one.packed_bytes:>16,} bytes "
        f"{one.packed_bytes / one.rows:>8.1f} a row"
        for one in found
    ]
    _say(form, {"tables": [asdict(one) for one in found]}, "\n".join(rows) or "the store is empty")


@store.command()
@click.option("--days", type=click.IntRange(1), required=True, help="Keep this many days.")
@click.option("--rollup-days", type=click.IntRange(1), help="Of the roll-ups [default: all].")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@_options
def prune(
    form: str, days: int, rollup_days: int | None, dry_run: bool, **where: Any  # noqa: ANN401
) -> None:
    """Drop whole days that are older than --days, and what was set aside before them."""
    from collectors.store.upkeep import prune as run
    from collectors.store.upkeep import prune_aside
    from stagelens.paths import spool_folder
    from tracer.clock import SystemClock

    with _opened(**where) as opened:
        gone = run(opened, days, rollup_days=rollup_days, only_say=dry_run)
        aside = spool_folder(opened.url) / "aside"
    files, size = prune_aside(aside, days, SystemClock().unix_ns(), only_say=dry_run)
    rows = [f"{table}: {n:,} rows" for table, n in sorted(gone.items())]
    if files:
        rows.append(f"{aside}: {files:,} files, {size:,} bytes")
    facts = {"dropped": gone, "aside": {"files": files, "bytes": size}, "dry_run": dry_run}
    _say(form, facts, "\n".join(rows) or "nothing is that old")


def _say(form: str, facts: dict[str, Any], text: str) -> None:
    click.echo(json.dumps(facts) if form == "json" else text)
