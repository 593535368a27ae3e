"""The demo: serve a real model, send it a real load, show where the time went.

Starts `stagelens serve` as a user would, waits for it with progress, runs the load of
`load.py`, prints `stagelens report` and one `stagelens trace`, and stops it cleanly.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from load import Outcome, Seen, plan, run_load, summary
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

START_LIMIT_S = 600
CPU_FLAGS = ("--max-model-len", "2048", "--enforce-eager", "--dtype", "float32")
"""float32: CPUs without bfloat16 instructions are two to three times slower with it."""
GPU_FLAGS = ("--max-model-len", "2048", "--gpu-memory-utilization", "0.4")


class DemoError(Exception):
    """One sentence on what went wrong."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--scale", type=float, default=1.0, help="more or fewer requests")
    options = parser.parse_args()
    console = Console(stderr=True, highlight=False)
    server = None
    try:
        server = start(options.model, options.data_dir)
        urls = wait_ready(server, options.data_dir, console)
        demo(urls, options, console)
    except DemoError as problem:
        console.print(f"demo: error: {problem}", style="red", markup=False)
        return 1
    except KeyboardInterrupt:
        console.print("demo: stopped")
        return 130
    finally:
        if server is not None:
            stop(server, console)
    if server.returncode:
        console.print(f"demo: error: the server ended with exit code {server.returncode}")
        return 1
    where_next(options.data_dir, console)
    return 0


def start(model: str, data_dir: Path) -> subprocess.Popen[bytes]:
    """`stagelens serve` with free ports, its words in a file."""
    data_dir.mkdir(parents=True, exist_ok=True)
    (data_dir / "ready.json").unlink(missing_ok=True)
    gpu = has_gpu()
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    environment.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
    command = [
        sys.executable, "-m", "stagelens", "serve", "--model", model, "--port", "0",
        "--otlp-port", "0", "--api-port", "0", "--data-dir", str(data_dir), "--tag", "run=demo",
        "--ready-file", str(data_dir / "ready.json"), "--warm-after", "10", "--",
        "--served-model-name", "SmolLM2-135M-Instruct", *(GPU_FLAGS if gpu else CPU_FLAGS),
    ]  # fmt: skip
    with (data_dir / "serve.log").open("wb") as words:
        return subprocess.Popen(command, stderr=words, env=environment, start_new_session=True)


