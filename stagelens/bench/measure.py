"""From samples to the figures of a level."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from stagelens.bench.drive import Driver
from stagelens.bench.figures import figures
from stagelens.bench.limits import at_percentile, is_good, is_untold
from stagelens.bench.models import Counts, Figures, Level, Point
from stagelens.bench.plan import told_rate
from stagelens.bench.sample import CLIENT_LIMIT, INTERRUPTED, Sample
from stagelens.bench.settings import BenchSettings

HELD_SHARE, HICCUP_NS = 0.1, 250_000_000
"""A schedule is held that ended late by less than this share of it, or by no more than a hiccup
of a busy machine; one that took twice its time is not."""
UNANSWERED = 3


def make_level(driver: Driver, settings: BenchSettings) -> Level:
    """The figures over the measured requests; warm-up ones are counted alone."""
    step = driver.step
    measured = [s for s in driver.samples if s.measured]
    whole = [s for s in measured if s.error != INTERRUPTED]
    ok = [s for s in whole if not s.error]
    window_s = _window_s(driver, measured)
    good = sum(is_good(s, settings.goodput) for s in whole) if settings.goodput else None
    at = at_percentile(whole, settings.goodput, settings.percentile)
    inputs = _total([s.input_tokens for s in ok])
    outputs = _total([s.output_tokens for s in ok])
    return Level(
        label=step.label, run=step.run, rate=step.rate, concurrency=step.concurrency,
        window_s=window_s, offered_per_s=_offered(driver, measured),
        done_per_s=_per_s(len(ok), window_s),
        input_tokens_per_s=_per_s(inputs, window_s),
        output_tokens_per_s=_per_s(outputs, window_s),
        in_flight_mean=_in_flight(measured, window_s), in_flight_peak=driver.peak,
        counts=_counts(driver, measured), figures=_figures(whole),
        input_tokens=inputs, output_tokens=outputs, cached_share=_cached(ok),
        good=good, good_per_s=_per_s(good, window_s), at_percentile=at,
        untold=sum(is_untold(s, settings.goodput) for s in ok),
        meets_limits=_meets(at, settings) if settings.goodput and whole else None,
        server=None, **_as_meant(ok),
    )  # fmt: skip


def point(level: Level) -> Point:
    """The level as a point of the search's curve."""
    return Point(
        rate=level.rate or 0.0, good_per_s=level.good_per_s, meets=bool(level.meets_limits),
        at_percentile=level.at_percentile,
    )  # fmt: skip


def no_verdict(level: Level, driver: Driver) -> str:
    """Why a level tells nothing of whether the server holds its rate; "" when it does."""
    rate = told_rate(level.rate or 0)
    if level.meets_limits is None:
        return f"at {rate}/s no request was measured: give more --duration"
    if unsent := level.counts.errors.get(CLIENT_LIMIT):
        said = level.counts.said.get(CLIENT_LIMIT)
        return f"at {rate}/s this client had no socket for {unsent} requests ({said})"
    if level.counts.ok and level.empty == level.counts.ok:
        return f"at {rate}/s no answer held a token"
    if {"ttft", "itl"} & level.at_percentile.keys() and level.counts.ok and not level.figure("ttft").n:
        return f"at {rate}/s no answer has a TTFT: the server did not stream"
    if "tpot" in level.at_percentile and level.counts.ok and not level.figure("tpot").n:
        return (
            f"at {rate}/s no answer has a TPOT: it needs two tokens, and the server's count "
            "of them"
        )
    if is_behind(driver):
        return (
            f"this client cannot send {rate}/s: it was {driver.behind_ns / 1e9:.2g} s "
            f"behind after {_lasted_ns(driver) / 1e9:.3g} s"
        )
    return ""


def is_behind(driver: Driver) -> bool:
    """The schedule was not held. One pause of the machine is longer than the whole of a short one,
    so that one such level does not tell it from a client that is too slow."""
    lasted_ns = _lasted_ns(driver)
    return driver.behind_ns > min(max(HELD_SHARE * lasted_ns, HICCUP_NS), lasted_ns or HICCUP_NS)


def _lasted_ns(driver: Driver) -> int:
    times = [s.intended_ns for s in driver.samples if s.turn == 0]
    return max(times) - min(times) if times else 0


def is_hopeless(level: Level, driver: Driver) -> bool:
    """It missed the limits though its requests came one at a time: no lower rate can help."""
    return level.meets_limits is False and level.counts.ok > 0 and driver.peak <= 1


