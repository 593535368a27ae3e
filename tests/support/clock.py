"""A clock that stands still until a test moves it."""

from __future__ import annotations

from tracer.testing import CountingIds

__all__ = ["CountingIds", "FakeClock"]


class FakeClock:
    """Both clocks of :class:`tracer.clock.Clock`, moved by hand."""

    def __init__(self, mono_ns: int = 1_000_000_000, unix_ns: int = 1_767_268_800_000_000_000):
        self.mono = mono_ns
        self.unix = unix_ns

    def mono_ns(self) -> int:
        return self.mono

    def unix_ns(self) -> int:
        return self.unix

    def advance(self, seconds: float) -> None:
        """Move both clocks forward together."""
        step = round(seconds * 1e9)
        self.mono += step
        self.unix += step
