"""Which requests the demo makes: varied, and the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

TOPICS = (
    "a harbour at night", "the tides", "bread and its history", "a lighthouse keeper",
    "how bees find their way", "an old bridge", "rain on a tin roof", "the first railway",
    "growing tomatoes", "a chess game in a park", "why the sky is blue", "a lost umbrella",
)  # fmt: skip
HANDBOOK = " ".join(
    f"Rule {n}: an assistant of the {topic} desk answers briefly, names its source, never guesses "
    "a figure, asks when a question is unclear, and hands over to a person when it must."
    for n, topic in enumerate(("billing", "travel", "library", "garden", "kitchen", "music"), 1)
)
"""The shared prefix: some 240 tokens that the engine computes once and then finds in its cache."""
LEVELS = ((1, 10), (4, 28), (8, 48))
"""Concurrency and number of requests of each phase."""
LENGTHS = (4, 8, 12, 16, 24, 32, 48)
SCHEMA = {
    "type": "object",
    "properties": {"title": {"type": "string", "maxLength": 24}, "stars": {"enum": [1, 2, 3, 4, 5]}},
    "required": ["title", "stars"],
    "additionalProperties": False,
}
TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Look a subject up in the library.",
        "parameters": {
            "type": "object",
            "properties": {"subject": {"type": "string", "maxLength": 24}},
            "required": ["subject"],
            "additionalProperties": False,
        },
    },
}
EXTRAS: dict[str, dict[str, Any]] = {
    "json": {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "review", "schema": SCHEMA, "strict": True},
        }
    },
    "tool": {
        "tools": [TOOL],
        "tool_choice": {"type": "function", "function": {"name": "look_up"}},
    },
}
"""Kinds that not every server takes, and what they add to the request."""


@dataclass(frozen=True)
class Ask:
    """One request to be made."""

    phase: str
    kind: str
    prompt: str
    max_tokens: int
    stream: bool
    temperature: float
    system: str = ""
    n: int = 1
    tool: str = ""

    @property
    def tokens(self) -> int:
        """About how many tokens it is worth, a prompt token an eighth: for the time left."""
        return self.max_tokens * self.n + (len(self.system) + len(self.prompt)) // 40


@dataclass(frozen=True)
class Phase:
    """Requests of one level of concurrency."""

    concurrency: int
    asks: list[Ask] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"c{self.concurrency}"


def plan(seed: int, scale: float = 1.0) -> list[Phase]:
    """The phases, the same for the same seed; ``scale`` times as many requests, one at least."""
    rng = random.Random(seed)
    phases = []
    for concurrency, count in LEVELS:
        phase = Phase(concurrency)
        phase.asks.extend(_asks(rng, phase.name, max(1, round(count * scale))))
        phases.append(phase)
    return phases


def _asks(rng: random.Random, phase: str, count: int) -> Iterator[Ask]:
    for i in range(count):
        kind = _kind(i)
        choices = 2 if i % 13 == 6 and kind != "document" else 1
        yield Ask(
            phase=phase,
            kind=kind,
            prompt=_prompt(rng, kind),
            system=HANDBOOK if kind == "handbook" else "",
            max_tokens=48 if kind in EXTRAS else rng.choice(LENGTHS),
            stream=i % 4 != 3,
            temperature=0.0 if i % 2 == 0 and choices == 1 else 0.7,
            n=choices,
        )


def _kind(i: int) -> str:
    """A third shares the handbook; the rest is short, long, text completion or structured."""
    if i % 3 == 0:
        return "handbook"
    for kind, every, at in (("document", 40, 20), ("json", 17, 10), ("tool", 19, 7), ("long", 7, 1)):
        if i % every == at:
            return kind
    return "text" if i % 11 == 4 else "chat"


def _prompt(rng: random.Random, kind: str) -> str:
    """A short question, after notes of some 250 to 550 ("long") or 1,000 tokens ("document")."""
    question = f"Tell me about {rng.choice(TOPICS)}."
    if kind == "long":
        return f"Here are my notes: {_notes(rng, rng.randint(60, 140))}. {question}"
    if kind == "document":
        return f"Here is a document: {_notes(rng, rng.randint(230, 280))}. {question}"
    return question


def _notes(rng: random.Random, topics: int) -> str:
    return " ".join(rng.choice(TOPICS) for _ in range(topics))
