"""Signatures and types of decorated functions are kept, as users' type checkers see them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
USE = Path(__file__).with_name("sdk_use.py")


def test_mypy_strict_finds_the_types_and_the_mistakes(tmp_path):
    """Every assert_type holds, and each marked mistake is one."""
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--config-file", os.devnull, str(USE)],
        capture_output=True, text=True, check=False, cwd=ROOT, timeout=300,
        env={**os.environ, "MYPYPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_pyright_finds_them_as_well(tmp_path):
    """The same file, strictly; an ignore that is not needed is an error."""
    config = tmp_path / "pyrightconfig.json"
    config.write_text(
        f'{{"include": ["{USE}"], "extraPaths": ["{ROOT}"], "typeCheckingMode": "strict",'
        ' "reportUnnecessaryTypeIgnoreComment": "error", "enableTypeIgnoreComments": true}'
    )
    done = subprocess.run(
        [Path(sys.executable).with_name("basedpyright"), "--project", config, "--pythonpath", sys.executable],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
