"""Limits that a request must meet to be a good one: ``ttft=0.5,tpot=0.05``, in seconds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from stagelens.bench.figures import percentile
from stagelens.bench.sample import Sample

MEASURES = ("ttft", "tpot", "e2e", "itl")


def parse_limits(texts: Iterable[str]) -> dict[str, float]:
    """Seconds by measure. ``itl`` is the longest gap of the request.

    Raises:
        ValueError: one sentence on the first part that is no limit.
    """
    found: dict[str, float] = {}
    for text in ",".join(texts).split(","):
        name, _, value = text.strip().partition("=")
        try:
            seconds = float(value)
        except ValueError:
            seconds = math.nan
        if name not in MEASURES or not 0 < seconds < math.inf:
            raise ValueError(
                f"limit {text.strip()!r} is none: write MEASURE=SECONDS, the measure one of "
                f"{', '.join(MEASURES)}"
            )
        if name in found:
            raise ValueError(f"limit {name!r} is given twice")
        found[name] = seconds
    return found


def value_of(sample: Sample, measure: str) -> float | None:
    """Nanoseconds; ``ttft`` and ``e2e`` count from the intended time.

    A failed request has none, nor has an answer without any token.
    """
    if sample.error or sample.is_empty:
        return None
    if measure == "itl":
        return max(sample.gaps, default=0) if sample.first_token_ns else None
    if measure == "ttft":
        return sample.ttft_ns
    return sample.tpot_ns if measure == "tpot" else sample.e2e_ns


def is_good(sample: Sample, limits: Mapping[str, float]) -> bool:
    """Whether the request was answered within all limits; an answer without any token is none.

    An answer of one token has no TPOT, and meets that limit; other figures that are
    missing are a limit missed.
    """
    for measure, seconds in limits.items():
        value = value_of(sample, measure)
        if _has(sample, measure) and (value is None or value > seconds * 1e9):
            return False
    return not sample.error and not sample.is_empty


def is_untold(sample: Sample, limits: Mapping[str, float]) -> bool:
    """Whether an answer with tokens lacks a limited figure, so that it is not known to be slow.

    It is within no limits: a server that did not stream has no TTFT and no gaps, one that
    counts no tokens no TPOT.
    """
    if sample.error or sample.is_empty:
        return False
    return any(_has(sample, one) and value_of(sample, one) is None for one in limits)


def _has(sample: Sample, measure: str) -> bool:
    """Whether there is such a figure of the request, known or not: of one token there is no TPOT.

    One token is by the server's count; an answer that it did not count may have had more.
    """
    if measure != "tpot" or sample.error or sample.tpot_ns is not None:
        return True
    return sample.output_tokens is None or not sample.first_token_ns


def at_percentile(
    samples: Sequence[Sample], limits: Mapping[str, float], level: float
) -> dict[str, float | None]:
    """Nanoseconds of each limited measure at ``level`` (0..100); ``None`` is beyond any limit.

    A request without the figure counts as slower than all others; an answer of one token is
    not among those that have a TPOT.
    """
    found: dict[str, float | None] = {}
    for measure in limits:
        values = [
            math.inf if (v := value_of(s, measure)) is None else v
            for s in samples
            if _has(s, measure)
        ]
        value = percentile(sorted(values), level)
        found[measure] = value if value is not None and math.isfinite(value) else None
    return found
