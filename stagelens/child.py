"""The collector as a child process of `stagelens serve`."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from stagelens.errors import UserError
from stagelens.ready import read_ready

START_TIMEOUT_S = 60.0


class CollectorChild:
    """A running collector; it ends when :meth:`stop` is called or this process dies."""

    def __init__(self, process: subprocess.Popen[bytes], facts: dict[str, str]) -> None:
        self._process = process
        self.otlp_url = facts["collector"]
        self.api_url = facts["api"]

    def alive(self) -> bool:
        return self._process.poll() is None

    def stop(self, deadline_s: float) -> bool:
        """Close its input, wait for it to flush; ``False`` if it had to be killed."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            return self._process.wait(deadline_s) == 0
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return False


def start_collector(arguments: Sequence[str], ready_file: Path, log_file: Path) -> CollectorChild:
    """Start `stagelens collect` and wait until it listens.

    Raises:
        UserError: it ended instead; its own one-sentence reason is passed on.
    """
    ready_file.unlink(missing_ok=True)
    command = [
        sys.executable, "-m", "stagelens", "collect", "--with-parent",
        "--ready-file", str(ready_file), *arguments,
    ]  # fmt: skip
    began_at = log_file.stat().st_size if log_file.exists() else 0
    with log_file.open("ab") as output:
        process = subprocess.Popen(  # noqa: S603  our own command
            command, stdin=subprocess.PIPE, stdout=output, stderr=output, start_new_session=True
        )
    give_up = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < give_up:
        if (facts := read_ready(ready_file)) is not None:
            return CollectorChild(process, facts)
        if process.poll() is not None:
            raise UserError(_reason(log_file, began_at))
        time.sleep(0.05)
    process.kill()
    raise UserError(f"the collector did not start within {START_TIMEOUT_S:g} s: see {log_file}")


def _reason(log_file: Path, began_at: int) -> str:
    with log_file.open("rb") as file:
        file.seek(began_at)
        said = file.read().decode("utf-8", "replace").strip().splitlines()
    for line in reversed(said):
        if line.startswith("stagelens: error: "):
            return line.removeprefix("stagelens: error: ")
    return f"the collector ended while it was starting: see {log_file}"
