"""Recorded requests sent again: gaps, lengths, shared prefixes."""

from __future__ import annotations

import json
import random
from itertools import pairwise

import pytest

from collectors.store.client import Store
from dashboards.errors import BadValueError
from dashboards.filters import Filters
from dashboards.models.records import Record
from dashboards.queries.records import records
from proxy.request.prompt_marks import BYTES_PER_TOKEN, PromptMarks, places
from stagelens.bench.alike_prompts import places as places_of
from stagelens.bench.measure import make_level
from stagelens.bench.replay import choose, make_replay, prefix_notes
from stagelens.bench.words import Scale
from tests.support.load_target import TEMPLATE_TOKENS, answer, driver_for, load_target
from tests.unit.dashboards.conftest import HandStore

SCALE = Scale(base=TEMPLATE_TOKENS + 1, per_word=1.0, measured=True)
MS = 1_000_000


@pytest.fixture
def hand(engine: Store):
    """Empty tables."""
    made = HandStore(engine)
    yield made
    made.empty()


def record(
    start_ns: int, tokens: int, cached: int | None = None, output: int | None = 3, marks: str = ""
) -> Record:
    times = dict.fromkeys(("prompt_ns", "queue_ns", "prefill_ns", "decode_ns", "deliver_ns"), 0)
    return Record(trace_id=f"{start_ns:032x}", start_unix_ns=start_ns, stream=True, status="ok",
                  e2e_ns=1, ttft_ns=1, tpot_ns=None, input_tokens=tokens, output_tokens=output,
                  cached_tokens=cached, prompt_marks=marks, **times)  # fmt: skip


def alike(*texts: list[str]) -> int:
    """How many words all of them begin with."""
    return next((n for n, at in enumerate(zip(*texts, strict=False)) if len(set(at)) > 1), 0)


def words(talk) -> list[str]:
    return talk.turns[0].messages[0]["content"].split()


async def test_a_thousand_recorded_requests_are_sent_with_their_gaps_and_lengths(hand):
    """From the store's rows to the fake server: gaps to the nanosecond as meant, all lengths."""
    rng = random.Random(11)
    at, rows = 0, []
    for _ in range(1000):
        rows.append({
            "start": at, "queue": 1, "InputTokens": rng.randint(13, 60),
            "OutputTokens": rng.randint(1, 4), "Tags": {"run": "old"},
        })  # fmt: skip
        at += int(rng.expovariate(1 / 4e6))
    hand.requests(*rows)
    told = records(hand, Filters(run="old"))
    recorded = choose(told.records)
    assert (told.total, len(recorded.records), recorded.left_out) == (1000, 1000, 0)
    async with load_target() as fake:
        plan = make_replay(recorded, SCALE, seed=0, speed=1.0)
        driver, client = driver_for(fake, plan, label="replay")
        await driver.run()
        await client.close()
    starts = [row["start"] for row in rows]
    intended = [s.intended_ns for s in driver.samples]
    gaps = zip(pairwise(intended), pairwise(starts), strict=True)
    assert all(abs((b - a) - (d - c)) <= 1 for (a, b), (c, d) in gaps)
    # how near the sent ones are is measured in benchmarks/load, on a quiet machine
    assert min(s.late_ns for s in driver.samples) >= 0
    level = make_level(driver, driver._settings)
    assert (level.counts.ok, level.inputs_as_meant, level.outputs_as_meant) == (1000, 1000, 1000)
    assert [s.input_tokens for s in driver.samples] == [row["InputTokens"] for row in rows]
    assert [s.output_tokens for s in driver.samples] == [row["OutputTokens"] for row in rows]


def test_speed_shortens_the_gaps():
    """Twice as fast."""
    plan = make_replay(choose([record(0, 20), record(500 * MS, 20)]), SCALE, 0, speed=2.0)
    assert list(plan.arrivals) == [0.0, 0.25]


def test_what_was_cached_is_shared_with_an_earlier_prompt():
    """As many words as the whole blocks that were found, half a block more, and then no more."""
    recorded = choose([record(1, 200, 0), record(2, 120, 96), record(3, 150, 96), record(4, 90, 0)])
    plan = make_replay(recorded, SCALE, 0, 1.0)
    assert plan.primers == ()
    first, second, third, fourth = (words(talk) for talk in plan.conversations)
    common = 96 + 8 - (TEMPLATE_TOKENS + 1) + 1
    assert alike(first, second) == common
    assert alike(second, third) == common
    assert alike(first, fourth) < 4
    assert [len(w) + TEMPLATE_TOKENS for w in (first, second, third, fourth)] == [200, 120, 150, 90]


def test_a_prefix_cached_before_the_recording_is_primed():
    """Nothing earlier is long enough: a primer comes first, and is no measured request."""
    plan = make_replay(choose([record(1, 120, 96), record(2, 120, 96)]), SCALE, 0, 1.0)
    [primer] = plan.primers
    one, two = plan.conversations
    common = 96 + 8 - (TEMPLATE_TOKENS + 1) + 1
    assert alike(words(primer), words(one), words(two)) == common
    assert primer.turns[0].output_tokens == 1


def marked(start_ns: int, ids: list[int], cached: int | None) -> Record:
    return record(start_ns, len(ids), cached, marks=PromptMarks(b"k").of(ids))


