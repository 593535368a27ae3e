"""What a proxy adds: the same streams direct, through Stagelens, and through others.

One core for the proxy, the other one for the scripted upstream, the load and, where
there is one, the collector. Each round runs all contestants; what is compared are
differences and ratios within a round. Upstream and load have real-time priority where the
machine allows it, so that neither waits for the collector beside them. litellm and
vllm-router are taken from the environments named by --litellm and --vllm-router (a folder
with bin/), and are left out, which is said, where none is given.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.cores import bind, two_cores
from benchmarks.proxy_overhead.ways import WAYS
from stagelens.bench.machine import machine, versions
from tests.support.programs import free_port

HERE = Path(__file__).resolve().parent
TOKENS = 202  # chunks of one stream: role, tokens, end
CORES = two_cores()  # ``one`` is the proxy's, ``other`` that of upstream, load and collector
COLLECTOR_NICE = 10  # as the collector that `stagelens serve` starts: it shares the load's core here


@dataclass
class Figures:
    """One contestant in one round at one number of streams; times in ms, CPU of the proxy."""

    ttft_p50: float
    ttft_p99: float
    e2e_p50: float
    e2e_p99: float
    cpu_s_per_1000_chunks: float
    memory_mib: float
    bad: int


@dataclass
class Proxy:
    """A started contestant: where it listens, and the process whose CPU and memory count."""

    port: int
    process: subprocess.Popen[bytes] | None


def start(
    command: list[str], cores: frozenset[int], log: Path, nice: int = 0, **env: str
) -> subprocess.Popen[bytes]:
    def place() -> None:
        bind(cores)
        os.nice(nice)

    with log.open("wb") as out:
        return subprocess.Popen(
            command, stdout=out, stderr=out, env={**os.environ, **env},
            preexec_fn=place,  # noqa: PLW1509  no threads here
            start_new_session=True,
        )  # fmt: skip


def wait(port: int, path: str, process: subprocess.Popen[bytes], log: Path) -> None:
    give_up = time.monotonic() + 90
    while time.monotonic() < give_up:
        assert process.poll() is None, log.read_text()[-2000:]
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=1).read()
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise AssertionError(f"not ready: {log.read_text()[-2000:]}")


@contextlib.contextmanager
def running(name: str, upstream: int, folder: Path, options: argparse.Namespace) -> Iterator[Proxy]:
    if name == "direct":
        yield Proxy(upstream, None)
        return
    port, log = free_port(), folder / f"{name}.log"
    url = f"http://127.0.0.1:{upstream}"
    helpers: list[subprocess.Popen[bytes]] = []
    env: dict[str, str] = {}
    if name in ("stagelens", "litellm"):
        ready = folder / f"{name}.ready.json"
        collector = start(
            [sys.executable, "-m", "stagelens", "collect", "--store", f"chdb://{folder}/{name}",
             "--otlp-port", "0", "--api-port", "0", "--ready-file", str(ready)],
            CORES.other, folder / "collector.log", COLLECTOR_NICE,
        )  # fmt: skip
        helpers.append(collector)
        while not ready.exists():
            time.sleep(0.1)
        otlp = json.loads(ready.read_text())["collector"]
    if name == "stagelens":
        command = [sys.executable, "-m", "stagelens", "serve", "--upstream", url, "--port", str(port),
                   "--collector", otlp, "--data-dir", str(folder / "data")]  # fmt: skip
    elif name == "stagelens, not tracing":
        command = [sys.executable, str(HERE / "untraced.py"), url, str(port)]
    elif name in WAYS:
        command = [sys.executable, str(HERE / "ways.py"), *WAYS[name], url, str(port)]
    elif name == "litellm":
        config = folder / "litellm.yaml"
        config.write_text(
            f"model_list: [{{model_name: m, litellm_params: {{model: openai/m, api_base: {url}/v1, "
            "api_key: sk-x}}]\nlitellm_settings: {callbacks: [otel], drop_params: true}\n"
        )
        command = [f"{options.litellm}/bin/litellm", "--config", str(config), "--host", "127.0.0.1",
                   "--port", str(port)]  # fmt: skip
        env = {"OTEL_EXPORTER": "otlp_http", "OTEL_ENDPOINT": f"{otlp}/v1/traces",
               "OTEL_EXPORTER_OTLP_ENDPOINT": otlp, "LITELLM_LOG": "ERROR",
               "LITELLM_MASTER_KEY": "sk-bench"}  # fmt: skip
    else:
        command = [f"{options.vllm_router}/bin/vllm-router", "--host", "127.0.0.1", "--port",
                   str(port), "--worker-urls", url, "--policy", "round_robin",
                   "--prometheus-port", str(free_port())]  # fmt: skip
    process = start(command, CORES.one, log, **env)
    try:
        wait(port, "/v1/models", process, log)
        yield Proxy(port, process)
    finally:
        for one in (process, *helpers):  # the collector last: it takes the proxy's last records
            stop(one)


def stop(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)


def measure(proxy: Proxy, streams: int, requests: int) -> Figures:
    load(proxy.port, streams, streams)
    before = cpu_s(proxy)
    seen = load(proxy.port, streams, requests)
    used = cpu_s(proxy) - before
    ttft, e2e = ([v * 1e3 for v in seen[k]] for k in ("ttft", "e2e"))
    return Figures(
        *at(ttft), *at(e2e), used / (len(ttft) * TOKENS) * 1000, memory_mib(proxy), seen["bad"]
    )


def at(values: list[float]) -> tuple[float, float]:
    if len(values) < 2:
        return values[0], values[0]
    return statistics.median(values), statistics.quantiles(values, n=100, method="inclusive")[98]


def load(port: int, streams: int, requests: int) -> dict[str, object]:
    made = subprocess.run(
        [sys.executable, str(HERE / "load.py"), str(port), str(streams), str(requests)],
        check=True, stdout=subprocess.PIPE,
        preexec_fn=lambda: bind(CORES.other),
    )  # fmt: skip
    return json.loads(made.stdout)


def family(pid: int) -> list[int]:
    """A process and its children, so that workers count."""
    found = [pid]
    for entry in Path(f"/proc/{pid}/task").iterdir():
        for child in (entry / "children").read_text().split():
            found += family(int(child))
    return found


def cpu_s(proxy: Proxy) -> float:
    if proxy.process is None:
        return 0.0
    total = 0
    for pid in family(proxy.process.pid):
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def memory_mib(proxy: Proxy) -> float:
    if proxy.process is None:
        return 0.0
    pages = sum(
        int(Path(f"/proc/{p}/statm").read_text().split()[1]) for p in family(proxy.process.pid)
    )
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 16, 128])
    parser.add_argument("--requests-per-stream", type=int, default=3)
    parser.add_argument("--litellm", help="environment with litellm[proxy]")
    parser.add_argument("--vllm-router", help="environment with vllm-router")
    parser.add_argument("--ways", action="store_true", help="also bare forwarding on other libraries")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    names = ["direct", "stagelens", "stagelens, not tracing"]
    names += ["litellm"] if options.litellm else []
    names += ["vllm-router"] if options.vllm_router else []
    names += list(WAYS) if options.ways else []
    rounds = [one_round(names, n, options) for n in range(options.rounds)]
    show(rounds, names, options)
    if options.out:
        facts = {
            "machine": machine(), "versions": versions(("stagelens", "aiohttp", "uvicorn", "uvloop")),
            "load": CORES.told(f"{options.rounds} rounds, streams at once: {options.streams}; one core "
            "for the proxy, one for upstream and load"), "rows": rows(rounds, names, options.streams),
        }  # fmt: skip
        plain = [{f"{n} @ {s}": vars(f) for (n, s), f in r.items()} for r in rounds]
        options.out.write_text(json.dumps({**facts, "rounds": plain}, indent=2))
    return 0


def one_round(
    names: list[str], number: int, options: argparse.Namespace
) -> dict[tuple[str, int], Figures]:
    found: dict[tuple[str, int], Figures] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder, port = Path(scratch), free_port()
        fake = start([sys.executable, str(HERE / "fake.py"), str(port)], CORES.other, folder / "fake.log")
        wait(port, "/v1/models", fake, folder / "fake.log")
        try:
            for name in names if number % 2 == 0 else reversed(names):
                with running(name, port, folder, options) as proxy:
                    for streams in options.streams:
                        requests = max(10, streams * options.requests_per_stream)
                        found[name, streams] = measure(proxy, streams, requests)
                        print(f"round {number + 1}: {name} @ {streams}: {found[name, streams]}",
                              file=sys.stderr)  # fmt: skip
        finally:
            fake.terminate()
            fake.wait(10)
    return found


def rows(
    rounds: list[dict[tuple[str, int], Figures]], names: list[str], streams: list[int]
) -> list[dict[str, object]]:
    """What each proxy adds to direct, in the same round."""
    found: list[dict[str, object]] = []
    for count in streams:
        for name in names[1:]:
            for field, what, unit in (("ttft_p50", "added TTFT p50", "ms"),
                                      ("ttft_p99", "added TTFT p99", "ms"),
                                      ("e2e_p50", "added E2E p50", "ms"),
                                      ("cpu_s_per_1000_chunks", "CPU a 1,000 chunks", "s"),
                                      ("memory_mib", "memory", "MiB")):  # fmt: skip
                added = what.startswith("added")
                values = [getattr(r[name, count], field)
                          - (getattr(r["direct", count], field) if added else 0) for r in rounds]  # fmt: skip
                found.append({"what": f"{name} @ {count}: {what}", "unit": unit, "values": values})
    return found


def show(
    rounds: list[dict[tuple[str, int], Figures]], names: list[str], options: argparse.Namespace
) -> None:
    """Added times against direct in the same round, min / median / max."""
    print(f"machine: {os.cpu_count()} cores, Python {platform.python_version()}; {options.rounds} "
          "rounds; one core for the proxy, one for upstream and load")  # fmt: skip
    head = ("added TTFT p50, ms", "added TTFT p99, ms", "added E2E p50, ms", "CPU s/1000 chunks",
            "memory MiB", "failed")  # fmt: skip
    print(f"{'proxy @ streams':<30}" + "".join(f"{h:>26}" for h in head))
    for streams in options.streams:
        for name in names[1:]:
            cells = []
            for field, added in (("ttft_p50", True), ("ttft_p99", True), ("e2e_p50", True),
                                 ("cpu_s_per_1000_chunks", False), ("memory_mib", False),
                                 ("bad", False)):  # fmt: skip
                values = [
                    getattr(r[name, streams], field)
                    - (getattr(r["direct", streams], field) if added else 0)
                    for r in rounds
                ]
                low, mid, high = min(values), statistics.median(values), max(values)
                cells.append(f"{low:.2f} / {mid:.2f} / {high:.2f}")
            print(f"{name + ' @ ' + str(streams):<30}" + "".join(f"{c:>26}" for c in cells))


if __name__ == "__main__":
    sys.exit(main())
