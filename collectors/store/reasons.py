"""What a driver's or ClickHouse's error means: its class by its code, and why in a few words."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Mapping

from collectors.store.errors import StoreBusy, StoreError, StoreRefused, StoreTooLarge

MEMORY_CODE = 241
RETRYABLE_CODES = frozenset({159, 160, 164, 202, 203, 209, 210, 243, 252, 285, 319, 999})
"""ClickHouse error codes that may pass: time-outs, disk space, parts, network, keeper."""

CODE_REASONS: Mapping[int | None, str] = {
    192: "the user is not known there", 193: "the password is wrong",
    497: "the user lacks the rights", 516: "user or password is wrong",
}  # fmt: skip
CAUSE_REASONS: Mapping[type[BaseException], str] = {
    ConnectionRefusedError: "nothing listens there",
    socket.gaierror: "the host name is not known",
    ssl.SSLError: "it does not speak TLS as asked",
    TimeoutError: "it does not answer",
    ConnectionResetError: "it closed the connection",
}
"""Why a server cannot be reached, in place of the driver's text."""


def translated(problem: Exception) -> StoreError:
    """The error class by ClickHouse's code; what carries no code is a connection's fault."""
    if isinstance(problem, StoreError):
        return problem
    code = _code(problem)
    text = plain_reason(problem)
    if code is None and isinstance(problem, (TypeError, ValueError, OverflowError)):
        return StoreRefused(f"the store cannot take the data: {text}")
    if code == MEMORY_CODE:
        return StoreTooLarge(f"the store lacks memory for this: {text}")
    if code is None or code in RETRYABLE_CODES:
        return StoreBusy(f"the store is not available: {text}")
    return StoreRefused(f"the store refused: {text}")


def _code(problem: Exception) -> int | None:
    found = re.search(r"(?:Code: |code |error code )(\d+)", str(problem))
    return int(found.group(1)) if found else None


def plain_reason(problem: Exception) -> str:
    """What is wrong in a few words where it is known; else the first line that was said."""
    if (code := _code(problem)) in CODE_REASONS:
        return CODE_REASONS[code]
    cause: BaseException | None = problem
    for _ in range(8):
        if cause is None:
            break
        for kind, reason in CAUSE_REASONS.items():
            if isinstance(cause, kind):
                return reason
        cause = cause.__cause__ or cause.__context__
    return _first_line(problem)


def _first_line(problem: Exception) -> str:
    return (str(problem).strip().splitlines() or [type(problem).__name__])[0][:300]
