"""What must be known of a server before it is loaded: its model, its manners, its token counts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations

from stagelens.bench.sample import Sample
from stagelens.bench.settings import BenchSettings
from stagelens.bench.talk import Speech
from stagelens.bench.wire import Client, Target, UntrustedError
from stagelens.bench.words import FEW, WORDS, Scale, probe_text
from stagelens.errors import UserError

REFUSALS = (400, 422)
"""Statuses of a request whose form is not taken."""
BUSY = (429, 503)
"""Statuses of a server that may take the same request a little later."""
PAUSES_S = (1.0, 2.0, 4.0)
"""Before a busy server is asked again, where it does not say how long."""
LONGEST_PAUSE_S = 30.0


@dataclass(frozen=True, slots=True)
class Prepared:
    """How to ask, how long prompts get, and what had to be assumed."""

    speech: Speech
    scale: Scale
    notes: tuple[str, ...]


async def prepare(client: Client, settings: BenchSettings, key: str | None) -> Prepared:
    """Ask for the model, then send a few requests for one token.

    Raises:
        UserError: nothing answers, the model is not told apart, or both forms of the
            request are refused.
    """
    target = Target.parse(settings.url)
    speech = Speech(
        target, settings.model or "", settings.endpoint, settings.ignore_eos,
        key=key, body=settings.body,
    )  # fmt: skip
    if settings.model is None:
        speech = replace(speech, model=await _only_model(client, speech, settings.url))
    speech, first, notes = await _accepted(client, speech, settings)
    if settings.data is not None:
        return Prepared(speech, Scale(), notes)
    scale = await _scale(client, speech, settings, first)
    return Prepared(speech, scale, (*notes, _told(scale)))


async def _scale(client: Client, speech: Speech, settings: BenchSettings, first: Sample) -> Scale:
    if (short := first.input_tokens) is None:
        return Scale()
    told = ""
    for words in (len(WORDS), FEW):
        second = await _probe(client, speech, settings, words)
        if second.error:
            told = f"{second.error}: {second.said}" if second.said else second.error
            continue
        if second.input_tokens is None:
            return Scale(unknown="the server counted the tokens of one prompt and not of another")
        return replace(Scale.of_probes(short, words, second.input_tokens), refused=told)
    return Scale(unknown=f"the server counts tokens, but did not answer a prompt of {FEW + 1} words ({told})")


async def _only_model(client: Client, speech: Speech, url: str) -> str:
    try:
        status, body = await client.get(speech.models())
    except UntrustedError as problem:
        raise UserError(f"{url}: {problem}") from None
    except OSError as problem:
        raise UserError(
            f"no server answers at {url} ({problem or type(problem).__name__}): check --url"
        ) from None
    try:
        names = [str(one["id"]) for one in json.loads(body)["data"]]
    except (ValueError, LookupError, TypeError):
        raise UserError(
            f"{url} told no models (HTTP {status}): name one with --model"
        ) from None
    if len(names) != 1:
        raise UserError(f"{url} has {len(names)} models ({', '.join(names[:5])}): name one with --model")
    return names[0]


async def _accepted(
    client: Client, speech: Speech, settings: BenchSettings
) -> tuple[Speech, Sample, tuple[str, ...]]:
    """The form of the request that the server takes, with what was left out of it."""
    sample = refused = await _probe(client, speech, settings, 0)
    notes: tuple[str, ...] = ()
    for other, told in _others(speech):
        if sample.status not in REFUSALS:
            break
        sample = await _probe(client, other, settings, 0)
        if sample.status not in REFUSALS:
            speech, notes = other, told
    if sample.status in REFUSALS:
        sample = refused  # what it said of the usual form
    if sample.error:
        said = f": {sample.said}" if sample.said else ""
        raise UserError(f"{settings.url} did not answer a first request ({sample.error}{said})")
    return replace(speech, own_traces=not sample.trace_id), sample, notes


def _others(speech: Speech) -> Iterator[tuple[Speech, tuple[str, ...]]]:
    """Other forms of the request, the nearest to the usual one first, and what to tell of each."""
    ways: list[tuple[str, Callable[[Speech], Speech]]] = [
        (
            "The server refused ignore_eos: answers may end before their wanted length.",
            lambda s: replace(s, ignore_eos=False),
        ),
        (
            "The server refused stream_options: it is not asked to count the tokens of streams.",
            lambda s: replace(s, stream_usage=False),
        ),
        (
            "The server refused max_tokens: it is sent max_completion_tokens.",
            lambda s: replace(s, length_field="max_completion_tokens"),
        ),
    ]
    ways = [way for way in ways if way[1](speech) != speech]
    for count in range(1, len(ways) + 1):
        for chosen in combinations(ways, count):
            other = speech
            for _, without in chosen:
                other = without(other)
            yield other, tuple(note for note, _ in chosen)


async def _probe(client: Client, speech: Speech, settings: BenchSettings, words: int) -> Sample:
    """The answer; of a server that is busy the one that it gives a little later, if it does."""
    for pause_s in PAUSES_S:
        sample = await _asked(client, speech, settings, words)
        wait_s = pause_s if sample.retry_after_s is None else sample.retry_after_s
        if sample.status not in BUSY or wait_s > LONGEST_PAUSE_S:
            return sample
        await asyncio.sleep(wait_s)
    return await _asked(client, speech, settings, words)


async def _asked(client: Client, speech: Speech, settings: BenchSettings, words: int) -> Sample:
    sample = Sample(number=0, intended_ns=0, measured=False)
    history = [{"role": "user", "content": probe_text(words)}]
    request = speech.request(history, 1, stream=settings.stream, tags="bench-probe=1")
    await client.send(request, sample)
    return sample


def _told(scale: Scale) -> str:
    if scale.exact:
        return (
            f"Prompts: common words, by the probes one token each here, beside {scale.base:.0f} of the "
            "template and the first word: lengths are exact, from these on."
        )
    if scale.measured and not scale.whole:
        return (
            f"Prompts: common words, by a probe of {FEW} {scale.per_word:.3f} tokens each here. The "
            f"server did not answer the probe of all words ({scale.refused}), so that lengths are "
            "near, not exact."
        )
    if scale.measured:
        return (
            f"Prompts: common words, by the probes {scale.per_word:.3f} tokens each here: "
            "lengths are near, not exact."
        )
    return f"Prompts: common words, taken for one token each: {scale.unknown}."