def unanswered(levels: Sequence[Level]) -> str:
    """Why a search ends after levels of which the last few had no answer at all; "" otherwise.

    Each lower rate takes longer, down to hours for a server that answers none.
    """
    last = levels[-UNANSWERED:]
    if len(last) < UNANSWERED or any(one.counts.ok for one in last):
        return ""
    rates = ", ".join(told_rate(one.rate or 0) for one in last)
    said = "; ".join(f"{kind}: {words}" for kind, words in last[-1].counts.said.items())
    return (
        f"at {rates} requests/s not one was answered ({said or ', '.join(last[-1].counts.errors)}): "
        "give a lower --rate if the load is why"
    )


def _figures(whole: Sequence[Sample]) -> tuple[Figures, ...]:
    streamed = [s for s in whole if s.stream]
    gaps: dict[bool, list[int]] = {True: [], False: []}
    for one in streamed:
        if not one.error:
            gaps[one.token_gaps] += one.gaps
    return (
        figures("ttft", [None if s.error else s.ttft_ns for s in streamed]),
        figures("ttft_sent", [None if s.error else s.ttft_sent_ns for s in streamed]),
        figures("e2e", [s.e2e_ns for s in whole]),
        figures("e2e_sent", [s.e2e_sent_ns for s in whole]),
        figures("tpot", [s.tpot_ns for s in streamed]),
        figures("itl", gaps[True]),
        figures("itl_chunk", gaps[False]),
        figures("late", [s.late_ns for s in whole]),
    )


def _counts(driver: Driver, measured: Sequence[Sample]) -> Counts:
    samples = driver.samples
    errors = Counter(s.error for s in measured if s.error and s.error != INTERRUPTED)
    cut = sum(s.error == INTERRUPTED for s in measured)
    failed = sum(errors.values())
    return Counts(
        warmup=len(samples) - len(measured), sent=len(measured),
        ok=len(measured) - failed - cut, failed=failed, interrupted=cut, errors=dict(errors),
        said={s.error: s.said for s in reversed(measured) if s.error in errors and s.said},
        resent=sum(s.resent for s in measured),
        turns_failed=driver.turns_failed, turns_late=driver.turns_late,
        primers=sum(s.conversation == 0 for s in samples),
    )  # fmt: skip


def _window_s(driver: Driver, measured: Sequence[Sample]) -> float | None:
    """The measured time: to its own end, or to that of the last request when that is later."""
    if (span := driver.span_ns) is None:
        return None
    begin_ns, until_ns = span
    ends = [s.end_ns for s in measured] + ([until_ns] if until_ns else [])
    return (max(ends) - begin_ns) / 1e9 if ends else None


def _offered(driver: Driver, measured: Sequence[Sample]) -> float | None:
    """Requests a second while they were sent, each turn one: by when they left.

    Where a count ended the level, over the gaps between them: n - 1.
    """
    times = [s.sent_ns or s.intended_ns for s in measured]
    if (span := driver.span_ns) is None or not times:
        return None
    begin_ns, until_ns = span
    if until_ns is not None:
        return len(times) * 1e9 / (max(until_ns, *times) - begin_ns)
    lasted_ns = max(times) - min(times)
    return (len(times) - 1) * 1e9 / lasted_ns if lasted_ns else None


def _per_s(count: float | None, window_s: float | None) -> float | None:
    return count / window_s if count is not None and window_s else None


def _in_flight(measured: Sequence[Sample], window_s: float | None) -> float | None:
    """Over the measured time, with those that were interrupted."""
    if not window_s:
        return None
    return sum(s.end_ns - s.sent_ns for s in measured if s.sent_ns) / 1e9 / window_s


def _total(values: Sequence[int | None]) -> int | None:
    known = [v for v in values if v is not None]
    return sum(known) if known else None


def _cached(ok: Sequence[Sample]) -> float | None:
    known = [s for s in ok if s.cached_tokens is not None and s.input_tokens]
    whole = sum(s.input_tokens or 0 for s in known)
    return sum(s.cached_tokens or 0 for s in known) / whole if whole else None


def _as_meant(ok: Sequence[Sample]) -> dict[str, int]:
    """How many answers and prompts had the wanted length, of those of which both are known; how
    many answers held nothing, or were no streams although these were asked for."""
    inputs = [s for s in ok if s.meant_input is not None and s.input_tokens is not None]
    outputs = [s for s in ok if s.meant_output is not None and s.output_tokens is not None]
    return {
        "inputs_as_meant": sum(s.meant_input == s.input_tokens for s in inputs),
        "inputs_known": len(inputs),
        "outputs_as_meant": sum(s.meant_output == s.output_tokens for s in outputs),
        "outputs_known": len(outputs),
        "empty": sum(s.is_empty for s in ok),
        "unstreamed": sum(s.stream and not s.streamed for s in ok),
    }


def _meets(at: dict[str, float | None], settings: BenchSettings) -> bool:
    return all(
        (value := at[name]) is not None and value <= limit * 1e9
        for name, limit in settings.goodput.items()
    )
