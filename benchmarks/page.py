"""docs/benchmarks.md from the JSON that the benchmarks write: RESULTS folder, PAGE file.

`--failed` names the benchmarks that did not come to their end: their sections say so.

A result has `machine`, `versions`, `load` (a sentence) and `rows`: `what`, `unit`,
`values` (one a round) and `goal`. One without `rows` is shown as the numbers that it holds,
by their names. A folder's run.py gives the section its words. Several results of one benchmark
(`NAME.json`, `NAME.2.json`) are one section. A benchmark without a result keeps the section that
the page has of it.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import statistics
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
HEAD = """# The project's own numbers

Made by `make bench` (benchmarks/page.py) from the JSON of each benchmark. Contestants take turns
within a round; min, median and max are over the rounds. A machine that does other work beside
gives other figures: compare the ratios and differences, not the times.
"""
FAILED = "**The last run of this benchmark failed.**"


def program_of(name: str) -> Path | None:
    """The benchmark's program; None: there is no such benchmark."""
    places = (HERE / name / "run.py", *HERE.glob(f"*/{name}.py"))
    return next((place for place in places if place.is_file()), None)


def words_of(name: str) -> str:
    """The docstring of the benchmark's program."""
    run = program_of(name)
    return ast.get_docstring(ast.parse(run.read_text())) or "" if run else ""


def section(name: str, told: dict[str, object]) -> str:
    versions = ", ".join(f"{k} {v}" for k, v in dict(told.get("versions") or {}).items())
    machine = told.get("machine") or f"{told.get('cpus', 'unknown')} cores"
    facts = [f"Machine: {machine}."]
    facts += [f"Load: {told['load']}."] if told.get("load") else []
    facts += [f"Versions: {versions}."] if versions else []
    rows = "\n".join(line(row) for row in rows_of(told))
    table = f"| figure | unit | min | median | max | goal |\n|---|---|---|---|---|---|\n{rows}\n"
    return f"## {name}\n\n{words_of(name)}\n\n{' '.join(facts)}\n\n{table if rows else ''}"


def rows_of(told: dict[str, object]) -> list[dict[str, object]]:
    """Its rows; without any, one for each number or list of numbers in it."""
    if isinstance(told.get("rows"), list):
        return told["rows"]  # type: ignore[return-value]
    found: dict[str, list[float]] = {}
    for name, value in told.items():
        if name not in {"cpus", "machine", "versions", "load", "python"}:
            gather(name, value, found)
    return [{"what": name, "values": values} for name, values in found.items()]


def gather(name: str, value: object, found: dict[str, list[float]]) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            gather(f"{name}, {key}", inner, found)
    elif isinstance(value, list):
        for inner in value:
            gather(name, inner, found)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        found.setdefault(name, []).append(value)


def line(row: dict[str, object]) -> str:
    values = [v for v in row["values"] if v is not None]  # type: ignore[attr-defined]
    told = [min(values), statistics.median(values), max(values)] if values else []
    cells = [f"{v:.4g}" if abs(v) < 10_000 else f"{v:,.0f}" for v in told] or ["no data"] * 3
    what = str(row["what"]).replace("|", "\\|")
    return f"| {what} | {row.get('unit') or ''} | {' | '.join(cells)} | {row.get('goal') or ''} |"


def main() -> int:
    ask = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    ask.add_argument("results", type=Path)
    ask.add_argument("page", type=Path)
    ask.add_argument("--failed", nargs="*", default=[])
    options = ask.parse_args()
    parts = earlier(options.page)
    told, unread = read_all(options.results)
    for name, results in told.items():
        parts[name] = section(name, merged(results))
    for name in dict.fromkeys([*options.failed, *unread]):
        parts[name] = with_failure(name, parts.get(name), fresh=name in told)
    told_all = [parts[name].rstrip() + "\n" for name in sorted(parts)]
    options.page.write_text("\n".join([HEAD, *told_all]).rstrip() + "\n")
    return 1 if unread else 0


def read_all(folder: Path) -> tuple[dict[str, list[dict[str, object]]], list[str]]:
    """The results by benchmark, and the benchmarks of which a file cannot be read; all else is told."""
    found: dict[str, list[dict[str, object]]] = {}
    unread: list[str] = []
    for file in sorted(folder.glob("*.json")):
        name = file.name.split(".")[0]
        if program_of(name) is None:
            print(f"{file.name} is of no benchmark: left out", file=sys.stderr)
        elif (told := read(file)) is None:
            unread.append(name)
        elif rows_of(told):
            found.setdefault(name, []).append(told)
        else:
            print(f"{file.name} has no figures: left out", file=sys.stderr)
    return found, unread


def merged(results: list[dict[str, object]]) -> dict[str, object]:
    """One result: the values of a figure in all of them, with the first one's unit and goal."""
    rows: dict[object, dict[str, object]] = {}
    for row in (row for told in results for row in rows_of(told)):
        known = rows.setdefault(row["what"], {**row, "values": []})
        known["values"] = [*known["values"], *row["values"]]  # type: ignore[misc]
    facts = {
        key: "; ".join(dict.fromkeys(str(one[key]) for one in results if one.get(key)))
        for key in ("machine", "load")
    }
    return {**results[0], **{k: v for k, v in facts.items() if v}, "rows": list(rows.values())}


def read(file: Path) -> dict[str, object] | None:
    """A benchmark's result; None, which is told, where the file holds none."""
    try:
        told = json.loads(file.read_text())
    except (OSError, ValueError) as problem:
        print(f"{file.name} cannot be read: {problem}", file=sys.stderr)
        return None
    if isinstance(told, dict):
        return told
    print(f"{file.name} cannot be read: it is no object", file=sys.stderr)
    return None


def with_failure(name: str, part: str | None, *, fresh: bool) -> str:
    """The section with a sentence under its head on whose figures these are."""
    if part is None:
        return f"## {name}\n\n{words_of(name)}\n\n{FAILED} There are no figures of it."
    head, rest = part.split("\n", 1)
    whose = "The figures are those that it wrote before." if fresh else "The figures are of an earlier run."
    return f"{head}\n\n{FAILED} {whose}\n{rest}"


def earlier(page: Path) -> dict[str, str]:
    """The sections that the page has, by benchmark: one that was not run keeps its own."""
    text = page.read_text() if page.is_file() else ""
    parts = {part.split("\n", 1)[0]: f"## {part}" for part in text.split("\n## ")[1:]}
    return {name: re.sub(rf"\n{re.escape(FAILED)}.*\n", "", part) for name, part in parts.items()}


if __name__ == "__main__":
    sys.exit(main())
