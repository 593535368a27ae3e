"""`stagelens documents`, in processes as a user has them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from stagelens.cli import cli
from stagelens.errors import UserError


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stagelens", "documents", *arguments,
               "--data-dir", str(folder / "data")]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder,
                          env={**os.environ, "PYTHONPATH": str(Path.cwd()), **environment})  # fmt: skip


def test_documents_are_added_listed_and_removed_without_a_collector(tmp_path: Path):
    """A fresh data folder gets its store; the packaged model makes the vectors, off line."""
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.md").write_text("The cat sleeps.\n\n" * 40)
    (tmp_path / "b.txt").write_text("The ship sails.")
    added = run(tmp_path, "add", "texts", "b.txt", "--chunk-chars", "200", "--overlap-chars", "20",
                HF_HUB_OFFLINE="1")  # fmt: skip
    assert added.returncode == 0, added.stderr
    assert added.stdout.splitlines()[1] == "b.txt: 1 chunk"
    listed = json.loads(run(tmp_path, "list", "--format", "json").stdout)["documents"]
    assert [one["source"] for one in listed] == ["b.txt", "texts/a.md"]
    assert {(one["model"], one["dimensions"]) for one in listed} == {("all-MiniLM-L6-v2", 384)}
    assert listed[1]["chunks"] > 3
    other = run(tmp_path, "add", "b.txt", "--embedding", "none")
    assert (other.returncode, other.stderr.count("\n")) == (1, 1)
    assert "holds vectors of all-MiniLM-L6-v2 (384 numbers)" in other.stderr
    gone = run(tmp_path, "remove", "nope")
    assert (gone.returncode, gone.stderr.count("\n")) == (1, 1)
    assert "document 'nope' is not in collection 'documents'" in gone.stderr
    assert "removed 1 documents" in run(tmp_path, "remove", "b.txt").stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["add", "nope"], "nope does not exist"),
        (["add", "a.txt", "--embedding", "remote"], "--embedding remote is not known"),
        (["add", "a.txt", "--embedding", "http://h/v1"], "needs --embedding-model"),
        (["add", "a.txt", "--embedding", "ftp://h", "--embedding-model", "m"], "a URL is given as"),
        (["add", "a.txt", "--embedding-key-env", "K"], "goes with the URL"),
        (["add", "a.txt", "--chunk-chars", "100", "--overlap-chars", "90"], "more than half"),
        (["add", "a.txt", "--embedding", "none", "--embedding-model", "m"], "goes with"),
        (["add", "a.txt", "--collection", "two words"], "collection: "),
        (["add", "two\nlines.txt"], "a name that cannot be kept"),
        (["add", "long.txt", "--chunk-chars", "100", "--overlap-chars", "0"], "more than 20000"),
        (["remove"], "name the documents to remove, or give --all"),
        (["list", "--store", "chdb:///x", "--collector", "http://h"], "give one of them"),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path: Path, monkeypatch, arguments: list[str], words: str):
    """Each names the option or file and what is wrong with it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "two\nlines.txt").write_text("x")
    (tmp_path / "long.txt").write_text("word " * 400_100)
    result = CliRunner().invoke(cli, ["documents", *arguments])
    assert words in str(result.exception)
    assert getattr(result.exception, "exit_code", None) == 2
    assert isinstance(result.exception, UserError) or "StoreError" in {
        base.__name__ for base in type(result.exception).__mro__
    }


def test_a_collector_that_is_not_there_is_one_sentence(tmp_path: Path):
    """Exit code 1, and how to start one."""
    said = run(tmp_path, "list", "--collector", "http://127.0.0.1:9")
    assert (said.returncode, said.stderr.count("\n")) == (1, 1)
    assert "no collector answers at http://127.0.0.1:9" in said.stderr


@pytest.mark.parametrize("command", [["list"], ["remove", "a.txt"]])
@pytest.mark.parametrize("where", [["--data-dir", "data"], ["--store", "chdb://{folder}/data"]])
def test_reading_and_removing_make_no_store(
    tmp_path: Path, monkeypatch, command: list[str], where: list[str]
):
    """Where there is none, that is said, and the folder stays as it was."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    given = [part.format(folder=tmp_path) for part in where]
    result = CliRunner().invoke(cli, ["documents", *command, *given])
    assert re.search("holds no store|does not exist", str(result.exception))
    assert list((tmp_path / "data").iterdir()) == []
