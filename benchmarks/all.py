"""All benchmarks of this folder, one after the other, and the page of their figures.

Each `benchmarks/*/run.py` is run with `--out`, and with `--model` where it takes one. One
that fails is told and left out of the page. Nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
BESIDE = ("agreement", "known_truth")


def found() -> dict[str, Path]:
    """The runs by name: each folder's, and those that stand beside one."""
    runs = {one.parent.name: one for one in sorted(HERE.glob("*/run.py"))}
    return runs | {one.stem: one for name in BESIDE for one in HERE.glob(f"*/{name}.py")}


def takes(run: Path, option: str) -> bool:
    told = subprocess.run([sys.executable, str(run), "--help"], capture_output=True, text=True, check=True)
    return option in told.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="folder of the model for those that serve one")
    parser.add_argument("--results", type=Path, default=Path(".cache/benchmarks"))
    parser.add_argument("--only", nargs="+", choices=list(found()), help="these alone")
    parser.add_argument("--page", type=Path, default=HERE.parent / "docs" / "benchmarks.md")
    options = parser.parse_args()
    options.results.mkdir(parents=True, exist_ok=True)
    failed = []
    for name, run in found().items():
        if options.only and name not in options.only:
            continue
        if not takes(run, "--out"):
            print(f"{name}: left out, it writes no JSON", file=sys.stderr)
            continue
        command = [sys.executable, str(run), "--out", str(options.results / f"{name}.json")]
        if takes(run, "--model"):
            if not options.model:
                print(f"{name}: left out, it needs --model", file=sys.stderr)
                continue
            command += ["--model", options.model]
        print(f"== {name}", flush=True)
        if subprocess.run(command, check=False).returncode:
            failed.append(name)
    page = [sys.executable, str(HERE / "page.py"), str(options.results), str(options.page)]
    subprocess.run(page, check=True)
    print(f"{options.page} is made of {options.results}")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
