"""Errors that a user can mend: one sentence with the thing, the rule and the way out."""

from __future__ import annotations


class ProxyError(Exception):
    """Shown as is, without a traceback. ``exit_code``: 1 it failed, 2 it was asked wrongly."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code
