"""How long each view of the page waits for its figures, over a store with many requests.

    python benchmarks/page/run.py --requests 10000000 --out page.json

The API runs in this process over the embedded ClickHouse and is asked over HTTP, one
question at a time as the page asks. Each question is asked in several rounds; the first
answer is kept apart, because ClickHouse's caches are cold for it. With `--store DIR` the
filled store stays and is used again; its clock then stands at its latest request.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from importlib.metadata import version
from pathlib import Path
from socket import create_server
from urllib.parse import quote

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import uvicorn
from fill import GAPS, fill

from collectors.store.client import Store, StoreSettings, open_store
from collectors.store.migrate import migrate
from collectors.store.rollups import make_days
from collectors.store.url import StoreUrl
from dashboards.api import build_api
from tracer.clock import SystemClock


class StoppedClock(SystemClock):
    """The instant at which the store was filled, so that a kept one still has a last hour."""

    def __init__(self, at_unix_ns: int) -> None:
        self._at = at_unix_ns

    def unix_ns(self) -> int:
        return self._at


FIRST_PAINT_S, ANY_VIEW_S = 1.0, 2.0
BY = (
    "model",
    "route",
    "status",
    "cached",
    "warm",
    "input_tokens",
    "output_tokens",
    "concurrency",
    "tag:tenant",
)


def views(days: float, trace_id: str) -> dict[str, list[str]]:
    """The questions of each view, in the order in which the page asks them."""
    found: dict[str, list[str]] = {}
    for name, since in (("1 h", "1h"), ("all", f"{days:g}d")):
        at = f"since={since}"
        found[f"overview, {name}: first figures"] = [f"/summary?{at}"]
        found[f"overview, {name}: over time"] = [f"/series?{at}&measure=e2e"]
        for by in BY:
            found[f"slices by {by}, {name}"] = [f"/summary?{at}&by={quote(by)}"]
        for sort in ("start", "e2e", "ttft"):
            found[f"requests by {sort}, {name}"] = [f"/requests?{at}&sort={sort}&limit=100"]
        found[f"filters' values, {name}"] = [f"/facets?{at}"]
        found[f"what if, {name}"] = [f"/whatif?{at}&change=decode%3D-20%25"]
        for path in ("attribution?measure=e2e&", "path?", "interference?", "cache?", "throughput?"):
            found[f"{path.partition('?')[0]}, {name}"] = [f"/{path}{at}"]
        found[f"goodput, {name}"] = [f"/goodput?{at}&ttft=1s&tpot=100ms"]
        found[f"one tenant, {name}"] = [f"/summary?{at}&tag=tenant%3Dt1"]
    found["overview, all, of one model: first figures"] = [f"/summary?since={days:g}d&model=small"]
    found["overview, all, TTFT heat map"] = [f"/series?since={days:g}d&measure=ttft"]
    found["compare two hours"] = ["/compare?a=2h..1h&b=1h..now"]
    found["compare two halves"] = [f"/compare?a={days:g}d..{days / 2:g}d&b={days / 2:g}d..now"]
    found["report (exact), 1 h"] = ["/report?since=1h"]
    found["live tail"] = ["/requests?since=1h&sort=end&limit=200"]
    found["one trace"] = [f"/traces/{trace_id}", f"/traces/{trace_id}/engine"]
    return found


def main() -> int:
    asked = arguments()
    with tempfile.TemporaryDirectory(prefix="stagelens-page-") as folder:
        root = asked.store or Path(folder)
        store = open_store(StoreUrl(kind="chdb", path=root / "store"), StoreSettings(ttl_days=400))
        try:
            migrate(store)
            took = filled(store, asked, SystemClock().unix_ns())
            result = measured(store, asked, took)
        finally:
            store.close()
    print_table(result)
    if asked.out is not None:
        asked.out.write_text(json.dumps(result, indent=2) + "\n")
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000_000)
    parser.add_argument("--days", type=float, default=7.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--store", type=Path, help="folder that is kept, and used again if it is filled"
    )
    parser.add_argument("--out", type=Path, help="the figures as JSON")
    parser.add_argument("--only", default="", help="only the views whose name holds this")
    return parser.parse_args()


def filled(store: Store, asked: argparse.Namespace, now: int) -> float | None:
    """Seconds that filling took; None where the store was filled before."""
    database = store.database
    if int(str(store.query(f"SELECT count() AS n FROM `{database}`.requests", {})[0]["n"])):
        return None
    began = time.perf_counter()
    fill(store, asked.requests, asked.days, now, traced_hours=min(1.0, asked.days * 24))
    make_days(store, now // 10**9)
    return time.perf_counter() - began


def latest_ns(store: Store) -> int:
    """When the latest request began."""
    sql = f"SELECT toUnixTimestamp64Nano(max(Timestamp)) AS at FROM `{store.database}`.requests"
    return int(str(store.query(sql, {})[0]["at"]))


def measured(store: Store, asked: argparse.Namespace, took: float | None) -> dict[str, object]:
    database = store.database
    last = store.query(
        f"SELECT TraceId AS id FROM `{database}`.otel_traces ORDER BY Timestamp DESC LIMIT 1 OFFSET 400",
        {},
    )
    rows = int(str(store.query(f"SELECT count() AS n FROM `{database}`.requests", {})[0]["n"]))
    sock = create_server(("127.0.0.1", 0))
    api = build_api(store, None, StoppedClock(latest_ns(store) + 1))
    config = uvicorn.Config(api, log_level="critical", lifespan="off", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([sock],))
    thread.start()
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    try:
        found = [
            timed(name, url, paths, asked.rounds)
            for name, paths in views(asked.days, str(last[0]["id"])).items()
            if asked.only in name
        ]
    finally:
        server.should_exit = True
        thread.join(10)
        sock.close()
    return {
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "versions": {"python": platform.python_version(), "chdb": version("chdb")},
        "load": (
            f"{rows:,} requests over {asked.days:g} days, {GAPS} gaps each; filled in "
            f"{'an earlier run' if took is None else f'{took:.0f} s'}; peak memory of the process "
            f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB"
        ),
        "rows": found,
    }  # fmt: skip


def timed(name: str, url: str, paths: list[str], rounds: int) -> dict[str, object]:
    """Seconds of all of a view's questions together, a value a round after a first one.

    ``cpu`` are those that this process spent on its cores: what runs beside changes them little.
    """
    times: list[float] = []
    spent: list[float] = []
    size, problem = 0, None
    for _ in range(rounds + 1):
        began, cpu = time.perf_counter(), time.process_time()
        try:
            size = sum(len(urllib.request.urlopen(f"{url}/api/v1{path}").read()) for path in paths)
        except urllib.error.HTTPError as refused:
            problem = json.loads(refused.read())["detail"]
        times.append(round(time.perf_counter() - began, 4))
        spent.append(round(time.process_time() - cpu, 4))
    goal = FIRST_PAINT_S if "first figures" in name else ANY_VIEW_S
    return {
        "what": name if problem is None else f"{name} (refused: {problem})",
        "unit": "s", "values": times[1:], "goal": f"at most {goal:g}", "first": times[0], "cpu": spent[1:],
        "bytes": size,
    }  # fmt: skip


def print_table(result: dict[str, object]) -> None:
    print(f"{result['load']}; {result['machine']}")
    print(f"{'view':<48}{'first s':>9}{'min s':>8}{'median s':>10}{'max s':>8}{'CPU s':>8}{'KiB':>8}")
    rows = result["rows"]
    assert isinstance(rows, list)
    for row in rows:
        values = row["values"]
        least, median, most = min(values), statistics.median(values), max(values)
        over = "over the goal" if median > float(row["goal"].split()[-1]) else ""
        times = f"{row['first']:>9.3f}{least:>8.3f}{median:>10.3f}{most:>8.3f}{min(row['cpu']):>8.2f}"
        print(f"{row['what']:<48}{times}{row['bytes'] / 1024:>8.0f}  {over}")


if __name__ == "__main__":
    sys.exit(main())
