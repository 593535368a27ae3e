"""What a batch was made of, so that it can be made again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Origin:
    """``body`` is an export request of ``signal`` in protobuf; ``window`` judged its items."""

    signal: str
    body: bytes
    window: tuple[int, int]
    digest: str
    refused: Mapping[str, int]
