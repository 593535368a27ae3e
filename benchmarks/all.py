"""All benchmarks of this folder, one after the other, and the page of their figures.

Each `benchmarks/*/run.py` is run with `--out`, and with `--model` where it takes one. One
that fails is told, by the exit code and on the page, which then keeps its earlier figures and
says so; the result of an earlier run is removed first. The other programs of the comparisons
are installed beside, unless `--alone` is given. `--brief` takes one round, smaller stores and
minutes instead of an hour. Nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from contestants import options_for, prepare

HERE = Path(__file__).resolve().parent
BESIDE = ("agreement", "known_truth")
BRIEF = {"--rounds": "1", "--pairs": "2", "--phoenix-spans": "1000"}
BRIEF_OF = {
    "page": {"--requests": "1000000"}, "queries": {"--requests": "1000000"},
    "proxy_overhead": {"--streams": "128"},
}  # fmt: skip


def found() -> dict[str, Path]:
    """The runs by name: each folder's, and those that stand beside one."""
    runs = {one.parent.name: one for one in sorted(HERE.glob("*/run.py"))}
    return runs | {one.stem: one for name in BESIDE for one in HERE.glob(f"*/{name}.py")}


def taken(run: Path) -> str:
    """What the program says of its options."""
    asked = [sys.executable, str(run), "--help"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout


def command_of(
    name: str, run: Path, options: argparse.Namespace, others: dict[str, Path]
) -> list[str] | None:
    """The command, with every wanted option that the benchmark takes; None where one is missing."""
    help_text = taken(run)
    if "--model" in help_text and not options.model:
        print(f"{name}: left out, it needs --model", file=sys.stderr)
        return None
    wanted = {"--out": str(options.results / f"{name}.json"), "--model": options.model or ""}
    wanted |= options_for(name, others)
    if options.brief:
        wanted |= BRIEF | BRIEF_OF.get(name, {})
    python = str(others["sdks"] / "bin" / "python") if name == "sdk" and "sdks" in others else sys.executable
    given = [word for key, value in wanted.items() if f"{key} " in help_text for word in (key, value)]
    return [python, str(run), *given]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="folder of the model for those that serve one")
    parser.add_argument("--results", type=Path, default=Path(".cache/benchmarks"))
    parser.add_argument("--only", nargs="+", choices=list(found()), help="these alone")
    parser.add_argument("--alone", action="store_true", help="without the other programs")
    parser.add_argument("--brief", action="store_true", help="one round, smaller stores")
    parser.add_argument("--page", type=Path, default=HERE.parent / "docs" / "benchmarks.md")
    options = parser.parse_args()
    if options.model and not Path(options.model).is_dir():
        parser.error(f"--model {options.model} is no folder: name the one of the model's files")
    options.results.mkdir(parents=True, exist_ok=True)
    model = Path(options.model) if options.model else None
    others = {} if options.alone else prepare((options.results.parent / "contestants").absolute(), model)
    wanted = {name: run for name, run in found().items() if name in (options.only or found())}
    failed = [name for name, run in wanted.items() if not ran_well(name, run, options, others)]
    page = [sys.executable, str(HERE / "page.py"), str(options.results), str(options.page)]
    made = subprocess.run([*page, "--failed", *failed], check=False).returncode == 0
    if made:
        print(f"{options.page} is made of {options.results}")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 0 if made and not failed else 1


def ran_well(
    name: str, run: Path, options: argparse.Namespace, others: dict[str, Path]
) -> bool:
    """Whether it came to its end with a result of its own, or is left out for want of a model.

    Nothing of an earlier run is there when it starts.
    """
    command = command_of(name, run, options, others)
    if command is None:
        return True
    result = options.results / f"{name}.json"
    for older in (result, *options.results.glob(f"{name}.*.json")):
        older.unlink(missing_ok=True)
    print(f"== {name} ({time.strftime('%H:%M')})", flush=True)
    return subprocess.run(command, check=False).returncode == 0 and result.is_file()


if __name__ == "__main__":
    sys.exit(main())
