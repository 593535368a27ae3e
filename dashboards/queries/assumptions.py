"""What the figures rest on, in words."""

from __future__ import annotations

from typing import Final

from dashboards.filters import ANY_OPERATION, WITH_MODEL_CALL, Choice, Filters
from dashboards.models.report import Slice
from dashboards.queries.intervals import SENTENCE
from dashboards.times import many, to_text
from dashboards.visible import short
from tracer.semconv import ITL_CAP

_WARM: Final[dict[Choice, str]] = {
    "include": "Warm and cold requests are both included.",
    "exclude": "Requests known to be warm are left out.",
    "only": "Only requests known to be warm: cold ones, and those not known, are left out.",
}
_CACHED: Final[dict[Choice, str]] = {
    "include": "Requests that hit the prefix cache are included.",
    "exclude": "Requests known to have hit the prefix cache are left out.",
    "only": "Only requests known to have hit the prefix cache.",
}
_STAGES: Final = (
    "A stage's percentiles are over the requests that ran it (n); its share is of the E2E "
    "time of all requests."
)


def assumptions(filters: Filters, overall: Slice, now_unix_ns: int) -> tuple[str, ...]:
    """One sentence each; what is unusual in the data comes last."""
    found = [
        _window(filters, now_unix_ns),
        _chosen(filters),
        _WARM[filters.warm],
        _CACHED[filters.cached],
        "Percentiles are exact, from the requests themselves (linear interpolation).",
        SENTENCE,
        _STAGES,
        "Rates and concurrency are over the window from the first start to the last end.",
    ]
    counts = overall.counts
    for n, what in (
        (counts.repaired, "inconsistent stamps were mended by rule"),
        (counts.itl_cut, f"only the first {ITL_CAP} gaps count in ITL"),
        (
            counts.partition_broken,
            "the stages do not add up to E2E (another writer made them), and shares are off",
        ),
    ):
        if n:
            found.append(f"In {n:,} of {many(counts.total, 'request')} {what}.")
    return tuple(found)


def _window(filters: Filters, now_unix_ns: int) -> str:
    end = filters.until_unix_ns
    until = to_text(now_unix_ns) + " (now)" if end is None else to_text(end)
    if filters.since_unix_ns is None:
        return f"Requests that began before {until}; times are in UTC."
    return f"Requests that began from {to_text(filters.since_unix_ns)} to {until}."


def _chosen(filters: Filters) -> str:
    terms: list[str] = []
    if filters.operation == WITH_MODEL_CALL:
        terms.append("with a model call")
    elif filters.operation != ANY_OPERATION:
        terms.append(f"of operation {filters.operation!r}")
    for name, values in (("model", filters.model), ("route", filters.route)):
        if values:
            terms.append(f"of {name} {' or '.join(repr(short(one)) for one in values)}")
    if filters.run is not None:
        terms.append(f"of run {short(filters.run)!r}")
    terms += [f"with tag {short(name)}={short(value)!r}" for name, value in filters.tags.items()]
    status = " or ".join(filters.status) if filters.status else "any"
    return f"Requests {', '.join([*terms, f'of {status} status'])}."
