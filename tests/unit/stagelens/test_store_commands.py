"""`stagelens store`: each subcommand on a real store, in processes as a user has them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    where = ["--store", f"chdb://{folder}", "--format", "json"]
    command = [sys.executable, "-m", "stagelens", "store", *arguments, *where]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_store_is_migrated_checked_measured_and_pruned(tmp_path):
    """A fresh folder lacks migrations and says so; then it is in order and empty."""
    folder = tmp_path / "store"
    gone = run(folder, "check")
    assert (gone.returncode, gone.stderr.count("\n")) == (1, 1)
    assert "does not exist" in gone.stderr
    folder.mkdir()
    applied = json.loads(run(folder, "migrate").stdout)["applied"]
    assert applied[0] == 1
    assert json.loads(run(folder, "migrate").stdout) == {"applied": []}
    assert json.loads(run(folder, "check").stdout) == {"ok": True, "migrations": len(applied)}
    names = [one["table"] for one in json.loads(run(folder, "size").stdout)["tables"]]
    assert names == ["stagelens_migrations"]
    assert json.loads(run(folder, "prune", "--days", "1").stdout)["dropped"] == {}
