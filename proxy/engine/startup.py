"""An engine that cannot start, told in one sentence; its own output goes to a file."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from proxy.errors import ProxyError

T = TypeVar("T")
TAIL_BYTES = 256 * 1024


class Engine(Protocol):
    """Whether the engine core has ended."""

    @property
    def errored(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Cause:
    """A known reason: how the log says it, and the way out."""

    pattern: str
    advice: str


CAUSES = (
    Cause(
        r"(?i)memory.{0,120}less than requested|"
        r"(not enough|insufficient|no available|larger than the available|exceed\w*|"
        r"cannot allocate|out of memory|larger than).{0,200}?"
        r"(memory|KV cache)|KV cache.{0,120}(larger than|not enough|exceed|fit)|OutOfMemoryError|"
        r"Cannot allocate memory",
        "the KV cache does not fit: give it more (on a CPU the environment variable "
        "VLLM_CPU_KVCACHE_SPACE in GiB, on a GPU --gpu-memory-utilization), or make the "
        "context shorter (-- --max-model-len N)",
    ),
    Cause(
        r"(?i)operator torchvision::nms does not exist|torchvision.{0,80}(incompatib|not exist)",
        "torchvision does not fit the installed PyTorch: remove it "
        "(pip uninstall torchvision torchaudio torchcodec)",
    ),
    Cause(
        r"(?i)(couldn't connect|cannot send a request|offline mode|LocalEntryNotFound|"
        r"RepositoryNotFound|not a (local folder|valid model)|Can't load the configuration|"
        r"Invalid repository ID|Repo id must)",
        "the model was not found: give a folder that holds it, or a name that the model hub "
        "has and this machine can reach",
    ),
    Cause(
        r"(?i)Unrecognized model|model_type. key|Error no file named|safetensors.{0,80}(header|invalid)|"
        r"Cannot find any model weights",
        "the model folder is not whole or not a model's: give one as saved by transformers' "
        "save_pretrained",
    ),
    Cause(
        r"(?i)does not recognize this architecture|not supported for now|are not supported",
        "this vLLM does not support the model's architecture",
    ),
)


def divert(fd: int, log_file: Path) -> None:
    """Send a file descriptor to ``log_file`` for good: 1 for vLLM's log, 2 at exit.

    vLLM logs to standard output, which `stagelens serve` itself never writes to.
    """
    (sys.stdout if fd == 1 else sys.stderr).flush()
    target = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(target, fd)
    os.close(target)


@contextmanager
def stderr_to(log_file: Path) -> Iterator[None]:
    """Send standard error to ``log_file``: what is started inside keeps it.

    Ours is back when the block ends; the engine core, a child process, goes on
    writing to the file.
    """
    saved = os.dup(2)
    divert(2, log_file)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(saved, 2)
        os.close(saved)


async def answered(engine: Engine, call: Awaitable[T]) -> T:
    """The result of ``call``; vLLM leaves it waiting for ever when its core ends meanwhile.

    Raises:
        RuntimeError: the core has ended and there is no answer.
    """
    task = asyncio.ensure_future(call)
    try:
        while not task.done():
            dead = engine.errored
            await asyncio.wait([task], timeout=0.2)
            if dead and not task.done():
                raise RuntimeError("the engine core ended while it was starting")
    finally:
        task.cancel()
    return task.result()


def explain(problem: BaseException, log_file: Path) -> ProxyError:
    """One sentence for an engine that did not start: the cause, the way out, the log."""
    text = f"{_tail(log_file)}\n{problem}"
    reason = _last_error(text) or _one_line(type(problem).__name__, str(problem))
    for where in (reason, str(problem), text):
        for cause in CAUSES:
            if re.search(cause.pattern, where):
                return ProxyError(
                    f"the engine did not start: {cause.advice} ({reason}); its log is {log_file}"
                )
    return ProxyError(f"the engine did not start: {reason}; its log is {log_file}")


def _tail(log_file: Path) -> str:
    try:
        with log_file.open("rb") as file:
            file.seek(max(0, log_file.stat().st_size - TAIL_BYTES))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def _last_error(text: str) -> str:
    """The innermost exception line of the log, shortened; "" if there is none."""
    found = re.findall(r"(?m)^.*?\b([A-Z]\w*(?:Error|Exception)): (.+)$", text)
    specific = [f for f in found if not re.search(r"initialization failed|validation error", f[1])]
    if not specific:
        return ""
    return _one_line(*specific[-1])


def _one_line(kind: str, message: str) -> str:
    """The gist of an exception: pydantic's frame around a message is taken off."""
    if inner := re.search(r"(?s)(?:Value|Assertion) error, (.*?)(?: \[type=|$)", message):
        message = inner.group(1)
    if inner := re.search(r"Worker failed with error '(.*?)', please check", message):
        message = inner.group(1)
    return f"{kind}: {' '.join(message.split())[:300]}"
