"""Sending one level of a load: open loop by a schedule, or closed loop by concurrency."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Callable, Coroutine, Iterator
from itertools import chain, islice

from stagelens.bench.pacer import Pacer
from stagelens.bench.plan import Plan, Step
from stagelens.bench.sample import INTERRUPTED, Sample
from stagelens.bench.settings import BenchSettings
from stagelens.bench.talk import Content, Conversation, Message, Speech
from stagelens.bench.wire import Client
from tracer.clock import Clock, seconds_to_ns
from tracer.ids import RandomIds

DEFAULT_S = 30.0
DEFAULT_WARMUP_S = 5.0
MADE_AHEAD, AHEAD_CHARS = 5_000, 64_000_000
HEAD_START_NS = 20_000_000
WARMUP = ".warmup"
"""Ends each of the load's own tags on warm-up requests: a question by any of them leaves these out."""


class Driver:
    """One level. ``samples`` grows as requests are sent, and holds those of the warm-up too.

    ``peak`` is the most that were in flight as a measured one was sent, the warm-up's last ones
    with them. ``behind_ns`` is how late this client was to begin the last of an open loop's requests.
    """

    def __init__(
        self, client: Client, speech: Speech, settings: BenchSettings, step: Step, plan: Plan,
        clock: Clock, name: str, on_change: Callable[[Driver], None] | None = None,
    ) -> None:  # fmt: skip
        self._client, self._speech, self._settings = client, speech, settings
        self._plan, self._clock, self._on_change = plan, clock, on_change
        self._ids = RandomIds()
        self._choices = choices(settings)
        self.step = step
        self.samples: list[Sample] = []
        self.in_flight = self.peak = self.ended = 0
        self.turns_failed = self.turns_late = 0
        """Planned turns of measured conversations that were not sent: behind a failed one, or as
        the time was over."""
        self.interrupted = False
        self.start_ns = 0
        self.warmup_s, self.duration_s = lengths(settings)
        self.stopped_ns = self.behind_ns = 0
        self._begun = self._begun_measured = 0
        self._first_measured_ns = 0
        self._ended_by_time = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._sending: asyncio.Task[None] | None = None
        self._fault: BaseException | None = None
        own = {"run": step.run, "bench": name, "level": step.label}
        self._tags = _tags(own | settings.tags)
        self._warmup_tags = _tags({key: said + WARMUP for key, said in own.items()} | settings.tags)

    @property
    def elapsed_s(self) -> float:
        """Since the first request was due; 0 before."""
        since = self._clock.mono_ns() - self.start_ns if self.start_ns else 0
        return max(0.0, since / 1e9)

    async def run(self) -> None:
        """Send everything and wait for the answers; after :meth:`stop` return soon."""
        talks = _made_ahead(self._plan.conversations, self._settings.requests)
        gc.collect()
        gc.freeze()
        self._sending = asyncio.create_task(self._send(talks))
        try:
            await asyncio.wait({self._sending})
            if self._tasks:
                await asyncio.wait(self._tasks)
        finally:
            gc.unfreeze()
        if not self._sending.cancelled():
            self._sending.result()
        if self._fault is not None:
            raise self._fault

    def stop(self) -> None:
        """Send no more, and end what is in flight; its samples say ``interrupted``."""
        self.interrupted = True
        self.stopped_ns = self._clock.mono_ns()
        for task in (self._sending, *self._tasks):
            if task is not None:
                task.cancel()

    def abandon(self) -> None:
        """As :meth:`stop`, for one whose :meth:`run` is not waited for any more."""
        self.stop()
        for one in self.samples:
            if not one.end_ns:
                one.end_ns, one.error = self.stopped_ns, one.error or INTERRUPTED

    async def _send(self, talks: Iterator[Conversation]) -> None:
        for primer in self._plan.primers:
            await self._talk(primer, self._clock.mono_ns(), measured=False)
        self.start_ns = self._clock.mono_ns()
        if self._plan.arrivals is None:
            count = self.step.concurrency or 1
            for _ in range(count):
                self._keep(self._worker(talks))
            return
        self.start_ns += HEAD_START_NS
        with Pacer(self._clock) as pacer:
            for at_s, talk in zip(self._plan.arrivals, talks, strict=False):
                intended_ns = self.start_ns + seconds_to_ns(at_s)
                if self._is_over(intended_ns):
                    return
                await pacer.until(intended_ns)
                self.behind_ns = self._clock.mono_ns() - intended_ns
                self._keep(self._talk(talk, intended_ns, measured=self._count(intended_ns)))

    async def _worker(self, talks: Iterator[Conversation]) -> None:
        while not self._is_over(now_ns := self._clock.mono_ns()):
            talk = next(talks, None)
            if talk is None:
                return
            await self._talk(talk, now_ns, measured=self._count(now_ns))

    def _keep(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and self._fault is None:
            self._fault = task.exception()

    @property
    def span_ns(self) -> tuple[int, int | None] | None:
        """When the measured requests were sent: from, and until; None before there is any.

        A level that ended by its time or was stopped lasted until then, whether or not a
        request fell on its edges; one that ended by its count has no such end.
        """
        begin_ns = self._begin_ns if self.start_ns and self.duration_s is not None else None
        begin_ns = begin_ns or self._first_measured_ns
        until_ns = self.stopped_ns or None
        if until_ns is None and self._ended_by_time and self.duration_s is not None:
            until_ns = begin_ns + seconds_to_ns(self.duration_s)
        if not begin_ns or (until_ns is not None and until_ns <= begin_ns):
            return None
        return begin_ns, until_ns

    @property
    def _begin_ns(self) -> int | None:
        """Where the measured time begins; None: not known until the warm-up's count is sent."""
        if self._settings.warmup_requests:
            return self._first_measured_ns or None
        return self.start_ns + seconds_to_ns(self.warmup_s)

    def _is_over(self, at_ns: int) -> bool:
        most = self._settings.requests
        if most is not None and self._begun_measured >= most:
            return True
        self._ended_by_time = self._is_past(at_ns)
        return self._ended_by_time

    def _is_past(self, at_ns: int) -> bool:
        """The measured time is over then, where it is limited."""
        if self.duration_s is None or (begin_ns := self._begin_ns) is None:
            return False
        return at_ns - begin_ns >= seconds_to_ns(self.duration_s)

    def _count(self, intended_ns: int) -> bool:
        """Whether a conversation that begins now is measured."""
        self._begun += 1
        measured = self._begun > self._settings.warmup_requests
        measured = measured and intended_ns - self.start_ns >= seconds_to_ns(self.warmup_s)
        self._begun_measured += measured
        if measured and not self._first_measured_ns:
            self._first_measured_ns = intended_ns
        return measured

    async def _talk(self, talk: Conversation, intended_ns: int, *, measured: bool) -> None:
        history: list[Message] = []
        number = self._begun
        stream = self._settings.stream if talk.stream is None else talk.stream
        for place, turn in enumerate(talk.turns):
            history += turn.messages
            sample = Sample(
                number=len(self.samples), intended_ns=intended_ns, measured=measured,
                conversation=number, turn=place, meant_input=turn.input_tokens,
                meant_output=turn.output_tokens * self._choices, stream=stream,
            )  # fmt: skip
            more = place + 1 < len(talk.turns)
            text = await self._one(sample, history, turn.output_tokens, keep_text=more)
            left = (len(talk.turns) - place - 1) * measured
            if sample.error or not more:
                self.turns_failed += left
                return
            history.append({"role": "assistant", "content": text or "."})
            intended_ns = sample.end_ns + seconds_to_ns(self._settings.think_s)
            if self._is_past(intended_ns):
                self.turns_late += left
                return
            await asyncio.sleep((intended_ns - self._clock.mono_ns()) / 1e9)

    async def _one(
        self, sample: Sample, history: list[Message], tokens: int, *, keep_text: bool
    ) -> str:
        tags = self._tags if sample.measured else self._warmup_tags
        parent = ""
        if self._speech.own_traces:
            sample.trace_id = f"{self._ids.trace_id():032x}"
            parent = f"00-{sample.trace_id}-{self._ids.span_id():016x}-01"
        request = self._speech.request(
            history, tokens, stream=sample.stream, tags=tags, traceparent=parent
        )
        self.samples.append(sample)
        self.in_flight += 1
        if sample.measured:
            self.peak = max(self.peak, self.in_flight)
        try:
            return await self._client.send(request, sample, keep_text=keep_text)
        finally:
            self.in_flight -= 1
            self.ended += 1
            if self._on_change is not None:
                self._on_change(self)


def lengths(settings: BenchSettings) -> tuple[float, float | None]:
    """Seconds of warm-up, and of what is measured (``None``: until the count or the end)."""
    warmup_s = settings.warmup_s
    if warmup_s is None:
        warmup_s = 0.0 if settings.replay or settings.warmup_requests else DEFAULT_WARMUP_S
    if settings.duration_s or settings.requests or settings.replay:
        return warmup_s, settings.duration_s
    return warmup_s, DEFAULT_S


def choices(settings: BenchSettings) -> int:
    """How many answers each request asks for: ``n`` of its body."""
    told = settings.body.get("n")
    return told if type(told) is int and told > 1 else 1


def _made_ahead(talks: Iterator[Conversation], count: int | None) -> Iterator[Conversation]:
    """The same, with the first thousands made now and not while times are taken.

    Of long ones fewer: ``AHEAD_CHARS`` of text are enough to hold.
    """
    first, chars = [], 0
    for talk in islice(talks, min(MADE_AHEAD, count or MADE_AHEAD)):
        first.append(talk)
        chars += sum(_size(said["content"]) for turn in talk.turns for said in turn.messages)
        if chars >= AHEAD_CHARS:
            break
    return chain(first, talks)


def _size(content: Content) -> int:
    return len(content) if isinstance(content, str) else len(json.dumps(content))


def _tags(tags: dict[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in tags.items())
