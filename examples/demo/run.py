"""The demo: serve a real model, send it a real load, show where the time went.

Starts `stagelens serve` as a user would, waits for it with progress, runs the load of
`load.py`, prints `stagelens report` and one `stagelens trace`, and stops it cleanly.
Exit 0: all requests answered and the server ended well; 1: not so; 130, 143: stopped.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rich.console import Console

from examples.demo.load import Outcome, Seen, progress, run_load, summary
from examples.demo.pipelines import FOLDER, NAMES, config_file, pipeline_plan
from examples.demo.plan import plan
from examples.demo.server import GRACE_S, ROOT, DemoError, Server
from tracer.clock import SystemClock

STORED_LIMIT_S = 20
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(KeyboardInterrupt):
    """A signal asked for an end; of this kind because asyncio lets only it through everywhere."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--scale", type=float, default=1.0, help="more or fewer requests")
    parser.add_argument("--pipeline", choices=NAMES, help="ask this pipeline, not the plain model")
    options = parser.parse_args()
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        console.width = 100
    for number in SIGNALS:
        signal.signal(number, _stop)
    try:
        return _run(options, console)
    except (DemoError, OSError) as problem:
        console.print(f"demo: error: {problem}", style="red", markup=False, soft_wrap=True)
        return 1
    except Stopped as stopped:
        console.print("demo: stopped")
        return stopped.exit_code


def _stop(number: int, _frame: FrameType | None) -> None:
    """The first signal ends the demo in order; more of them do not break into that."""
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise Stopped(number)


