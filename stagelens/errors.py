"""What a user sees when something is wrong: one sentence and an exit code."""

from __future__ import annotations


class UserError(Exception):
    """Shown without a traceback. ``exit_code``: 1 it failed, 2 it was asked wrongly."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code