def has_gpu() -> bool:
    """Whether an NVIDIA GPU answers, by the same question as `scripts/install.py`."""
    try:
        return subprocess.run(["nvidia-smi", "-L"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def wait_ready(
    server: subprocess.Popen[bytes], data_dir: Path, console: Console
) -> dict[str, str]:
    """The server's addresses, once it says that it is ready."""
    began = time.monotonic()
    engine_log = data_dir / "logs" / "engine.log"
    with Progress(
        SpinnerColumn(), TextColumn("starting the engine"), TimeElapsedColumn(),
        TextColumn("[dim]{task.fields[last]}", markup=True), console=console, transient=True,
    ) as progress:  # fmt: skip
        task = progress.add_task("start", total=None, last="")
        while time.monotonic() - began < START_LIMIT_S:
            with suppress(OSError, ValueError):
                facts = json.loads((data_dir / "ready.json").read_text())
                console.print(f"engine ready after {time.monotonic() - began:.0f} s")
                return dict(facts)
            if server.poll() is not None:
                raise DemoError(_last_words(data_dir))
            progress.update(task, last=_last_line(engine_log))
            time.sleep(0.25)
    raise DemoError(f"the engine was not ready within {START_LIMIT_S} s: see {engine_log}")


def _last_words(data_dir: Path) -> str:
    said = (data_dir / "serve.log").read_text(errors="replace").strip().splitlines()
    reasons = [line.removeprefix("stagelens: error: ") for line in said if ": error: " in line]
    return (reasons or said or ["the server ended without a word"])[-1]


def _last_line(file: Path) -> str:
    with suppress(OSError):
        lines = file.read_bytes()[-2000:].decode(errors="replace").strip().splitlines()
        if lines:
            return lines[-1].split("] ")[-1][:60].replace("[", "(")
    return ""


def demo(urls: dict[str, str], options: argparse.Namespace, console: Console) -> None:
    """Load, then the report and one waterfall."""
    outcome = send(urls, options.scale, console)
    console.print(f"sent {summary(outcome)}")
    for seen in outcome.failed[:5]:
        console.print(f"failed: {seen.error}", style="red", markup=False)
    time.sleep(2.0)
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(outcome.began_unix_ns // 10**9 - 1))
    stagelens("report", urls, "--since", since)
    stagelens("report", urls, "--since", since, "--by", "tag:phase", "--format", "json", quiet=True)
    traced = [s for s in outcome.seen if s.trace_id and not s.error]
    if traced:
        chosen = sorted(traced, key=lambda s: s.e2e_s)[int(len(traced) * 0.95)]
        print(f"\nOne of the slowest requests ({chosen.ask.kind}, {chosen.ask.phase}):\n")
        stagelens("trace", urls, chosen.trace_id)
        agreement(urls, traced, console)


def send(urls: dict[str, str], scale: float, console: Console) -> Outcome:
    phases = plan(7, scale)
    with Progress(
        TextColumn("sending the load"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TextColumn("left"), TimeRemainingColumn(), console=console, transient=True,
    ) as progress:  # fmt: skip
        task = progress.add_task("load", total=sum(map(len, phases)))
        return asyncio.run(
            run_load(
                urls["proxy"], urls["model"], phases, lambda _: progress.advance(task)
            )
        )


def agreement(urls: dict[str, str], traced: list[Seen], console: Console) -> None:
    """How far the client's own end-to-end times lie from the recorded ones."""
    text = stagelens("requests", urls, "--since", "1h", "--limit", "1000", "--format", "json",
                     quiet=True)  # fmt: skip
    recorded = {r["trace_id"]: r["e2e_ns"] / 1e6 for r in json.loads(text)["requests"]}
    gaps = [s.e2e_s * 1e3 - recorded[s.trace_id] for s in traced if s.trace_id in recorded]
    if gaps:
        console.print(
            f"the client's own E2E is {statistics.median(gaps):.1f} ms above the recorded one at "
            f"the median ({len(gaps)} requests): building the request and parsing its chunks"
        )


def stagelens(command: str, urls: dict[str, str], *arguments: str, quiet: bool = False) -> str:
    """Run a `stagelens` command against the running collector; its output unless quiet."""
    done = subprocess.run(
        [sys.executable, "-m", "stagelens", command, "--collector", urls["api"], *arguments],
        check=False, stdout=subprocess.PIPE if quiet else None, text=True,
    )  # fmt: skip
    if done.returncode:
        raise DemoError(f"stagelens {command} ended with exit code {done.returncode}")
    return done.stdout or ""


def stop(server: subprocess.Popen[bytes], console: Console) -> None:
    """Ask the server to end, and wait until its records are stored."""
    if server.poll() is None:
        with console.status("stopping the server"):
            server.send_signal(signal.SIGTERM)
            try:
                server.wait(60)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def where_next(data_dir: Path, console: Console) -> None:
    console.print(
        f"\nThe server is stopped; its records are kept in {data_dir}. Look further:\n"
        f"  . .venv/bin/activate\n"
        f"  stagelens report --data-dir {data_dir} --since 1d --by tag:phase,cached\n"
        f"  stagelens requests --data-dir {data_dir} --since 1d --sort ttft\n"
        f"  stagelens trace --data-dir {data_dir} TRACE\n"
        f"Serve your own model: stagelens serve --model FOLDER   (docs/serve.md)",
        markup=False,
    )


if __name__ == "__main__":
    sys.exit(main())