def test_different_prefixes_of_one_length_stay_different():
    """Three families of 64 tokens, in turns: each prompt shares with its own, and with no other."""
    prompts = [[family] * 64 + [100 + n] * 40 for n, family in enumerate([1, 2, 3] * 3)]
    recorded = choose([marked(n, p, 64 if n > 2 else 0) for n, p in enumerate(prompts)])
    plan = make_replay(recorded, SCALE, 0, 1.0)
    sent = [words(talk) for talk in plan.conversations]
    common = 64 + 8 - (TEMPLATE_TOKENS + 1) + 1
    assert plan.primers == ()
    assert [alike(sent[n], sent[n + 3]) for n in range(6)] == [common] * 6
    assert max(alike(sent[n], sent[m]) for n in range(9) for m in range(n) if (n - m) % 3) < 4


def test_prompts_that_were_alike_are_so_whether_or_not_the_cache_had_them():
    """A server without a cache told none; what is equal by the marks is sent equal."""
    prompts = [[1] * 64 + [n] * 40 for n in (5, 6)]
    plan = make_replay(choose([marked(n, p, None) for n, p in enumerate(prompts)]), SCALE, 0, 1.0)
    one, two = (words(talk) for talk in plan.conversations)
    assert alike(one, two) == 64 + 8 - (TEMPLATE_TOKENS + 1) + 1


def test_a_prefix_from_before_the_recording_is_primed_for_its_own_family_alone():
    """Two families found their 64 tokens cached by what is in no record."""
    prompts = [[family] * 64 + [100 + n] * 40 for n, family in enumerate([1, 2, 1, 2])]
    recorded = choose([marked(n, p, 64) for n, p in enumerate(prompts)])
    plan = make_replay(recorded, SCALE, 1, 1.0)
    sent = [words(talk) for talk in plan.conversations]
    common = 64 + 8 - (TEMPLATE_TOKENS + 1) + 1
    assert [alike(words(p), w) for p, w in zip(plan.primers, sent, strict=False)] == [common] * 2
    assert alike(sent[0], sent[2]) == alike(sent[1], sent[3]) == common
    assert max(alike(sent[0], sent[n]) for n in (1, 3)) < 4


def test_the_marks_of_the_proxy_and_of_the_replay_are_at_the_same_places():
    """The two packages do not import each other."""
    made = [at // BYTES_PER_TOKEN for at in places()]
    assert places_of(len(made)) == made


def test_what_the_prefixes_are_taken_from_is_told():
    """With records of both kinds, both sentences, with their counts."""
    both = prefix_notes(choose([marked(1, [1] * 40, 0), record(2, 20), record(3, 20)]))
    assert "of 1 requests keyed hashes" in both[0]
    assert "2 records hold no hashes" in both[1]
    assert "different prefixes of one length are taken for one" in both[1]
    assert len(prefix_notes(choose([marked(1, [1] * 40, 0)]))) == 1


def test_marks_are_read_of_the_spans_where_they_are_asked_for(hand):
    """Of the chosen requests alone; a request whose span is gone has none."""
    hand.requests(*({"start": n, "Tags": {"run": run}} for n, run in enumerate("aab")))
    made = hand.query("SELECT TraceId, SpanId FROM {database:Identifier}.requests ORDER BY Timestamp",
                      {"database": hand.database})  # fmt: skip
    ids = [(row["TraceId"], row["SpanId"]) for row in made]
    hand.spans(*(
        {"start": n, "TraceId": ids[n][0], "SpanId": ids[n][1],
         "SpanAttributes": {"stagelens.prompt.marks": f"t{n:08x}"}} for n in (0, 2)
    ))  # fmt: skip
    told = records(hand, Filters(run="a"), marks=True).records
    assert [one.prompt_marks for one in told] == ["t00000000", ""]
    assert [one.prompt_marks for one in records(hand, Filters(run="a")).records] == ["", ""]


def test_requests_without_lengths_are_left_out_and_counted():
    """A failed request has no output to be repeated."""
    found = choose([record(2, 20), record(1, 20, output=None)])
    assert (len(found.records), found.left_out, found.length_s) == (1, 1, 0.0)


async def test_a_request_that_was_no_stream_is_none_again():
    """Each one's own way."""
    one = record(1, 20).model_copy(update={"stream": False})

    def script(asked):
        from tests.fake_llm.dialects import whole

        if b'"stream": false' in asked.body:
            return whole({"role": "assistant", "content": "a"})
        return answer(asked)

    async with load_target(script) as fake:
        plan = make_replay(choose([one, record(2, 20)]), SCALE, 0, 1.0)
        driver, client = driver_for(fake, plan)
        await driver.run()
        await client.close()
    assert sorted(json.loads(a.body)["stream"] for a in fake.requests) == [False, True]
    assert [s.ttft_ns is None for s in driver.samples] == [True, False]


def test_records_are_the_earliest_and_their_number_is_told(hand):
    """Oldest first, with the total of what was chosen."""
    hand.requests(*({"start": n, "queue": 5, "FirstTokenNs": n} for n in (3, 1, 2)))
    told = records(hand, Filters(), limit=2)
    assert (told.total, [r.ttft_ns for r in told.records]) == (3, [1, 2])
    with pytest.raises(BadValueError, match="1 to 100000"):
        records(hand, Filters(), limit=0)
