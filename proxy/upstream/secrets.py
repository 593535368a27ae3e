"""Secrets from the environment or from files; no error ever quotes one."""

from __future__ import annotations

import os
from pathlib import Path

from proxy.errors import ProxyError


def read_secret(variable: str | None, file: Path | None, whose: str) -> str | None:
    """The secret named by a variable or a file; None where neither is given.

    Raises:
        ProxyError: the variable is not set, the file cannot be read, or it is empty.
    """
    if variable is not None:
        secret = os.environ.get(variable, "").strip()
        if not secret:
            raise ProxyError(f"the key of {whose} is looked for in ${variable}, which is not set")
        return secret
    if file is None:
        return None
    try:
        secret = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise ProxyError(f"the key of {whose} cannot be read from {file}: {type(problem).__name__}") from None
    if not secret:
        raise ProxyError(f"the key of {whose} is looked for in {file}, which is empty")
    return secret
