"""What is told of a data file: what of it is sent, and what is not."""

from __future__ import annotations

from dashboards.times import many
from stagelens.bench.datafile import UNKNOWN_OUTPUT, DataFile, alike
from stagelens.bench.settings import BenchSettings
from stagelens.bench.talk import has_others


def data_notes(found: DataFile, settings: BenchSettings) -> list[str]:
    """One sentence for each thing that was read otherwise than a reader of the file may think."""
    items = found.items
    notes = [f"Data: {many(len(items), 'conversation')}, in a shuffled order and again from the start."]
    if repeated := alike(items):
        notes.append(f"Data: {repeated} of them begin with the prompt of another one.")
    if settings.turns == "1" and (longer := sum(len(one.turns) > 1 for one in items)):
        notes.append(f"Data: {longer} of them have more turns; the first is sent (--turns sends more).")
    if found.skipped:
        notes.append(f"Data: {found.skipped} more held no prompt that can be sent.")
    if unsent := sum(one.unsent for one in items):
        notes.append(
            f"Data: {many(unsent, 'message')} not sent (blank, of a tool, of an unknown role, or "
            "an answer to nothing)."
        )
    if settings.output is None and (unknown := sum(one.unknown_lengths for one in items)):
        notes.append(
            f"Data: {many(unknown, 'turn')} with no answer and no length: {UNKNOWN_OUTPUT} tokens are "
            "asked for."
        )
    if settings.endpoint == "completions" and (cut := _without_texts(found)):
        notes.append(
            f"Data: {many(cut, 'message')} sent without pictures and the like, as completions take "
            "texts alone."
        )
    return notes


def _without_texts(found: DataFile) -> int:
    turns = (turn for item in found.items for turn in item.turns)
    return sum(has_others(one["content"]) for turn in turns for one in turn.messages)
