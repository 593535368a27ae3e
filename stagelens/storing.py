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
    ):
        command = option(command)
    return command


@contextmanager
def _opened(url: str | None, data_dir: Path | None) -> Iterator[Store]:
    from collectors.store.client import open_store
    from collectors.store.url import StoreUrl
    from stagelens.paths import DataFolder, default_data_dir

    parsed = StoreUrl.parse(url or DataFolder(data_dir or default_data_dir()).store_url)
    if parsed.path is not None and not parsed.path.is_dir():
        raise UserError(f"store folder {parsed.path} does not exist: give --store or --data-dir")
    opened = open_store(parsed)
    try:
        yield opened
    finally:
        opened.close()


@store.command()
@_options
def check(url: str | None, data_dir: Path | None, form: str) -> None:
    """Are the tables as this program made them?"""
    from collectors.store.migrate import load_migrations, verify

    with _opened(url, data_dir) as opened:
        verify(opened)
    _say(form, {"ok": True, "migrations": len(load_migrations())}, "the store is in order")


@store.command()
@_options
def migrate(url: str | None, data_dir: Path | None, form: str) -> None:
    """Bring the tables up to date; a second time nothing is done."""
    from collectors.store.migrate import migrate as run

    with _opened(url, data_dir) as opened:
        made = run(opened)
    told = f"applied: {', '.join(map(str, made))}" if made else "nothing to do"
    _say(form, {"applied": made}, told)


@store.command()
@_options
def size(url: str | None, data_dir: Path | None, form: str) -> None:
    """Rows and bytes of each table."""
    from dataclasses import asdict

    from collectors.store.upkeep import sizes

    with _opened(url, data_dir) as opened:
        found = sizes(opened)
    rows = [
        f"{one.table:28} {one.rows:>14,} rows {one.packed_bytes:>16,} bytes "
        f"{one.packed_bytes / one.rows:>8.1f} a row"
        for one in found
    ]
    _say(form, {"tables": [asdict(one) for one in found]}, "\n".join(rows) or "the store is empty")


@store.command()
@click.option("--days", type=click.IntRange(1), required=True, help="Keep this many days.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@_options
def prune(url: str | None, data_dir: Path | None, form: str, days: int, dry_run: bool) -> None:
    """Drop whole days that are older than --days."""
    from collectors.store.upkeep import prune as run

    with _opened(url, data_dir) as opened:
        gone = run(opened, days, only_say=dry_run)
    rows = [f"{table}: {n:,} rows" for table, n in sorted(gone.items())]
    _say(form, {"dropped": gone, "dry_run": dry_run}, "\n".join(rows) or "nothing is that old")


def _say(form: str, facts: dict[str, Any], text: str) -> None:
    click.echo(json.dumps(facts) if form == "json" else text)
