"""Standard output whose own failure is known from every other one."""

from __future__ import annotations

import io
import os
import sys


class OutputLost(Exception):
    """Standard output takes no more (a full disk); what it was to hold is lost."""


class _Raw(io.FileIO):
    def write(self, data: object) -> int:
        try:
            return super().write(data)  # type: ignore[arg-type]
        except (BrokenPipeError, BlockingIOError):
            raise
        except OSError as problem:
            raise OutputLost(problem.strerror) from None


def watch_stdout() -> None:
    """From now on a write to standard output that fails raises :class:`OutputLost`.

    A pipe that nobody reads is another matter, and raises what it did.
    """
    out = sys.stdout
    raw = getattr(getattr(out, "buffer", None), "raw", getattr(out, "buffer", None))
    if not isinstance(out, io.TextIOWrapper) or not isinstance(raw, io.FileIO):
        return
    out.flush()
    watched = _Raw(out.fileno(), "wb", closefd=False)
    sys.stdout = io.TextIOWrapper(
        watched if raw is out.buffer else io.BufferedWriter(watched),
        encoding=out.encoding, errors=out.errors, line_buffering=out.line_buffering,
        write_through=out.write_through,
    )  # fmt: skip


def give_up_stdout() -> None:
    """What is still to be written goes nowhere: Python would try again as it ends, and complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
