"""A handbook to search and an order book to look into, for the example pipeline."""

from __future__ import annotations

import asyncio
from typing import Literal

HANDBOOK = {
    "returns": "Goods can be returned within 30 days with their receipt.",
    "shipping": "Orders are shipped within two working days.",
    "payment": "Cards and bank transfer are taken.",
}
ORDERS = {"A1": "shipped", "A2": "waiting for payment"}
Order = Literal["A1", "A2"]
"""What the model may ask for stands in the tool's schema: it cannot write anything else."""


def search(query: str, top_k: int) -> list[dict[str, str]]:
    """The handbook's pages that share most words with ``query``."""
    asked = set(query.lower().split())
    ranked = sorted(
        HANDBOOK.items(), key=lambda page: -len(asked & {page[0], *page[1].lower().split()})
    )
    return [{"id": name, "text": text} for name, text in ranked[:top_k]]


async def order_status(order: Order) -> str:
    """The state of an order by its number, such as A1."""
    await asyncio.sleep(0.03)  # as a shop's database would take
    return ORDERS[order]
