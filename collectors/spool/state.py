"""What the spool's journal says: bodies that wait, writes that were begun, counts so far."""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from collectors.counts import Counts
from collectors.spool.journal import Event

REMEMBERED = 16_384
"""Digests of bodies remembered, so that one sent again after a restart is stored once."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One body in a segment. Times are the window that its items were judged by.

    ``plain``: its spans need no rule of ours, the store's engine can read them as they are.
    """

    number: int
    signal: str
    segment: str
    at: int
    size: int
    crc: int
    oldest_unix_ns: int
    newest_unix_ns: int
    kept: dict[str, int]
    plain: bool = False


@dataclass(slots=True)
class Plan:
    """Entries ``first`` to ``last`` go to the store in batches of ``rows`` a table.

    It is noted before the first insert, so that after a crash the very same batches are
    inserted again under the same tokens, and the store knows those that it has.
    """

    id: str
    first: int
    last: int
    rows: int
    split: set[str] = field(default_factory=set)
    done: set[str] = field(default_factory=set)


class State:
    """The journal's events, taken in one by one; ``events`` says the same more shortly."""

    def __init__(self) -> None:
        self.id = uuid.uuid4().hex[:16]
        self.next = 1
        self.entries: dict[int, Entry] = {}
        self.plans: OrderedDict[str, Plan] = OrderedDict()
        self.recent: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self.counts = Counts()

    def take(self, event: Event) -> None:
        """One event; those of a plan that is not known are of no more interest."""
        kind = event["k"]
        plan = self.plans.get(str(event.get("t", "")).split("/", maxsplit=1)[0])
        if kind == "base":
            self.id, self.next = event["id"], event["next"]
            self.counts.load(event["counts"])
        elif kind in ("body", "held"):
            entry = Entry(**event["e"])
            self.entries[entry.number] = entry
            self.next = max(self.next, entry.number + 1)
        elif kind == "plan":
            self.plans[event["t"]] = Plan(event["t"], event["first"], event["last"], event["rows"])
        elif kind == "end" and plan is not None:
            self._end(plan)
        elif kind == "split" and plan is not None:
            plan.split.add(event["t"])
        elif kind in ("done", "was") and plan is not None:
            plan.done.add(event["t"])
        self._count(event)
        if "digest" in event:
            self.recent[event["digest"]] = {"signal": event["signal"], "refused": event["refused"]}
            if len(self.recent) > REMEMBERED:
                self.recent.popitem(last=False)

    def _count(self, event: Event) -> None:
        kind = event["k"]
        if kind in ("body", "refused"):
            for signal, n in event.get("kept", {}).items():
                self.counts.receive(signal, n)
            for reason, n in event["refused"].items():
                self.counts.receive(event["signal"], n)
                self.counts.refuse(event["signal"], n, reason)
        elif kind == "done":
            self.counts.settle(event["signal"], event["n"], event["how"])

    def _end(self, plan: Plan) -> None:
        for number in range(plan.first, plan.last + 1):
            self.entries.pop(number, None)
        del self.plans[plan.id]

    def events(self) -> Iterator[Event]:
        """The fewest events that make this state."""
        yield {"k": "base", "id": self.id, "next": self.next, "counts": self.counts.snapshot()}
        for digest, told in self.recent.items():
            yield {"k": "recent", "digest": digest, **told}
        for entry in self.entries.values():
            yield {"k": "held", "e": asdict(entry)}
        for plan in self.plans.values():
            yield {
                "k": "plan", "t": plan.id, "first": plan.first, "last": plan.last, "rows": plan.rows,
            }  # fmt: skip
            yield from ({"k": "split", "t": token} for token in sorted(plan.split))
            yield from ({"k": "was", "t": token} for token in sorted(plan.done))
