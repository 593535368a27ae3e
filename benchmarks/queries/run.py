"""Percentiles by stage over many requests: from the requests, and from the roll-ups.

Requests are made by the store itself (log-normal stage times, four models, one day), so that
ten million of them take a minute and not an hour. Times are of the reports' own SQL.

    python benchmarks/queries/run.py --requests 10000000 --out queries.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from collectors.store.client import Store, open_store  # noqa: E402
from collectors.store.migrate import migrate  # noqa: E402
from collectors.store.rollups import make_days  # noqa: E402
from collectors.store.settings import StoreSettings  # noqa: E402
from collectors.store.url import StoreUrl  # noqa: E402
from dashboards.filters import Filters  # noqa: E402
from dashboards.queries.rollups import allowed, percentiles_by_stage  # noqa: E402
from dashboards.queries.summary import summary  # noqa: E402
from stagelens.bench.machine import machine, versions  # noqa: E402

DAY_NS = 86_400 * 10**9
CHUNK = 500_000
STAGES = ("Prompt", "Queue", "Prefill", "Decode", "Deliver", "Unattributed")
PAGE = "as the page asks"
"""Exact up to some requests, then out of the roll-ups, or of a part that the answer tells."""
GOALS = {"requests": "at most 300", "rollups": "at most 30", PAGE: "at most 300"}
SPREAD = {"Prompt": 15, "Queue": 17, "Prefill": 18, "Decode": 20, "Deliver": 13, "Unattributed": 12}


def fill(store: Store, requests: int, begin_ns: int) -> None:
    """Insert ``requests`` over one day, in the blocks in which a collector would."""
    values = ", ".join(f"toUInt64(exp(randNormal({mu}, 0.8, {i})))" for i, mu in enumerate(SPREAD.values()))
    names = ", ".join(f"{s}Ns" for s in SPREAD)
    for done in range(0, requests, CHUNK):
        n = min(CHUNK, requests - done)
        store.command(
            f"INSERT INTO {store.database}.requests (Timestamp, TraceId, SpanId, Model, Operation, Route, "
            f"Status, Stream, Warm, Source, InputTokens, OutputTokens, CachedTokens, {names}, E2ENs, "
            "FirstTokenNs, TpotNs, StageCounts) "
            f"SELECT "
            f"fromUnixTimestamp64Nano(toInt64({begin_ns} + (number + {done}) * {DAY_NS // requests})), "
            "lower(hex(randomString(16))), lower(hex(randomString(8))), "
            "concat('model-', toString(number % 4)), "
            "'chat', '/v1/chat/completions', if(rand(90) % 50 = 0, 'error', 'ok'), true, true, 'engine', "
            "rand(91) % 4000, rand(92) % 500, if(rand(93) % 3 = 0, 100, 0), "
            f"t.1, t.2, t.3, t.4, t.5, t.6, t.1 + t.2 + t.3 + t.4 + t.5 + t.6, t.1 + t.2 + t.3, 2e7, "
            "map('prompt', 1, 'queue', 1, 'prefill', 1, 'decode', 1, 'deliver', 1) "
            f"FROM (SELECT number, tuple({values}) AS t FROM numbers({n})) SETTINGS max_insert_threads = 2"
        )


def timed(ask: Callable[[], object], rounds: int) -> list[float]:
    """Milliseconds of each answer after a first one."""
    found = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        ask()
        found.append((time.perf_counter() - began) * 1000)
    return found[1:]


def main() -> int:
    ask = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ask.add_argument("--requests", type=int, default=10_000_000)
    ask.add_argument("--rounds", type=int, default=9)
    ask.add_argument("--folder", type=Path, help="where the store is made, and kept")
    ask.add_argument("--out", type=Path)
    given = ask.parse_args()
    with tempfile.TemporaryDirectory() as text:
        url = StoreUrl.parse(f"chdb://{(given.folder or Path(text)).resolve() / 'store'}")
        store = open_store(url, StoreSettings(ttl_days=10_000, rollup_ttl_days=10_000))
        migrate(store)
        begin = 1_767_225_600 * 10**9
        have = store.query(f"SELECT count() AS n FROM {store.database}.requests", {})[0]["n"]
        if have != given.requests:
            fill(store, given.requests, begin)
            for table in ("requests", "requests_1m", "requests_1h"):
                store.command(f"OPTIMIZE TABLE {store.database}.{table} FINAL")
        make_days(store, (begin + 3 * DAY_NS) // 10**9)  # as the collector does when a day is over
        took = measure(store, given.rounds, begin)
        rows = [{"what": name, "unit": "ms", "values": values, "goal": GOALS[name.rpartition(", ")[2]]}
                for name, values in took.items()]  # fmt: skip
        rows.append({"what": "largest difference of a percentile, roll-ups to requests", "unit": "%",
                     "values": [100 * difference(store, begin)]})  # fmt: skip
        store.close()
    told = {"machine": machine(), "versions": versions(("stagelens", "chdb")),
            "load": f"{given.requests:,} requests of one day; {given.rounds} answers after a first one",
            "rows": rows}  # fmt: skip
    if given.out:
        given.out.write_text(json.dumps(told, indent=1) + "\n")
    return 0


def filters(begin: int, hours: float = 24, **more: object) -> Filters:
    end = begin + int(hours * 3600 * 10**9)
    return Filters(since_unix_ns=begin, until_unix_ns=end, **more)


def measure(store: Store, rounds: int, begin: int) -> dict[str, list[float]]:
    """The answers' times by question and by what it was read from."""
    slices: dict[str, tuple[Filters, tuple[str, ...]]] = {
        "whole day": (filters(begin), ()),
        "whole day by model": (filters(begin), ("model",)),
        "whole day by model and cached": (filters(begin), ("model", "cached")),
        "whole day by input tokens": (filters(begin), ("input_tokens",)),
        "one model, ok": (filters(begin, model=("model-1",), status=("ok",)), ()),
        "one hour by model": (filters(begin, 1), ("model",)),
        "90 minutes by model": (filters(begin, 1.5), ("model",)),
    }
    found: dict[str, list[float]] = {}
    for name, (chosen, by) in slices.items():
        for source in GOALS:
            if source != PAGE and not allowed(chosen, by):
                continue
            key = f"{name}, {source}"
            found[key] = timed(lambda c=chosen, b=by, s=source: answer(store, c, b, s), rounds)
            print(f"{key:50} {min(found[key]):8.1f} {statistics.median(found[key]):8.1f} ms", flush=True)
    return found


def answer(store: Store, chosen: Filters, by: tuple[str, ...], source: str) -> object:
    if source == PAGE:
        return summary(store, chosen, by, now_unix_ns=chosen.until_unix_ns or 0)
    return percentiles_by_stage(store, chosen, by, source=source)  # type: ignore[arg-type]


def difference(store: Store, begin: int) -> float:
    """The largest relative difference of a percentile between both sources."""
    exact = percentiles_by_stage(store, filters(begin), ("model",), source="requests")
    rolled = percentiles_by_stage(store, filters(begin), ("model",), source="rollups")
    by_key = {(row.key, row.quantity): row for row in rolled}
    assert len(by_key) == len(exact) > 0
    worst = 0.0
    for row in exact:
        other = by_key[row.key, row.quantity]
        assert other.n == row.n, (row, other)
        for a, b in zip(row.values_ns, other.values_ns, strict=True):
            worst = max(worst, abs(a - b) / max(a, 1))
    return worst


if __name__ == "__main__":
    sys.exit(main())
