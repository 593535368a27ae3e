"""What can be wrong with a store, told in one sentence."""

from __future__ import annotations


class StoreError(Exception):
    """Shown as is, without a traceback. ``exit_code``: 1 it failed, 2 it was asked wrongly."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class StoreOwned(StoreError):
    """Another process owns the data folder."""


class StoreUnwritable(StoreError):
    """The data folder cannot be made or written."""


class StoreBusy(StoreError):
    """A write that may succeed later: the store is down, full or overloaded."""


class StoreRefused(StoreError):
    """A write that never can succeed: the data does not fit the table."""


class StoreTooLarge(StoreBusy):
    """The store lacks the memory for this write; a part of it may fit."""


class StoreGone(StoreBusy):
    """The folder of an embedded store is not there any more."""
