"""What can go wrong between a question and its answer; each message is one sentence for a user."""

from __future__ import annotations

from typing import Final


class DashboardError(Exception):
    """A question that got no answer; ``str()`` names the thing, the rule and the way out."""


class BadValueError(DashboardError):
    """A value the user gave cannot be used (exit 2, HTTP 400)."""


class NotStoredError(DashboardError):
    """What was asked for is not in the store (exit 1, HTTP 404)."""


class AmbiguousError(DashboardError):
    """A short id names several things (exit 2, HTTP 409)."""


class UnavailableError(DashboardError):
    """The store or the collector gave no answer (exit 1, HTTP 503)."""


class UnauthorizedError(DashboardError):
    """The API asks for a token that was not sent, or not the right one (exit 1, HTTP 401)."""


KINDS: Final[dict[type[DashboardError], tuple[str, int]]] = {
    BadValueError: ("bad_value", 400),
    NotStoredError: ("not_stored", 404),
    AmbiguousError: ("ambiguous", 409),
    UnavailableError: ("unavailable", 503),
    UnauthorizedError: ("unauthorized", 401),
}
"""Each error's name on the wire and its HTTP status."""
