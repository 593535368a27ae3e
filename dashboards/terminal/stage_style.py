"""How each stage looks: a colour, and a letter for where there is no colour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.text import Text

from dashboards.terminal.text import apportion
from tracer.stages import Stage

COLOURS: Final[dict[str, str]] = {
    Stage.PROMPT: "cyan",
    Stage.RETRIEVAL: "magenta",
    Stage.QUEUE: "yellow",
    Stage.PREFILL: "blue",
    Stage.DECODE: "green",
    Stage.TOOL: "bright_magenta",
    Stage.DELIVER: "bright_cyan",
    Stage.UNATTRIBUTED: "bright_black",
}
LETTERS: Final[dict[str, str]] = {
    Stage.PROMPT: "p",
    Stage.RETRIEVAL: "r",
    Stage.QUEUE: "q",
    Stage.PREFILL: "f",
    Stage.DECODE: "d",
    Stage.TOOL: "t",
    Stage.DELIVER: "l",
    Stage.UNATTRIBUTED: ".",
}


def colour(stage: str | None) -> str:
    """The colour of ``stage``; a span of no stage is white."""
    return COLOURS.get(stage or "", "white")


def stage_bar(shares: Sequence[tuple[str, float]], width: int) -> Text:
    """One bar of ``width`` cells, each a stage's letter on its colour, in the order given."""
    bar = Text()
    cells = apportion([share for _, share in shares], width)
    for (stage, _), length in zip(shares, cells, strict=True):
        bar.append(LETTERS[stage] * length, f"black on {colour(stage)}")
    return bar


def legend(stages: Sequence[str]) -> Text:
    """What the letters mean, for ``stages``."""
    text = Text()
    for stage in stages:
        if text:
            text.append("  ")
        text.append(f"{LETTERS[stage]} {stage}", colour(stage))
    return text
