"""A trace's spans as bars over time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rich.text import Text

from dashboards.models.trace import RequestRecord, Span, Trace
from dashboards.terminal.stage_style import colour
from dashboards.terminal.text import exact_ms, fit

MOST_ROWS: Final = 400
_TIME_CELLS: Final = 12
_LEAST_NAME: Final = 14
_EVENT_MARKS: Final = {"preempted": "P", "resumed": "R"}


@dataclass(frozen=True, slots=True)
class _Frame:
    """The time axis: ``cells`` for ``length_ns`` from ``begin_ns`` on."""

    begin_ns: int
    length_ns: int
    name_cells: int
    cells: int
    ascii_only: bool

    def cell(self, at_ns: int) -> int:
        """The cell that ``at_ns`` lies in, kept inside the axis."""
        if self.length_ns <= 0:
            return 0
        return max(0, min(self.cells - 1, (at_ns - self.begin_ns) * self.cells // self.length_ns))


def waterfall(trace: Trace, width: int, *, ascii_only: bool) -> list[Text]:
    """One line a span: its name in the tree, its bar, its start and length in milliseconds.

    Below the root of a request stand its first chunk, token and answer. Lines are at
    most ``width`` cells.
    """
    frame = _frame(trace, width, ascii_only)
    records = {one.span_id: one for one in trace.requests}
    head = Text(" " * (frame.name_cells + 1 + frame.cells + 1), "bold")
    head.append(f"{'start ms':>{_TIME_CELLS}}{'length ms':>{_TIME_CELLS}}")
    lines = [head]
    for span in trace.spans[:MOST_ROWS]:
        lines.append(_span_line(span, frame))
        if record := records.get(span.span_id):
            lines += _marker_lines(record, span.depth, frame)
    left = len(trace.spans) - MOST_ROWS + trace.spans_left_out
    if len(trace.spans) > MOST_ROWS or trace.spans_left_out:
        lines.append(Text(f"{max(left, trace.spans_left_out):,} more spans are not shown", "dim"))
    if any(span.orphan for span in trace.spans):
        lines.append(
            Text("^ its parent is not stored here: another system has it, or it was lost", "dim")
        )
    return lines


def _frame(trace: Trace, width: int, ascii_only: bool) -> _Frame:
    begin = min((span.offset_ns for span in trace.spans), default=0)
    longest = max((len(span.name) + 2 * span.depth for span in trace.spans), default=0)
    name_cells = max(_LEAST_NAME, min(longest + 1, width * 3 // 10))
    cells = width - name_cells - 2 * _TIME_CELLS - 2
    return _Frame(begin, trace.duration_ns, name_cells, max(cells, 8), ascii_only)


def _span_line(span: Span, frame: _Frame) -> Text:
    failed = span.status == "Error"
    line = _name(span, frame)
    line.append(" ")
    line.append_text(_bar(span, frame))
    line.append(" ")
    line.append(f"{exact_ms(span.offset_ns):>{_TIME_CELLS}}")
    line.append(f"{exact_ms(span.duration_ns):>{_TIME_CELLS}}", "bold red" if failed else "")
    return line


def _name(span: Span, frame: _Frame) -> Text:
    indent = min(2 * span.depth, frame.name_cells - 6)
    mark = "^" if span.orphan else ""
    failed = "!" if span.status == "Error" else ""
    name = fit(f"{mark}{failed}{span.name}", frame.name_cells - indent, ascii_only=frame.ascii_only)
    text = Text(" " * indent + name, "bold red" if failed else colour(span.stage))
    text.pad_right(max(0, frame.name_cells - text.cell_len))
    return text


def _bar(span: Span, frame: _Frame) -> Text:
    first = frame.cell(span.offset_ns)
    last = max(first, frame.cell(span.offset_ns + span.duration_ns - 1))
    full, thin = ("#", "=") if frame.ascii_only else ("█", "━")
    cells = [" "] * frame.cells
    cells[first : last + 1] = [full if span.stage else thin] * (last + 1 - first)
    for event in span.events:
        cells[frame.cell(event.offset_ns)] = _EVENT_MARKS.get(event.name, "*")
    return Text("".join(cells), colour(span.stage))


def _marker_lines(record: RequestRecord, depth: int, frame: _Frame) -> Iterator[Text]:
    """One line for each distinct time among first chunk, first token and first answer."""
    marks: dict[int, list[str]] = {}
    for name, at in (
        ("chunk", record.first_chunk_ns),
        ("token", record.ttft_ns),
        ("answer", record.first_answer_ns),
    ):
        if at is not None:
            marks.setdefault(at, []).append(name)
    sign = "v" if frame.ascii_only else "▼"
    for at, names in sorted(marks.items()):
        indent = min(2 * depth + 2, frame.name_cells - 6)
        room = frame.name_cells - indent
        label = fit(f"first {'/'.join(names)}", room, ascii_only=frame.ascii_only)
        line = Text(" " * indent + label, "italic")
        line.pad_right(max(0, frame.name_cells - line.cell_len))
        cells = [" "] * frame.cells
        cells[frame.cell(record.offset_ns + at)] = sign
        line.append(f" {''.join(cells)} {exact_ms(record.offset_ns + at):>{_TIME_CELLS}}")
        yield line
