"""A full disk: senders are sent away, and what was acknowledged is stored once there is room."""

from __future__ import annotations

import subprocess
from pathlib import Path

import httpx
import pytest

from tests.faults.collectors.live_collector import Collector, stored
from tests.faults.collectors.test_killed import BODY_SPANS, PROTOBUF, body

MOUNT = 'mount -t tmpfs -o size=48m tmpfs "$0" && "$@"; cp -a "$0" "$0.after"'
"""A disk of its own for one folder, seen by one process; copied to the real one at the end."""


def may_mount(folder: Path) -> bool:
    folder.mkdir()
    done = subprocess.run(
        ["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", str(folder)],
        capture_output=True, check=False,
    )  # fmt: skip
    return done.returncode == 0


def post(collector: Collector, number: int) -> int:
    answer = httpx.post(
        f"{collector.otlp}/v1/traces", content=body(number), headers=PROTOBUF, timeout=60
    )
    return answer.status_code


def fill(file: Path) -> None:
    """Take all room that is left on its disk."""
    with file.open("wb", buffering=0) as ballast:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while ballast.write(bytes(size)) == size:
                    pass
            except OSError:
                continue


def test_a_full_disk_loses_nothing_that_was_acknowledged(tmp_path):
    """503 while it is full; 200 again when there is room, and every acknowledged span is there once."""
    if not may_mount(tmp_path / "try"):
        pytest.skip("mounting a tmpfs is not allowed here")
    disk = tmp_path / "disk"
    disk.mkdir()
    wrap = ("unshare", "-m", "sh", "-c", MOUNT, str(disk))
    collector = Collector(tmp_path, wrap=wrap, store=disk / "store")
    inside = Path(f"/proc/{collector.pid}/root{disk}")
    taken = [n for n in range(3) if post(collector, n) == 200]
    assert len(taken) == 3
    fill(inside / "ballast")
    answers = {n: post(collector, n) for n in range(3, 40)}
    assert set(answers.values()) <= {200, 503}
    assert 503 in answers.values()
    taken += [n for n, answer in answers.items() if answer == 200]
    (inside / "ballast").unlink()
    again = [n for n, answer in answers.items() if answer == 503]
    assert [post(collector, n) for n in again] == [200] * len(again)
    now = collector.settle()
    collector.end()
    spans = BODY_SPANS * (len(taken) + len(again))
    assert (now["received"], now["written"]) == (spans, spans)
    assert stored(f"chdb://{disk}.after/store") == (spans, spans)
