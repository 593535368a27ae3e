"""A process that runs one Python function, call after call: ``python -m proxy.pipelines.worker``.

A line of JSON in (the arguments), a line out (what came of it). Standard output belongs to
these lines; what the function prints goes to standard error. The end of standard input is the
proxy's end, and ends this process even in the middle of a call.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import queue
import signal
import sys
import threading
from typing import Any

from proxy.pipelines.bound import Bound
from proxy.pipelines.callables import load
from proxy.pipelines.text import plain


def main(path: str) -> None:
    """Serve the function at ``path`` until standard input ends."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    asked: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(asked,), daemon=True).start()
    function = load(path)
    bound = Bound(function)
    while True:
        out.write(_answer(function, bound, asked.get()) + "\n")
        out.flush()


def _listen(asked: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        asked.put(line)
    if os.getpgrp() == os.getpid():  # with what the function started
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


def _answer(function: Any, bound: Bound, line: str) -> str:  # noqa: ANN401
    try:
        given = json.loads(line)
        value = function(*given["args"], **bound.given(given["kwargs"]))
        if inspect.isawaitable(value):
            value = asyncio.run(_wait(value))
        return json.dumps({"value": plain(value)})
    except Exception as problem:  # noqa: BLE001  a stranger's code raises anything
        return json.dumps({"error": type(problem).__name__})


async def _wait(value: Any) -> Any:  # noqa: ANN401
    return await value


if __name__ == "__main__":
    main(sys.argv[1])
