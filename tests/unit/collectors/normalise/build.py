"""Spans of other tools for tests: times in milliseconds after ``T0``."""

from __future__ import annotations

from collectors.normalise.row import Row, row_of
from collectors.normalise.span import Span
from collectors.normalise.tree import forest

T0 = 1_767_268_800_000_000_000
MS = 1_000_000
TRACE = f"{7:032x}"
NAMES = ("Prompt", "Retrieval", "Queue", "Prefill", "Decode", "Tool", "Deliver", "Unattributed")


def at(ms: float) -> int:
    return T0 + round(ms * MS)


def s(
    number: int,
    parent: int | None,
    name: str,
    begin_ms: float,
    end_ms: float,
    attributes: dict[str, object] | None = None,
    **more: object,
) -> Span:
    """Span ``number``; attribute values become text as the store holds them."""
    told = {k: v if isinstance(v, str) else _text(v) for k, v in (attributes or {}).items()}
    fields: dict[str, object] = {
        "kind": "Internal", "service": "app", "instance": "", "scope": "test", **more,
    }  # fmt: skip
    return Span(
        TRACE, f"{number:016x}", "" if parent is None else f"{parent:016x}", name,
        start_ns=at(begin_ms), end_ns=at(end_ms), attributes=told, **fields,  # type: ignore[arg-type]
    )  # fmt: skip


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def rows(*spans: Span) -> list[Row]:
    """The rows of the trace, in the order of their roots."""
    return [row for root in forest(spans) if (row := row_of(root)) is not None]


def only(*spans: Span) -> Row:
    found = rows(*spans)
    assert len(found) == 1, found
    check_sum(found[0])
    return found[0]


def check_sum(row: Row) -> None:
    """The law: the stages add up to the whole, to the nanosecond."""
    assert sum(int(str(row[f"{name}Ns"])) for name in NAMES) == row["E2ENs"]


def stages_ms(row: Row) -> dict[str, float]:
    """Stages that hold some time, in milliseconds."""
    told = {name.lower(): int(str(row[f"{name}Ns"])) / MS for name in NAMES}
    return {name: ms for name, ms in told.items() if ms}
