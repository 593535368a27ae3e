"""The collector as a child: what is said when it ends and when its start fails."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from stagelens.child import CollectorChild

TRIES = """
import json, os, pathlib, sys
folder = pathlib.Path(sys.argv[1])
tries = len(list(folder.glob("try-*")))
(folder / f"try-{tries}").touch()
if tries in (1, 2):
    sys.exit(f"stagelens: error: no luck {tries}")
told = {"pid": os.getpid(), "collector": "http://h:1", "grpc": "h:2", "api": "http://h:3"}
(folder / "partial").write_text(json.dumps(told))
(folder / "partial").replace(folder / "ready")
sys.stdin.read(1 if tries == 0 else -1)
"""


class Scripted(CollectorChild):
    """Runs once, fails to start twice, and then runs until it is told to stop."""

    folder: Path

    def _command(self, ports: Sequence[str]) -> list[str]:
        return [sys.executable, "-c", TRIES, str(self.folder)]


class Heard(logging.Handler):
    """Keeps what is said, and tells when it runs again."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []
        self.again = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())
        if "runs again" in self.said[-1]:
            self.again.set()


@pytest.fixture
def heard():
    handler = Heard()
    logging.getLogger("stagelens").addHandler(handler)
    yield handler
    logging.getLogger("stagelens").removeHandler(handler)


def test_an_end_is_told_once_and_each_failed_start_as_one(tmp_path, heard):
    """One line for the end, one a failed start with its reason, one when it runs again."""
    Scripted.folder = tmp_path
    child = Scripted((), tmp_path / "ready", tmp_path / "log")
    child._process.stdin.write(b"x")
    child._process.stdin.flush()
    assert heard.again.wait(60)
    assert child.stop(30)
    assert [" ".join(line.split()[:4]).rstrip(":") for line in heard.said] == [
        "the collector ended (exit", "the collector's start failed", "the collector's start failed",
        "the collector runs again",
    ]  # fmt: skip
    assert ["no luck 1" in heard.said[1], "no luck 2" in heard.said[2]] == [True, True]
