"""Arrival stamps are taken where there is room for them, and cost no connection otherwise."""

from __future__ import annotations

import errno
import os

import pytest

from proxy.arrival import stamped


class Transport:
    """A connection's transport that notes whether it still reads."""

    paused = False

    def get_extra_info(self, name: str) -> object:
        return self if name == "socket" else None

    family = type = proto = 0

    def fileno(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.paused = True


async def test_without_a_second_descriptor_the_transport_reads_itself(monkeypatch: pytest.MonkeyPatch):
    """As over TLS: without stamps. It used to raise in `connection_made`, and nobody read."""
    def none_left(_: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "dup", none_left)
    transport = Transport()
    assert stamped(transport, lambda *_: None) is None  # type: ignore[arg-type]
    assert not transport.paused
