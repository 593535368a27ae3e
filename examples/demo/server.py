"""`stagelens serve` as a child process of the demo: start, wait with progress, stop."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from tracer.clock import SystemClock

ROOT = Path(__file__).resolve().parents[2]
NAME = "SmolLM2-135M-Instruct"
START_LIMIT_S = 600
STOP_LIMIT_S = 60
GRACE_S = 5
"""How long a server whose engine died may take to end."""
CPU_FLAGS = ("--max-model-len", "2048", "--enforce-eager", "--dtype", "float32")
"""float32: CPUs without bfloat16 instructions are two to three times slower with it."""
GPU_FLAGS = ("--max-model-len", "2048", "--gpu-memory-utilization", "0.4")
TOOL_FLAGS = (
    "--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--tool-strict-level", "parameter",
)  # fmt: skip
"""Without a parser vLLM refuses requests with tools, without the level small models' arguments
do not fit."""


class DemoError(Exception):
    """One sentence on what went wrong."""


class Server:
    """The running server; its words are kept in ``log``, and its engine's beside them."""

    def __init__(
        self, model: str, data_dir: Path, scratch: Path, config: Path | None = None
    ) -> None:
        """``scratch`` takes the log and the ready file, apart from any other run's.

        ``config``: settings with a pipeline, whose file's name names the run.
        """
        run = "demo" if config is None else f"demo-{config.stem}"
        self.log = scratch / "serve.log"
        self.engine_log = data_dir / "logs" / "engine.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._ready = scratch / "ready.json"
        self._command = [
            sys.executable, "-m", "stagelens", "serve", "--model", model, "--port", "0",
            "--otlp-port", "0", "--api-port", "0", "--data-dir", str(data_dir), "--tag", f"run={run}",
            *(["--config", str(config)] if config is not None else []),
            "--ready-file", str(self._ready), "--warm-after", "10", "--",
            "--served-model-name", NAME, *TOOL_FLAGS, *(GPU_FLAGS if has_gpu() else CPU_FLAGS),
        ]  # fmt: skip

    def start(self) -> None:
        """Start it on free ports, in a session of its own: a terminal's Ctrl-C is ours to pass on."""
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        own = str(Path(sys.executable).parent)
        environment = {
            **os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": os.pathsep.join(paths),
            "PATH": os.pathsep.join([own, os.environ.get("PATH", os.defpath)]),
        }  # fmt: skip
        environment.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
        with self.log.open("wb") as words:
            self.process = subprocess.Popen(
                self._command, stdout=words, stderr=words, env=environment, start_new_session=True
            )

    def wait_ready(self, console: Console) -> dict[str, str]:
        """The server's addresses, once it takes requests.

        Raises:
            DemoError: it ended instead, or it took too long.
        """
        clock = SystemClock()
        began = clock.mono_ns()
        if not console.is_terminal:
            console.print("starting the engine (one to two minutes)")
        with Progress(
            SpinnerColumn(), TextColumn("starting the engine"), TimeElapsedColumn(),
            TextColumn("[dim]{task.fields[last]}"), console=console, transient=True,
            disable=not console.is_terminal,
        ) as progress:  # fmt: skip
            task = progress.add_task("start", total=None, last="")
            while (took := (clock.mono_ns() - began) / 1e9) < START_LIMIT_S:
                with suppress(OSError, ValueError):
                    facts = dict(json.loads(self._ready.read_text()))
                    console.print(f"engine ready after {took:.0f} s")
                    return facts
                if self.ended() is not None:
                    raise DemoError("the engine was not started")
                progress.update(task, last=_last_line(self.engine_log))
                time.sleep(0.25)
        raise DemoError(
            f"the engine was not ready within {START_LIMIT_S} s; it said last: "
            f"{_last_line(self.engine_log) or 'nothing'} (all of it: {self.engine_log})"
        )

    def stop(self, console: Console) -> int:
        """SIGTERM, and wait until it has stored its records and ended: its exit code."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            with console.status("stopping the server"):
                self.process.send_signal(signal.SIGTERM)
                with suppress(subprocess.TimeoutExpired):
                    return self.process.wait(STOP_LIMIT_S)
                with suppress(ProcessLookupError):
                    os.killpg(self.process.pid, signal.SIGKILL)
        return self.process.wait()

    def ended(self, within_s: float = 0) -> int | None:
        """Its exit code; None where it still runs, ``within_s`` seconds later too."""
        if self.process is None:
            return None
        with suppress(subprocess.TimeoutExpired):
            return self.process.wait(within_s)
        return None

    def instead_of(self, problem: DemoError) -> str:
        """What is told of a problem: with the server gone, its own reason too."""
        code = self.ended(GRACE_S)
        if code is None:
            return str(problem)
        return f"{problem}; the server ended with exit code {code}: {self.last_words()}"

    def last_words(self) -> str:
        """The server's own one-sentence reason, or else its last line."""
        said = self.log.read_text(errors="replace").strip().splitlines()
        reasons = [line for line in said if re.match(r"stagelens: error: ", line, re.IGNORECASE)]
        last = (reasons or said or ["it ended without a word"])[-1]
        return re.sub(r"^stagelens: (error: )?", "", last, flags=re.IGNORECASE)


def has_gpu() -> bool:
    """Whether an NVIDIA GPU answers, by the same question as `scripts/install.py`."""
    try:
        return subprocess.run(["nvidia-smi", "-L"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _last_line(file: Path) -> str:
    with suppress(OSError):
        with file.open("rb") as log:
            log.seek(max(0, file.stat().st_size - 2000))
            lines = log.read().decode(errors="replace").strip().splitlines()
        if lines:
            return lines[-1].split("] ")[-1][:60].replace("[", "(")
    return ""
