"""What one level of a load sends: conversations, and when they begin."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from stagelens.bench.arrivals import schedule
from stagelens.bench.datafile import Item
from stagelens.bench.lengths import Lengths, parse_lengths
from stagelens.bench.settings import BenchSettings
from stagelens.bench.talk import Conversation, Message, Turn
from stagelens.bench.words import Scale, draw_words, prompt

DEFAULT_OUTPUT = "64"


@dataclass(frozen=True, slots=True)
class Step:
    """One level: an arrival rate, a concurrency, or neither for a replay."""

    label: str
    run: str
    rate: float | None = None
    concurrency: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """``arrivals`` are seconds from the start, ``None`` for a closed loop.

    ``primers`` are sent one by one before, to fill the prefix cache as it was.
    """

    conversations: Iterator[Conversation]
    arrivals: Iterator[float] | None
    primers: tuple[Conversation, ...] = ()


def steps(settings: BenchSettings, name: str) -> tuple[Step, ...]:
    """The levels in the order given; several have runs of their own, ``NAME.rate4``."""
    if settings.replay:
        return (Step("replay", name),)
    many = len(settings.rate) + len(settings.concurrency) > 1
    found = [rate_step(r, name if not many else None, name) for r in settings.rate]
    for n in settings.concurrency:
        label = f"concurrency{n}"
        found.append(Step(label, f"{name}.{label}" if many else name, concurrency=n))
    return tuple(found)


def rate_step(rate: float, run: str | None, name: str) -> Step:
    """A level of ``rate``; without ``run`` its run is named after it."""
    label = f"rate{told_rate(rate)}"
    return Step(label, run or f"{name}.{label}", rate=rate)


def told_rate(rate: float) -> str:
    """Six digits of it, and no powers of ten."""
    return f"{Decimal(f'{rate:.6g}'):f}"


def again(step: Step) -> Step:
    """The same load with other prompts, in a run of its own."""
    return replace(step, label=f"{step.label}.again", run=f"{step.run}.again")


def make_plan(
    settings: BenchSettings, step: Step, scale: Scale, items: Sequence[Item] = ()
) -> Plan:
    """The same for the same settings and seed; levels do not repeat each other's prompts."""
    base = f"{settings.seed}/{step.label}"
    arrivals = None
    if step.rate is not None:
        rng = random.Random(f"{base}/arrivals")  # noqa: S311
        arrivals = schedule(settings.arrivals, step.rate, settings.burstiness, rng)
    texts = random.Random(f"{base}/texts")  # noqa: S311
    if items:
        return Plan(_from_file(settings, items, texts), arrivals)
    return Plan(_made_up(settings, scale, texts), arrivals)


def _made_up(settings: BenchSettings, scale: Scale, rng: random.Random) -> Iterator[Conversation]:
    inputs, outputs = parse_lengths(settings.input), parse_lengths(settings.output or DEFAULT_OUTPUT)
    turns = parse_lengths(settings.turns)
    shared = [
        draw_words(random.Random(f"{settings.seed}/prefix/{n}"),  # noqa: S311
                   round(settings.prefix_tokens / scale.per_word))
        for n in range(settings.prefixes)
    ]  # fmt: skip
    while True:
        prefix = rng.choice(shared) if rng.random() < settings.prefix_share else []
        made = [_first(rng, inputs, outputs, scale, prefix)]
        for _ in range(turns.draw(rng) - 1):
            words = draw_words(rng, max(1, round(inputs.draw(rng) / scale.per_word)))
            made.append(Turn((said(" ".join(words)),), outputs.draw(rng)))
        yield Conversation(tuple(made))


def _first(
    rng: random.Random, inputs: Lengths, outputs: Lengths, scale: Scale, prefix: list[str]
) -> Turn:
    tokens = inputs.draw(rng)
    own = scale.words(tokens) - len(prefix)
    least = 1 if prefix else 0
    words = [*prefix, *draw_words(rng, max(own, least))]
    return Turn((said(prompt(words)),), outputs.draw(rng), tokens)


def said(text: str) -> Message:
    return {"role": "user", "content": text}


def _from_file(
    settings: BenchSettings, items: Sequence[Item], rng: random.Random
) -> Iterator[Conversation]:
    """In a shuffled order, over and over; each time round in another one."""
    outputs = parse_lengths(settings.output) if settings.output else None
    turns = parse_lengths(settings.turns)
    order = list(items)
    while True:
        rng.shuffle(order)
        for item in order:
            chosen = item.turns[: turns.draw(rng)]
            yield Conversation(
                tuple(
                    Turn(one.messages, outputs.draw(rng) if outputs else one.output_tokens)
                    for one in chosen
                )
            )
