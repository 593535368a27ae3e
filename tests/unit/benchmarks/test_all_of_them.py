"""`make bench` on a folder of small programs: what failed is told, and no older figure is new."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = '''"""How long is {name}?"""
import argparse, json, pathlib, sys
ask = argparse.ArgumentParser()
ask.add_argument("--out", type=pathlib.Path, help="result")
out = ask.parse_args().out
told = pathlib.Path(__file__).with_name("told.txt").read_text()
if told.startswith("{{"):
    out.write_text(told)
sys.exit(told == "fail")
'''


def result(*values: float, load: str = "some") -> str:
    rows = [{"what": "length", "unit": "ms", "values": list(values), "goal": "short"}]
    return json.dumps({"machine": "a box", "load": load, "rows": rows})


class Bench:
    """The benchmarks' own programs beside two of these."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("all.py", "contestants.py", "page.py"):
            shutil.copy(ROOT / "benchmarks" / name, folder / name)
        for name in ("first", "second"):
            (folder / name).mkdir()
            (folder / name / "run.py").write_text(PROGRAM.format(name=name))
            self.tells(name, result(1, 2, 3))

    def tells(self, name: str, told: str) -> None:
        (self.folder / name / "told.txt").write_text(told)

    def run(self, *options: str, program: str = "all.py") -> tuple[int, str]:
        """Exit code and standard error."""
        made = subprocess.run(
            [sys.executable, str(self.folder / program), *options], capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip
        return made.returncode, made.stderr

    def all(self, *options: str) -> tuple[int, str, str]:
        """And the page."""
        page = self.folder / "page.md"
        code, said = self.run("--alone", "--results", str(self.folder / "r"), "--page", str(page), *options)
        return code, said, page.read_text()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.mark.parametrize("end", ["fail", "nothing"])
def test_a_benchmark_that_failed_keeps_its_figures_as_those_of_an_earlier_run(bench, end):
    """The exit code and the page say so, until it succeeds again."""
    assert bench.all()[0] == 0
    bench.tells("first", end)
    bench.tells("second", result(4))
    for _ in range(2):
        code, said, page = bench.all()
        assert (code, "failed: first" in said) == (1, True)
        first, second = page.split("\n## ")[1:]
        assert first.count("The last run of this benchmark failed.** The figures are of an earlier") == 1
        assert "| length | ms | 1 | 2 | 3 | short |" in first
        assert "failed" not in second
        assert "| length | ms | 4 | 4 | 4 | short |" in second
        assert not (bench.folder / "r" / "first.json").exists()
    bench.tells("first", result(7))
    code, _, page = bench.all()
    assert (code, "failed" in page) == (0, False)
    assert "| length | ms | 7 | 7 | 7 | short |" in page


def test_a_benchmark_that_never_had_figures_has_a_section_that_says_why(bench):
    """Its failure is not hidden by its absence."""
    bench.tells("first", "fail")
    _, _, page = bench.all()
    assert "How long is first?\n\n**The last run of this benchmark failed.** There are no figures" in page


def test_several_results_of_one_benchmark_are_one_section(bench):
    """Values are put together by figure; a file of no benchmark is left out and told."""
    results = bench.folder / "r"
    results.mkdir()
    (results / "first.json").write_text(result(1, 2))
    (results / "first.2.json").write_text(result(9, load="more"))
    (results / "stray.json").write_text(result(5))
    code, said = bench.run(str(results), str(bench.folder / "page.md"), program="page.py")
    page = (bench.folder / "page.md").read_text()
    assert (code, said) == (0, "stray.json is of no benchmark: left out\n")
    assert page.count("\n## ") == 1
    assert "| length | ms | 1 | 2 | 9 | short |" in page
    assert "Load: more; some." in page


def test_a_result_that_is_no_json_costs_the_others_nothing(bench):
    """A benchmark that was killed while it wrote."""
    results = bench.folder / "r"
    results.mkdir()
    (results / "first.json").write_text('{"rows": [')
    (results / "second.json").write_text(result(5))
    code, said = bench.run(str(results), str(bench.folder / "page.md"), program="page.py")
    page = (bench.folder / "page.md").read_text()
    assert (code, "first.json cannot be read" in said) == (1, True)
    assert "| length | ms | 5 | 5 | 5 | short |" in page
    assert "## first\n" in page


def test_a_model_that_is_no_folder_is_told_before_anything_is_installed(bench):
    """One sentence, exit code 2."""
    code, said = bench.run("--model", str(bench.folder / "none"), "--results", str(bench.folder / "r"))
    assert code == 2
    assert said.endswith("none is no folder: name the one of the model's files\n")
    assert "installing" not in said
    assert not (bench.folder / "r").exists()
