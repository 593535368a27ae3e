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
@click.option("--data-dir", type=click.Path(path_type=Path), help="Folder of its store and logs.")
def ingest(files: tuple[Path, ...], signal: str | None, collector: str | None, data_dir: Path | None) -> None:
    """Send OTLP files (JSON, JSON lines, protobuf) to a collector, which stores them.

    Takes what a spool holds: its segments and what was set aside.
    """
    from collectors.receive.files import UnreadableFile, bodies

    url = collector or _running(data_dir)
    for file in files:
        sent = rejected = 0
        try:
            for path, kind, body in bodies(file, signal):
                rejected += _post(url + path, kind, body)
                sent += 1
        except UnreadableFile as problem:
            raise UserError(
                f"{file} was not read to its end: {problem}; {sent} request(s) of it were taken"
            ) from None
        except OSError as problem:
            raise UserError(f"{file} cannot be read ({problem.strerror}): check the path", 2) from None
        told = f", {rejected} item(s) rejected" if rejected else ""
        click.echo(f"{file}: {sent} request(s) taken{told}")


def _running(data_dir: Path | None) -> str:
    from stagelens.paths import DataFolder, default_data_dir
    from stagelens.ready import read_ready

    folder = DataFolder(data_dir or default_data_dir())
    facts = read_ready(folder.running)
    if facts is None:
        raise UserError(
            f"no collector runs on {folder.root}: start `stagelens collect`, or give "
            "--collector URL or --data-dir DIR"
        )
    return str(facts["collector"])


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
