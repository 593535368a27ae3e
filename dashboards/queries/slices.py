"""From a row of aggregates to the figures of one slice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dashboards.models.report import Activity, Counts, MeasureFigures, Slice, StageFigures
from dashboards.queries.base import Row
from dashboards.queries.intervals import read_intervals
from dashboards.queries.measures import (
    LEVEL_NAMES,
    MEASURES,
    PARTS,
    STAGES,
    Quantity,
    weak_levels,
)
from dashboards.times import NS_PER_S
from tracer.stages import Stage


def read_slice(
    row: Row, slowest: Row | None, key: Mapping[str, str | None], bounds: Row | None = None
) -> Slice:
    """The figures in ``row``; ``slowest`` holds the sums over its slowest 5 %.

    ``bounds`` holds the bounds of the percentiles' intervals, where they were worked out.
    """
    return Slice(
        key=dict(key),
        counts=_counts(row),
        activity=_activity(row),
        stages=_stages(row, slowest, bounds),
        measures=tuple(
            MeasureFigures(measure=one.name, **_distribution(row, one, bounds)) for one in MEASURES
        ),
        slowest_n=int(slowest["n"]) if slowest else 0,
    )


def empty_slice() -> Slice:
    """The slice of no requests: every count 0, every figure ``None``."""
    nothing: dict[str, Any] = {
        "n": 0,
        "no_data": 0,
        "max_ns": None,
        **{f"{name}_ns": None for name in LEVEL_NAMES},
    }
    shares: dict[str, Any] = {"sum_ns": 0, "share": None, "slowest_share": None, **nothing}
    return Slice(
        key={},
        counts=_counts({}),
        activity=_activity({}),
        stages=tuple(
            StageFigures(stage=one.name, part_of=whole, **shares) for one, whole in _with_parts()
        ),
        measures=tuple(MeasureFigures(measure=one.name, **nothing) for one in MEASURES),
        slowest_n=0,
    )


def _with_parts() -> list[tuple[Quantity, str | None]]:
    """The stages in order, each followed by the part told apart inside it."""
    found: list[tuple[Quantity, str | None]] = []
    for stage, quantity in zip(Stage, STAGES, strict=True):
        found.append((quantity, None))
        if stage in PARTS:
            found.append((PARTS[stage], str(stage)))
    return found


def _stages(row: Row, slowest: Row | None, bounds: Row | None) -> tuple[StageFigures, ...]:
    figures: list[StageFigures] = []
    for quantity, whole in _with_parts():
        name = f"sum_{quantity.name}"
        figures.append(
            StageFigures(
                stage=quantity.name,
                part_of=whole,
                sum_ns=int(row[name]),
                share=_ratio(row[name], row["sum_e2e"]),
                slowest_share=_ratio(slowest[name], slowest["sum_e2e"]) if slowest else None,
                **_distribution(row, quantity, bounds),
            )
        )
    return tuple(figures)


def _distribution(row: Row, quantity: Quantity, bounds: Row | None) -> dict[str, Any]:
    n = int(row[f"n_{quantity.name}"])
    have = int(row[f"have_{quantity.name}"]) if quantity.gaps else n
    found: dict[str, Any] = {
        "n": n,
        "no_data": int(row["total"]) - have,
        "weak": weak_levels(n),
        "max_ns": round(row[f"max_{quantity.name}"]) if n else None,
        "intervals": read_intervals(bounds, quantity),
    }
    for name, value in zip(LEVEL_NAMES, row[f"q_{quantity.name}"], strict=True):
        found[f"{name}_ns"] = round(value) if n else None
    return found


def _counts(row: Row) -> Counts:
    total = _int(row, "total")
    known = {name: _int(row, name) for name in ("ok", "error", "cancelled", "cached", "not_cached")}
    warm, cold = _int(row, "warm"), _int(row, "cold")
    return Counts(
        total=total,
        **known,
        other_status=total - known["ok"] - known["error"] - known["cancelled"],
        error_types=_tally(row, "error_types"),
        cached_unknown=total - known["cached"] - known["not_cached"],
        warm=warm,
        cold=cold,
        warm_unknown=total - warm - cold,
        cold_reasons=_tally(row, "cold_reasons"),
        streamed=_int(row, "streamed"),
        preempted=_int(row, "preempted_requests"),
        repaired=_int(row, "repaired"),
        itl_cut=_int(row, "itl_cut"),
        partition_broken=_int(row, "partition_broken"),
    )


def _activity(row: Row) -> Activity:
    start, end = row.get("first_start"), row.get("last_end")
    window = None if start is None or end is None else int(end) - int(start)
    known_in, known_out = _int(row, "input_known"), _int(row, "output_known")
    tokens_in = _int(row, "input_tokens") if known_in else None
    tokens_out = _int(row, "output_tokens") if known_out else None
    return Activity(
        start_unix_ns=start,
        end_unix_ns=end,
        window_ns=window,
        requests_per_s=_per_s(row.get("total"), window),
        input_tokens=tokens_in,
        input_tokens_known=known_in,
        input_tokens_per_s=_per_s(tokens_in, window),
        output_tokens=tokens_out,
        output_tokens_known=known_out,
        output_tokens_per_s=_per_s(tokens_out, window),
        mean_concurrency=_ratio(row["sum_e2e"], window) if window else None,
        peak_concurrency=_int(row, "peak"),
    )


def _int(row: Row, name: str) -> int:
    return int(row.get(name) or 0)


def _tally(row: Row, name: str) -> dict[str, int]:
    """Counts by name, the most frequent first."""
    found: dict[str, int] = row.get(name) or {}
    return dict(sorted(found.items(), key=lambda pair: (-pair[1], pair[0])))


def _per_s(amount: int | None, window_ns: int | None) -> float | None:
    return amount * NS_PER_S / window_ns if amount is not None and window_ns else None


def _ratio(part: int, whole: int | None) -> float | None:
    return part / whole if whole else None
