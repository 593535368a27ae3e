"""One trace on a terminal of 80 columns or more."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dashboards.models.trace import RequestRecord, Trace
from dashboards.terminal.facts import fact_table
from dashboards.terminal.figures import plain_table
from dashboards.terminal.stage_style import colour, stage_bar
from dashboards.terminal.text import duration, is_ascii, number, percents
from dashboards.terminal.waterfall import waterfall
from dashboards.times import many, to_iso
from dashboards.visible import quoted
from tracer import semconv

PARTS_OF_RETRIEVAL = {
    "embed": semconv.EMBED_NS, "search": semconv.SEARCH_NS, "rerank": semconv.RERANK_NS,
}  # fmt: skip


def render_trace(trace: Trace, console: Console) -> None:
    """Print ``trace``: its waterfall, then the stages and facts of each request in it."""
    width = console.width
    ascii_only = is_ascii(console)
    blank = Text("")
    head = Text(f"trace {trace.trace_id}", "bold")
    spans = len(trace.spans) + trace.spans_left_out
    cut = f"; {trace.values_cut:,} values are cut" if trace.values_cut else ""
    console.print(head, Text(f"from {to_iso(trace.start_unix_ns)}, {many(spans, 'span')}{cut}"), sep="\n")
    console.print(blank, *waterfall(trace, width, ascii_only=ascii_only), sep="\n")
    for record in trace.requests:
        console.print(blank, _stages(record, width), sep="\n")
        console.print(_sum_line(record), blank, sep="\n")
        more = _retrievals(trace) if record is trace.requests[0] else ()
        console.print(fact_table(chain(_lines(record), more), ascii_only=ascii_only))
    if not trace.requests:
        console.print(
            blank,
            Text("No span here carries a request's record, so there are no stage times to show."),
            sep="\n",
        )


def _stages(record: RequestRecord, width: int) -> Table:
    table = plain_table(width)
    table.add_column(Text("stage"), no_wrap=True, min_width=12)
    for name in ("ns", "ms", "%", "times"):
        table.add_column(Text(name), justify="right", no_wrap=True)
    room = max(10, min(width - 62, 60))
    table.add_column(Text(""), no_wrap=True, width=room)
    whole = [one for one in record.stages if one.part_of is None]
    shares = dict(zip(whole, percents([one.share for one in whole]), strict=True))
    for one in record.stages:
        part = one.part_of is not None
        style = "dim" if part else colour(one.stage)
        bar = stage_bar([(one.stage, one.share)], room) if one.share and not part else Text("")
        table.add_row(
            Text(f"- {one.stage}" if part else one.stage, style),
            Text(f"{one.ns:,}"),
            Text(f"{one.ns / 1e6:,.3f}"),
            Text(percents([one.share])[0] if part else shares[one]),
            Text(str(one.count) if one.count else ""),
            bar,
        )
    return table


def _sum_line(record: RequestRecord) -> Text:
    off = record.stages_sum_ns - record.e2e_ns
    text = Text(f"sum {record.stages_sum_ns:,} ns, E2E {record.e2e_ns:,} ns: ", "bold")
    if off == 0:
        return text.append("the stages add up to it exactly")
    return text.append(f"the stages are off by {off:+,} ns", "red")


def _lines(record: RequestRecord) -> Iterator[tuple[str, str]]:
    error = f", {record.error_type}" if record.error_type else ""
    http = "no response" if record.http_status is None else f"HTTP {record.http_status}"
    yield "status", f"{record.status}{error} ({http}); finish reason {_word(record.finish_reason)}"
    streamed = "streamed" if record.stream else "not streamed"
    choices = f", {record.choices} choices" if record.choices > 1 else ""
    yield "request", f"{record.operation or 'no model call'} {_word(record.model)}, {streamed}{choices}"
    yield "route", _word(record.route)
    yield (
        "clocks",
        (
            f"first chunk {duration(record.first_chunk_ns)}, TTFT {duration(record.ttft_ns)}, "
            f"first answer {duration(record.first_answer_ns)}, E2E {duration(record.e2e_ns)}"
        ),
    )
    yield "tokens", _tokens(record)
    yield "pace", _pace(record)
    yield "arrival", _arrival(record)
    yield "preemptions", number(record.preemptions)
    yield "from", f"{_word(record.service)} {_word(record.service_instance)}, told by {_told_by(record)}"
    if record.repairs:
        yield "repairs", ", ".join(record.repairs)
    if record.tags:
        yield "tags", ", ".join(f"{name}={quoted(value)}" for name, value in record.tags.items())
    if record.cost is not None:
        yield "cost", f"{record.cost:g}"


def _retrievals(trace: Trace) -> Iterator[tuple[str, str]]:
    """Where the time of each retrieval went, if it says."""
    for span in trace.spans:
        told = {name: span.attributes.get(key, "") for name, key in PARTS_OF_RETRIEVAL.items()}
        parts = [f"{name} {duration(int(ns))}" for name, ns in told.items() if ns.isdecimal()]
        if parts:
            count = span.attributes.get(semconv.DOCUMENTS, "")
            found = f", {count} documents" if count else ""
            yield "retrieval", f"{span.name.removeprefix('retrieval ')}: {', '.join(parts)}{found}"


def _told_by(record: RequestRecord) -> str:
    detail = f" ({', '.join(record.source_detail)})" if record.source_detail else ""
    return f"{_word(record.source)}{detail}"


def _tokens(record: RequestRecord) -> str:
    return (
        f"input {_known(record.input_tokens)} (cached {_known(record.cached_tokens)}), "
        f"output {_known(record.output_tokens)} (reasoning {_known(record.reasoning_tokens)})"
    )


def _pace(record: RequestRecord) -> str:
    kind = "chunk" if record.itl_kind == "chunk" else "token"
    gaps = (
        f"{record.itl_n:,} {kind} gaps, longest {duration(record.itl_max_ns)}"
        if record.itl_n
        else "no gaps between tokens known"
    )
    return f"TPOT {duration(record.tpot_ns)}; {gaps}"


def _arrival(record: RequestRecord) -> str:
    if record.warm is None:
        warm = "warm unknown"
    else:
        reason = f" ({record.cold_reason})" if record.cold_reason else ""
        warm = "warm" if record.warm else f"cold{reason}"
    return (
        f"{record.in_flight:,} others in flight; in the engine {_known(record.running)} running, "
        f"{_known(record.waiting)} waiting; {warm}"
    )


def _known(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def _word(value: str | None) -> str:
    return quoted(value) if value else "unknown"
