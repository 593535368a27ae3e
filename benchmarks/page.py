"""docs/benchmarks.md from the JSON that the benchmarks write: RESULTS folder, PAGE file.

A result has `machine`, `versions`, `load` (a sentence) and `rows`: `what`, `unit`,
`values` (one a round) and `goal`. One without `rows` is shown as the numbers that it holds,
by their names. A folder's run.py gives the section its words. A benchmark without a result
keeps the section that the page has of it.
"""

from __future__ import annotations

import ast
import json
import statistics
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
HEAD = """# The project's own numbers

Made by `make bench` (benchmarks/page.py) from the JSON of each benchmark. Contestants take turns
within a round; min, median and max are over the rounds. A machine that does other work beside
gives other figures: compare the ratios and differences, not the times.
"""


def words_of(name: str) -> str:
    """The docstring of the benchmark's program."""
    for run in (HERE / name / "run.py", *HERE.glob(f"*/{name}.py")):
        if run.is_file():
            return ast.get_docstring(ast.parse(run.read_text())) or ""
    return ""


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
    results, page = map(Path, sys.argv[1:3])
    parts = earlier(page)
    for file in sorted(results.glob("*.json")):
        told = json.loads(file.read_text())
        if rows_of(told):
            parts[file.stem] = section(file.stem, told)
        else:
            print(f"{file.name} has no figures: left out", file=sys.stderr)
    told_all = [parts[name].rstrip() + "\n" for name in sorted(parts)]
    page.write_text("\n".join([HEAD, *told_all]).rstrip() + "\n")
    return 0


def earlier(page: Path) -> dict[str, str]:
    """The sections that the page has, by benchmark: one that was not run keeps its own."""
    text = page.read_text() if page.is_file() else ""
    return {part.split("\n", 1)[0]: f"## {part}" for part in text.split("\n## ")[1:]}


if __name__ == "__main__":
    sys.exit(main())
