"""How the command ends when it is interrupted early, or its output takes nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

FULL = Path("/dev/full")
PRESSED = """
import builtins, os, runpy, signal, sys
sys.argv = ["stagelens", *sys.argv[2:]]
plain, at = builtins.__import__, os.environ["PRESS_AT"]
def loaded(name, *more):
    if name == at:
        builtins.__import__ = plain
        signal.raise_signal(signal.SIGINT)
    return plain(name, *more)
signal.signal(signal.SIGINT, signal.default_int_handler)
from stagelens.entry import main
builtins.__import__ = loaded
main()
"""


def ended(*command: str, out: int = subprocess.PIPE, **env: str) -> tuple[int, str]:
    """Exit code and what standard error holds."""
    made = subprocess.run(
        [sys.executable, *command], check=False, stdout=out, stderr=subprocess.PIPE, text=True,
        env={**os.environ, **env}, timeout=60, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return made.returncode, made.stderr


@pytest.mark.parametrize(
    ("at", "command"),
    [
        ("stagelens.cli", ("bench",)),
        ("click", ("bench",)),
        ("stagelens.bench.whole", ("bench", "--url", "http://127.0.0.1:9", "--rate", "1")),
        ("dashboards.terminal.report", ("report",)),
    ],
)
def test_an_interrupt_while_modules_are_loaded_is_one_line_and_130(at, command):
    """From the first import of the command on, whichever command it is."""
    code, err = ended("-c", PRESSED, "-", *command, PRESS_AT=at)
    assert code == 128 + signal.SIGINT
    assert err.count("\n") == 1
    assert err.startswith("stagelens: ")


@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
@pytest.mark.parametrize("options", [("--version",), ("--help",), ("doctor", "--format", "json")])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_output_that_takes_nothing_is_one_line_and_exit_code_1(options, unbuffered):
    """Whatever prints: no traceback, and no complaint as Python ends."""
    with FULL.open("wb") as full:
        code, err = ended("-m", "stagelens", *options, out=full.fileno(), PYTHONUNBUFFERED=unbuffered)
    assert (code, err) == (
        1, "stagelens: error: standard output could not be written (No space left on device)\n"
    )  # fmt: skip
