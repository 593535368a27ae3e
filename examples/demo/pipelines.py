"""What `make demo PIPELINE=rag` and `PIPELINE=agent` ask, and where their settings lie."""

from __future__ import annotations

import random
from pathlib import Path

from examples.demo.plan import Ask, Phase

FOLDER = Path(__file__).resolve().parents[1] / "pipelines"
NAMES = ("rag", "agent")
QUESTIONS = (
    "How long do I have to send something back?", "Who pays for the way back of a broken lamp?",
    "What does shipping cost?", "How long does a parcel take?", "Can I pay by bank transfer?",
    "How long is the warranty of a chair?", "Is a gift card good for ever?",
    "When is the store at the station open?", "Can I collect my order in a store?",
    "What happens if my kettle breaks after a year?",
)  # fmt: skip
ERRANDS = (
    ("order_status", "Where is my order A1?"), ("order_status", "Is my order A2 on its way?"),
    ("stock", "Do you have the lamp?"), ("stock", "Is the kettle in stock?"), ("", "What can I pay with?"),
)  # fmt: skip
"""A tool and the question it answers. The first call is forced (``tool_choice``): a model as
small as the demo's seldom asks by itself."""
LEVELS = ((1, 8), (4, 16))


def config_file(name: str) -> Path:
    return FOLDER / f"{name}.yaml"


def pipeline_plan(name: str, seed: int, scale: float = 1.0) -> list[Phase]:
    """The phases, the same for the same seed."""
    rng = random.Random(seed)
    phases = []
    for concurrency, count in LEVELS:
        phase = Phase(concurrency)
        for _ in range(max(1, round(count * scale))):
            tool, question = rng.choice(ERRANDS) if name == "agent" else ("", rng.choice(QUESTIONS))
            phase.asks.append(
                Ask(phase=phase.name, kind=tool or "question", prompt=question, tool=tool,
                    max_tokens=64 if tool else 40, stream=True, temperature=0.0)
            )  # fmt: skip
        phases.append(phase)
    return phases
