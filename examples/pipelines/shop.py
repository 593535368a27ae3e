"""A handbook to search and an order book to look into, for the example pipeline."""

from __future__ import annotations

HANDBOOK = {
    "returns": "Goods can be returned within 30 days with their receipt.",
    "shipping": "Orders are shipped within two working days.",
    "payment": "Cards and bank transfer are taken.",
}
ORDERS = {"A1": "shipped", "A2": "waiting for payment"}


def search(query: str, top_k: int) -> list[dict[str, str]]:
    """The handbook's pages that share most words with ``query``."""
    asked = set(query.lower().split())
    ranked = sorted(
        HANDBOOK.items(), key=lambda page: -len(asked & {page[0], *page[1].lower().split()})
    )
    return [{"id": name, "text": text} for name, text in ranked[:top_k]]


async def order_status(order: str) -> str:
    """The state of an order by its number, such as A1."""
    return ORDERS.get(order, "there is no such order")