@contextmanager
def _signals_wait() -> Iterator[None]:
    """A signal that comes meanwhile acts at the end: none may part a child from its owner."""
    came: list[int] = []
    before = {n: signal.signal(n, lambda number, _: came.append(number)) for n in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            _stop(came[0], None)


def _run(options: argparse.Namespace, console: Console) -> int:
    with tempfile.TemporaryDirectory(prefix="stagelens-demo-") as scratch:
        config = config_file(options.pipeline) if options.pipeline else None
        server = Server(options.model, options.data_dir, Path(scratch), config)
        try:
            with _signals_wait():
                server.start()
            failed = demo(server, server.wait_ready(console), options, console)
        except DemoError as problem:
            raise DemoError(server.instead_of(problem)) from problem
        finally:
            code = server.stop(console)
        if code:
            raise DemoError(f"the server ended with exit code {code}: {server.last_words()}")
    where_next(options.data_dir, console)
    if failed:
        raise DemoError(f"{failed} requests failed (see above)")
    return 0


def demo(
    server: Server, urls: dict[str, str], options: argparse.Namespace, console: Console
) -> int:
    """Load, then the report and one waterfall; how many requests failed."""
    pipeline = options.pipeline
    if pipeline == "rag":
        handbook = str((FOLDER / "handbook").relative_to(ROOT))
        stagelens("documents", urls, "add", handbook, "--collection", "handbook")
    phases = pipeline_plan(pipeline, 7, options.scale) if pipeline else plan(7, options.scale)
    with progress(console, phases) as on_done:
        outcome = asyncio.run(run_load(urls["proxy"], pipeline or urls["model"], phases, on_done))
    console.print(f"sent {summary(outcome)}", soft_wrap=True)
    for seen in outcome.failed[:5] + outcome.refused[:5]:
        console.print(f"{seen.ask.kind}: {seen.error or seen.refused}", style="red", markup=False)
    if outcome.failed and server.ended(GRACE_S) is not None:
        raise DemoError(f"{len(outcome.failed)} of {len(outcome.seen)} requests failed")
    if not outcome.answered:
        return len(outcome.failed)
    since = _iso(outcome.began_unix_ns)
    recorded = stored(urls, since, {s.trace_id for s in outcome.answered}, console)
    stagelens("report", urls, "--since", since)
    chosen = near_p95(outcome.answered)
    print(f"\nOne of the slowest requests ({chosen.ask.kind}, {chosen.ask.phase}):\n", flush=True)
    stagelens("trace", urls, chosen.trace_id)
    agreement(outcome, recorded, console)
    return len(outcome.failed)


def _iso(unix_ns: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(unix_ns // 10**9))


def near_p95(answered: Sequence[Seen]) -> Seen:
    """The request that 95 % are at most as slow as."""
    return sorted(answered, key=lambda s: s.e2e_ns)[int((len(answered) - 1) * 0.95)]


def stored(
    urls: dict[str, str], since: str, wanted: set[str], console: Console
) -> dict[str, dict[str, int]]:
    """The records of the requests, once all have arrived; those that have not are told."""
    clock = SystemClock()
    give_up = clock.mono_ns() + STORED_LIMIT_S * 10**9
    while True:
        text = stagelens("requests", urls, "--since", since, "--limit", "1000", "--format", "json",
                         quiet=True)  # fmt: skip
        found = {r["trace_id"]: r for r in json.loads(text)["requests"]}
        missing = len(wanted - found.keys())
        if not missing:
            return found
        if clock.mono_ns() > give_up:
            console.print(f"{missing} of {len(wanted)} records have not arrived", style="red")
            return found
        time.sleep(0.5)


def agreement(
    outcome: Outcome, recorded: dict[str, dict[str, int]], console: Console
) -> None:
    """How far the client's own times lie from the recorded ones."""
    both = [(s, recorded[s.trace_id]) for s in outcome.answered if s.trace_id in recorded]
    gaps = {
        "E2E": [(s.e2e_ns - r["e2e_ns"]) / 1e6 for s, r in both],
        "TTFT": [
            (s.first_token_ns - r["ttft_ns"]) / 1e6
            for s, r in both
            if s.first_token_ns is not None and r["ttft_ns"] is not None
        ],
    }
    said = [f"{name} {_spread(v)} (n={len(v)})" for name, v in gaps.items() if len(v) > 1]
    if said:
        console.print(
            f"\nThe client's own times less the recorded ones: {'; '.join(said)}. Between the two "
            "lie the client's work (building requests, parsing chunks) and its wait for a core, "
            "which it shares with the engine; benchmarks/embedded/agreement.py has a bare client."
        )


def _spread(values: list[float]) -> str:
    p95 = statistics.quantiles(values, n=20, method="inclusive")[18]
    return f"{statistics.median(values):.1f} ms at the median, {p95:.1f} ms at p95"


def stagelens(command: str, urls: dict[str, str], *arguments: str, quiet: bool = False) -> str:
    """Run a `stagelens` command against the running collector; its output unless quiet."""
    done = subprocess.run(
        [sys.executable, "-m", "stagelens", command, *arguments, "--collector", urls["api"]],
        check=False, stdout=subprocess.PIPE if quiet else None, text=True, cwd=ROOT,
    )  # fmt: skip
    if done.returncode:
        raise DemoError(f"stagelens {command} ended with exit code {done.returncode}")
    return done.stdout or ""


def where_next(data_dir: Path, console: Console) -> None:
    console.print(
        f"\nThe server is stopped; its records and logs are kept in {data_dir}. Look further:\n"
        f"  . .venv/bin/activate\n"
        f"  stagelens report --data-dir {data_dir} --since 1d --by tag:phase,cached\n"
        f"  stagelens requests --data-dir {data_dir} --since 1d --sort ttft\n"
        f"  stagelens trace --data-dir {data_dir} TRACE\n"
        f"  stagelens whatif --data-dir {data_dir} --since 1d decode=-20%\n"
        f"  stagelens collect --data-dir {data_dir}   # and the page on http://127.0.0.1:8090/?since=1d\n"
        f"Serve your own model: stagelens serve --model FOLDER   (docs/serve.md)",
        markup=False,
        soft_wrap=True,
    )


if __name__ == "__main__":
    sys.exit(main())
