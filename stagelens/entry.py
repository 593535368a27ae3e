"""Where the `stagelens` command begins: an interrupt is one line and 130 from here on.

The imports of the command line take a good part of a second, in which Python answers Ctrl-C
with a traceback.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

TOLD = b"stagelens: interrupted\n"
CODE = 128 + signal.SIGINT


def _leave(_number: int, _frame: FrameType | None) -> None:
    """At once: nothing is open yet, and an exception amid an import comes out as something else."""
    os.write(2, TOLD)
    os._exit(CODE)


def main() -> None:
    """Run the command line."""
    was = signal.getsignal(signal.SIGINT)
    ours = was is signal.default_int_handler  # whoever ignores it, as nohup does, goes on to
    if ours:
        signal.signal(signal.SIGINT, _leave)
    from stagelens.cli import main as run

    if ours:
        signal.signal(signal.SIGINT, was)
    run()
