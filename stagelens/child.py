"""The collector as a child process of `stagelens serve`: started, kept, stopped."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from proxy.stopping import held_back
from stagelens.cores import free_cores, stay_on
from stagelens.errors import UserError
from stagelens.ready import read_ready

log = logging.getLogger("stagelens")
START_TIMEOUT_S = 60.0
CUT_SHORT_S = 10.0
"""What a collector gets to end whose start is given up."""
LONGEST_PAUSE_S = 30.0


class CollectorChild:
    """A running collector; it ends when :meth:`stop` is called or this process dies.

    If it ends by itself it is started again on the same ports, with growing pauses;
    what the proxy could not hand over meanwhile is counted by its exporter.
    """

    def __init__(self, arguments: Sequence[str], ready_file: Path, log_file: Path) -> None:
        self._arguments = list(arguments)
        self._ready_file = ready_file
        self._log_file = log_file
        self._stopping = threading.Event()
        self._cores: set[int] = set()
        self._process, facts = _start(self._command(()), ready_file, log_file)
        self.otlp_url = facts["collector"]
        self.grpc_address = facts["grpc"]
        self.api_url = facts["api"]
        self._keeper = threading.Thread(target=self._keep, name="stagelens-keep", daemon=True)
        self._keeper.start()

    def leave_engine_alone(self) -> None:
        """Keep it off the cores that the engine below this process has bound; see :mod:`stagelens.cores`."""
        self._cores = free_cores(os.getpid(), but=self._process.pid)
        if self._cores:
            stay_on(self._process.pid, self._cores)

    def stop(self, deadline_s: float) -> bool:
        """Close its input, wait for it to flush; ``False`` if it had to be killed."""
        self._stopping.set()
        process = self._process
        if process.stdin is not None:
            process.stdin.close()
        try:
            return process.wait(deadline_s) == 0
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return False

    def _command(self, ports: Sequence[str]) -> list[str]:
        return [
            sys.executable, "-m", "stagelens", "collect", "--with-parent",
            "--ready-file", str(self._ready_file), *self._arguments, *ports,
        ]  # fmt: skip

    def _ports(self) -> list[str]:
        """Those of the first start, so that senders find it again."""
        otlp, api = urlsplit(self.otlp_url).port or 0, urlsplit(self.api_url).port or 0
        grpc = self.grpc_address.rpartition(":")[2]
        return ["--otlp-port", str(otlp), "--grpc-port", grpc, "--api-port", str(api)]

    def _keep(self) -> None:
        pause_s, down = 0.5, False
        while not self._stopping.is_set():
            code = self._process.wait()
            if self._stopping.wait(pause_s):
                return
            if not down:  # told once an end, not once a try
                log.error(
                    "the collector ended (exit code %s): it is started again; requests go on, "
                    "records that cannot wait are counted as lost", code,
                )  # fmt: skip
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
            try:
                self._process, _ = _start(
                    self._command(self._ports()), self._ready_file, self._log_file
                )
                if self._cores:
                    stay_on(self._process.pid, self._cores)
                if down:
                    log.warning("the collector runs again")
                down = False
            except UserError as problem:
                down = True
                log.error(  # noqa: TRY400
                    "the collector's start failed (%s): the next try is in %g s", problem, pause_s
                )


def _start(
    command: list[str], ready_file: Path, log_file: Path
) -> tuple[subprocess.Popen[bytes], dict[str, str]]:
    """Start `stagelens collect` and wait until it listens.

    Raises:
        UserError: it ended instead; its own one-sentence reason is passed on.
        KeyboardInterrupt: told to stop meanwhile; the collector has ended.
    """
    began_at = log_file.stat().st_size if log_file.exists() else 0
    process = None
    try:
        with log_file.open("ab") as output, held_back():
            process = subprocess.Popen(  # noqa: S603  our own command
                command, stdin=subprocess.PIPE, stdout=output, stderr=output, start_new_session=True
            )
        return process, _listening(process, ready_file, log_file, began_at)
    except BaseException:
        if process is not None:
            _end(process)
        raise


def _listening(
    process: subprocess.Popen[bytes], ready_file: Path, log_file: Path, began_at: int
) -> dict[str, str]:
    give_up = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < give_up:
        facts = read_ready(ready_file)
        if facts is not None and str(facts.get("pid")) == str(process.pid):  # not an earlier one's
            return facts
        if process.poll() is not None:
            raise UserError(_reason(log_file, began_at))
        time.sleep(0.05)
    raise UserError(f"the collector did not start within {START_TIMEOUT_S:g} s: see {log_file}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a collector that is starting: the end of its input is looked at only later."""
    process.terminate()
    try:
        process.wait(CUT_SHORT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdin is not None:
        process.stdin.close()


def _reason(log_file: Path, began_at: int) -> str:
    with log_file.open("rb") as file:
        file.seek(began_at)
        said = file.read().decode("utf-8", "replace").strip().splitlines()
    for line in reversed(said):
        if line.startswith("stagelens: error: "):
            return line.removeprefix("stagelens: error: ")
    return f"the collector ended while it was starting: see {log_file}"
