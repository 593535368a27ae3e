"""`stagelens ingest`: OTLP files into the store, by a collector that runs or directly."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import click

from stagelens.errors import UserError
from stagelens.sender import sender_headers

Send = Callable[[str, str, bytes], int]
"""Path, content type and body of a request → how many of its items were rejected."""
TRY_S = 60.0


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE…")
@click.option("--signal", type=click.Choice(["spans", "logs", "metrics"]),
              help="What protobuf files hold (by default as their names begin, else spans).")
@click.option("--collector", help="OTLP/HTTP URL of the collector [default: the one that runs].")
@click.option("--store", help="Store to write to when no collector runs.")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Folder of its store and logs.")
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="Settings (YAML).")
def ingest(
    files: tuple[Path, ...], signal: str | None, collector: str | None, store: str | None,
    data_dir: Path | None, config_file: Path | None,
) -> None:  # fmt: skip
    """Send OTLP files (JSON, JSON lines, protobuf) to a collector, or straight into a store.

    Takes what a spool holds: its segments and what was set aside. Without a collector the
    store is opened here.
    """
    if collector and store:
        raise UserError("--collector and --store say different things: give one", 2)
    url = collector or (None if store else _running(data_dir))
    if url is not None:
        _send_all(files, signal, lambda path, kind, body: _post(url + path, kind, body))
        return
    from stagelens.direct import DirectCollector
    from stagelens.paths import DataFolder, default_data_dir

    if store is None:
        folder = DataFolder(data_dir or default_data_dir())
        folder.prepare()
        store = folder.store_url
    direct = DirectCollector(store, config_file)
    try:
        _send_all(
            files, signal, lambda path, kind, body: _rejected(path, kind, direct.send(path, kind, body))
        )
    finally:
        left = direct.close()
    if left:
        raise UserError(f"{left} item(s) wait in the spool: the store took not all of them yet")


def _send_all(files: tuple[Path, ...], signal: str | None, send: Send) -> None:
    from collectors.receive.files import UnreadableFile, bodies

    for file in files:
        sent = rejected = 0
        try:
            for path, kind, body in bodies(file, signal):
                rejected += send(path, kind, body)
                sent += 1
        except UnreadableFile as problem:
            raise UserError(
                f"{file} was not read to its end: {problem}; {sent} request(s) of it were taken"
            ) from None
        except OSError as problem:
            raise UserError(f"{file} cannot be read ({problem.strerror}): check the path", 2) from None
        told = f", {rejected} item(s) rejected" if rejected else ""
        click.echo(f"{file}: {sent} request(s) taken{told}")


def _running(data_dir: Path | None) -> str | None:
    from stagelens.paths import DataFolder, default_data_dir
    from stagelens.ready import read_ready

    facts = read_ready(DataFolder(data_dir or default_data_dir()).running)
    return None if facts is None else str(facts["collector"])


def _post(url: str, kind: str, body: bytes) -> int:
    """Send once it is taken; 503 is tried again for a minute."""
    headers = {"Content-Type": kind, **sender_headers()}
    request = urllib.request.Request(url, body, headers)  # noqa: S310  the user's URL
    give_up = time.monotonic() + TRY_S
    while True:
        try:
            with urllib.request.urlopen(request, timeout=TRY_S) as answer:  # noqa: S310
                return _rejected(url, kind, answer.read())
        except urllib.error.HTTPError as problem:
            if problem.code not in (429, 503) or time.monotonic() > give_up:
                raise UserError(f"the collector answered {problem.code} at {url}: see its log") from None
        except urllib.error.URLError as problem:
            raise UserError(
                f"no collector answers at {url} ({problem.reason}): check --collector"
            ) from None
        time.sleep(1)


def _rejected(url: str, kind: str, answer: bytes) -> int:
    import json

    from collectors.receive.decode import JSON
    from collectors.receive.signals import SIGNALS

    signal = next(one for path, one in SIGNALS.items() if url.endswith(path))
    if kind != JSON:
        return int(getattr(signal.response.FromString(answer).partial_success, signal.rejected_field))
    partial = json.loads(answer or b"{}").get("partialSuccess", {})
    return sum(int(n) for key, n in partial.items() if key.startswith("rejected"))
