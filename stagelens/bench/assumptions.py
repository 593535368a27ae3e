"""What the figures rest on, in sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from dashboards.times import many
from stagelens.bench.drive import WARMUP, choices, lengths
from stagelens.bench.models import Level
from stagelens.bench.plan import DEFAULT_OUTPUT
from stagelens.bench.sample import CLIENT_LIMIT
from stagelens.bench.settings import BenchSettings

_ARRIVALS = {
    "poisson": "Poisson arrivals",
    "constant": "evenly spaced arrivals",
    "gamma": "arrivals in bursts (gamma; deviation of the gaps {burst:g} times their mean)",
}
FEW = 10
LATE_NS = 5_000_000
_CLOCKS = (
    "TTFT and E2E count from the time a request was meant to be sent; the lines from the send "
    "count from its bytes' leaving. TPOT is by the server's token count, and unknown without one."
)
_CHOICES = (
    "Each request asks for {} answers: output tokens are of all together, TPOT is the sum of their "
    "spans over the sum of their gaps, and a request ends with the last of them."
)
_SEED = (
    "Seed {}: the same seed sends the same prompts at the same times. A server that has seen them "
    "may find them in its prefix cache."
)


def assumptions(
    settings: BenchSettings, notes: Sequence[str], levels: Sequence[Level]
) -> tuple[str, ...]:
    """One sentence each: load, lengths, prefixes, warm-up, clocks, and what spoils them."""
    return (
        _load(settings), _lengths(settings), *notes, *_prefixes(settings), *_primers(levels),
        _warmup(settings), *_search(settings),
        _CLOCKS, *_choices(settings), _SEED.format(settings.seed),
        *_doubts(levels),
    )  # fmt: skip


def _load(settings: BenchSettings) -> str:
    if settings.replay:
        speed = "" if settings.speed == 1 else f", {settings.speed:g} times as fast"
        return f"Load: a replay of {settings.replay}, with its own arrival times{speed}; open loop."
    if settings.concurrency:
        return (
            "Load: closed loop; each client sends its next request when the last is answered, so a "
            "slow server is asked less often."
        )
    kind = _ARRIVALS[settings.arrivals].format(burst=settings.burstiness)
    what = "conversations" if settings.turns != "1" else "requests"
    return f"Load: open loop, {kind}; {what} are sent on time however slow the answers are."


def _lengths(settings: BenchSettings) -> str:
    if settings.replay:
        return "Lengths: as recorded, of prompts and of answers."
    forced = " (no early end)" if settings.ignore_eos else " (at most)"
    if settings.data:
        output = settings.output or "as the file says, or as long as those in it (4 characters a token)"
        turns = "" if settings.turns == "1" else f"; up to {settings.turns} turns of each"
        return f"Lengths: prompts of {settings.data.name}{turns}; answers {output}{forced}, tokens."
    output = settings.output or DEFAULT_OUTPUT
    if settings.turns == "1":
        return f"Lengths: prompts {settings.input}, answers {output}{forced}, tokens."
    return (
        f"Lengths: first prompts and each further text {settings.input}, answers {output}{forced}, "
        f"tokens; turns {settings.turns}, {settings.think_s:g} s apart. A turn's prompt holds all before it."
    )


def _choices(settings: BenchSettings) -> tuple[str, ...]:
    return () if (count := choices(settings)) == 1 else (_CHOICES.format(count),)


def _prefixes(settings: BenchSettings) -> tuple[str, ...]:
    if settings.replay or settings.data:  # told in the notes, by what was read
        return ()
    if not settings.prefix_share:
        what = "prompts" if settings.turns == "1" else "first prompts of conversations"
        return (f"Prefixes: {what} begin alike only in the template and a first word or two.",)
    of = "one shared prefix" if settings.prefixes == 1 else f"one of {settings.prefixes} shared prefixes"
    told = (
        f"Prefixes: {settings.prefix_share:.0%} of the prompts begin with "
        f"{of} of {settings.prefix_tokens} tokens, and are at least one longer."
    )
    return (told,)


def _primers(levels: Sequence[Level]) -> tuple[str, ...]:
    count = sum(one.counts.primers for one in levels)
    if not count:
        return ()
    return (f"Prefixes: {count} requests before the first one put what was cached then there again.",)


def _warmup(settings: BenchSettings) -> str:
    warmup_s, _ = lengths(settings)
    if not warmup_s and not settings.warmup_requests:
        return "Warm-up: none; the first requests are measured too."
    first = f"{warmup_s:g} s" if warmup_s else f"{settings.warmup_requests} requests"
    return (
        f"Warm-up: the first {first} of each level are in no figure; their tags run, bench "
        f"and level end in {WARMUP}, so that no question by these counts them."
    )


def _search(settings: BenchSettings) -> tuple[str, ...]:
    """A rate that is too high by the precision must build up a queue that the limits show."""
    _, duration_s = lengths(settings)
    limits = {name: settings.goodput[name] for name in ("ttft", "e2e") if name in settings.goodput}
    if not settings.find_max or not limits or duration_s is None:
        return ()
    name = min(limits, key=lambda one: limits[one])
    wait_s = duration_s * settings.precision
    if limits[name] <= wait_s:
        return ()
    told = (
        f"Search: in {duration_s:g} s a rate that is {settings.precision:.0%} too high makes requests "
        f"wait {wait_s:.2g} s at most, which {name} <= {limits[name]:g} s may not show: the rate found "
        f"may be too high. --duration {math.ceil(limits[name] / settings.precision):g} or more tells."
    )
    return (told,)


def _doubts(levels: Sequence[Level]) -> list[str]:
    kinds = (
        _nothing_said, _not_streamed, _lateness, _other_lengths, _chunks, _second_sends,
        _without_sockets, _few, _turns_left, _spinning,
    )  # fmt: skip
    return [f"{one.label}: {told}" for one in levels for kind in kinds for told in kind(one)]


def _nothing_said(one: Level) -> Iterator[str]:
    if one.empty:
        yield (
            f"{one.empty} of {many(one.counts.ok, 'answer')} held no token; such an answer is "
            "within no limits, but is among the answered ones and their E2E."
        )


def _not_streamed(one: Level) -> Iterator[str]:
    if one.unstreamed:
        yield (
            f"{one.unstreamed} of {many(one.counts.ok, 'answer')} did not come as the stream that "
            "was asked for: these have no TTFT, no TPOT and no gaps."
        )


def _lateness(one: Level) -> Iterator[str]:
    late = one.figure("late").p99_ns
    if late is not None and late > LATE_NS:
        yield (
            f"requests left late by {late / 1e6:.1f} ms at p99 (new connections, or a busy machine "
            "here); the figures from the send do not hold that."
        )


def _other_lengths(one: Level) -> Iterator[str]:
    if one.outputs_as_meant < one.outputs_known:
        short = one.outputs_known - one.outputs_as_meant
        yield f"{short} of {one.outputs_known} answers had another length."
    if one.inputs_as_meant < one.inputs_known:
        other = one.inputs_known - one.inputs_as_meant
        yield f"{other} of {one.inputs_known} prompts had another length."


def _chunks(one: Level) -> Iterator[str]:
    if one.figure("itl_chunk").n:
        why = "some chunks were not one token each" if one.output_tokens is not None else (
            "the server counted no tokens, so a chunk need not be one"
        )
        yield f"{why}; see chunk gaps."


def _second_sends(one: Level) -> Iterator[str]:
    if one.counts.resent:
        yield (
            f"{many(one.counts.resent, 'request')} sent again, as the kept connection closed before "
            "any answer; a server that drops work looks the same."
        )


def _without_sockets(one: Level) -> Iterator[str]:
    if unsent := one.counts.errors.get(CLIENT_LIMIT):
        yield (
            f"{unsent} requests were not sent, as this client had no socket for them (see `ulimit -n`): "
            "that is not the server's doing."
        )


def _turns_left(one: Level) -> Iterator[str]:
    if one.counts.turns_failed:
        turns = many(one.counts.turns_failed, "planned turn")
        yield f"{turns} not sent, as the one before in the same conversation failed."
    if one.counts.turns_late:
        turns = many(one.counts.turns_late, "planned turn")
        yield f"{turns} not sent, as they would have begun after the measured time."


def _spinning(one: Level) -> Iterator[str]:
    """A closed loop goes on at once behind a failure, so that quick ones are nearly all it sends."""
    if one.concurrency and one.counts.failed > one.counts.ok:
        yield (
            f"{one.counts.failed} of {many(one.counts.sent, 'request')} failed; a closed loop sends "
            "the next one at once, without a pause, so that how many were sent tells how quickly "
            "they were refused."
        )


def _few(one: Level) -> Iterator[str]:
    if one.rate is not None and 0 < one.counts.sent < FEW:
        yield (
            f"{many(one.counts.sent, 'request')} measured: what was sent and answered a second is "
            "of a few gaps and may be far from the wanted rate. A longer --duration or more "
            "--requests tell more."
        )
