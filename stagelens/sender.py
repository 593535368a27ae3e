"""What our own senders show a collector that asks for tokens."""

from __future__ import annotations

import os

TOKEN_VARIABLE = "STAGELENS_COLLECTOR_TOKEN"  # noqa: S105  a variable's name
"""Where the token stands; `serve` makes one for a collector of its own."""


def sender_headers() -> dict[str, str]:
    """Headers for each request to a collector; none without a token."""
    token = os.environ.get(TOKEN_VARIABLE)
    return {"Authorization": f"Bearer {token}"} if token else {}
