"""What can go wrong between a question and its answer; each message is one sentence for a user."""

from __future__ import annotations


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
