"""Small programs that use the SDK, run as a user's would: in a process of their own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap

COMMON = """
import asyncio, os, sys, time
import tracer

@tracer.tool
def look(x=1):
    return x
"""


def run(code: str, *, code_wanted: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` after ``COMMON``; its exit code is checked."""
    done = subprocess.run(
        [sys.executable, "-c", COMMON + textwrap.dedent(code)], capture_output=True, text=True,
        check=False, timeout=120, env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == code_wanted, done.stdout + done.stderr
    return done


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]
