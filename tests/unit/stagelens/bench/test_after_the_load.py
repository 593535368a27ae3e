"""When the load is sent: nothing that the store does, and no interrupt, costs what was measured."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from collectors.store.errors import StoreError
from dashboards.filters import Filters
from dashboards.models.records import Record, Records
from stagelens.bench import whole
from stagelens.bench.assumptions import assumptions
from stagelens.bench.export import to_html
from stagelens.bench.interrupt import Interrupts
from stagelens.bench.measure import make_level
from stagelens.bench.models import BenchResult
from stagelens.bench.plan import Plan
from stagelens.bench.probe import Prepared
from stagelens.bench.replay import choose
from stagelens.bench.run import Ran
from stagelens.bench.sample import Sample
from stagelens.bench.server_side import server_side
from stagelens.bench.settings import BenchSettings
from stagelens.bench.talk import Speech
from stagelens.bench.terminal import rates_in_words
from stagelens.bench.whole import Where
from stagelens.bench.wire import Target
from stagelens.bench.words import Scale
from stagelens.errors import UserError
from tests.fake_llm.server import Reset
from tests.support.load_target import CLOCK, answer, driver_for, load_target, talk
from tests.unit.stagelens.bench.test_both_sides import Stored, here, pair
from tracer.clock import Anchor

SETTINGS = BenchSettings(url="http://127.0.0.1:1", rate=(1,))


async def a_ran(levels: int = 1, *, own_traces: bool = True) -> Ran:
    """Levels of one answered request each."""
    speech = Speech(Target.parse(SETTINGS.url), "m", own_traces=own_traces)
    ran = Ran(Anchor.take(CLOCK), Prepared(speech, Scale(), ()))
    async with load_target() as fake:
        for n in range(levels):
            driver, client = driver_for(fake, Plan(iter([talk("a")]), iter([0.0])), label=f"l{n}")
            await driver.run()
            await client.close()
            for one in driver.samples:
                one.trace_id = f"{n + 1:032x}"
            ran.levels.append((make_level(driver, driver._settings), driver.samples))
    return ran


def source(monkeypatch: pytest.MonkeyPatch, told: object) -> None:
    """What opening the source gives; an exception is raised there."""
    @contextmanager
    def opened(*_: object):
        if isinstance(told, BaseException):
            raise told
        yield told

    monkeypatch.setattr(whole, "open_source", opened)


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        (KeyboardInterrupt(), "interrupted before the store had told them"),
        (RuntimeError("odd"), "RuntimeError: odd"),
        (StoreError("the store is busy"), "the store is busy"),
    ],
)
async def test_the_clients_figures_are_kept_whatever_the_store_does(monkeypatch, problem, said):
    """The note says why there are no others; an interrupt is one of the run."""
    ran = await a_ran()
    source(monkeypatch, problem)
    levels, note = whole._with_server_side(ran, SETTINGS, Where(store="chdb:///x"), Interrupts())
    assert levels == [ran.levels[0][0]]
    assert note == f"No server-side figures: {said}"
    assert ran.interrupted is isinstance(problem, KeyboardInterrupt)


async def test_a_source_that_nobody_named_and_nobody_runs_is_no_fault(monkeypatch):
    """Any server may be loaded; a named source that fails is told by its own words."""
    ran = await a_ran()
    source(monkeypatch, UserError("there is nothing to read"))
    assert "no Stagelens stands before" in whole._with_server_side(ran, SETTINGS, Where(), Interrupts())[1]
    there = Where(collector="http://127.0.0.1:9")
    note = whole._with_server_side(ran, SETTINGS, there, Interrupts())[1]
    assert note == "No server-side figures: there is nothing to read"


async def test_a_run_that_was_stopped_before_it_sent_is_not_looked_for(monkeypatch):
    """No store can hold what was not sent; its rates are unknown, and said to be."""
    ran = await a_ran()
    [(level, samples)] = ran.levels
    samples.clear()
    source(monkeypatch, AssertionError("nothing is asked"))
    told = whole._with_server_side(ran, SETTINGS, Where(store="chdb:///x"), Interrupts())
    assert told == ([level], "No server-side figures: no request was sent.")
    none = level.model_copy(update={"offered_per_s": None, "done_per_s": None, "in_flight_mean": None})
    assert rates_in_words(none)[0].startswith("unknown requests/s sent, unknown answered, ")


async def test_levels_after_one_that_the_store_does_not_know_are_not_waited_for(monkeypatch):
    """A sweep on a server without Stagelens waits once."""
    asked: list[float] = []

    def none(*_: object, doubt_s: float, **__: object) -> None:
        asked.append(doubt_s)

    monkeypatch.setattr(whole, "server_side", none)
    source(monkeypatch, object())
    whole._with_server_side(await a_ran(3), SETTINGS, Where(), Interrupts())
    assert asked == [4.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("where", "said"),
    [(Where(store="nonsense"), "store kind"), (Where("http://x", "chdb:///x"), "two sources")],
)
def test_a_source_that_is_written_wrong_is_told_before_the_load(where, said):
    """Exit code 2, with nothing sent."""
    with pytest.raises(UserError, match=said) as told:
        whole.run_bench(SETTINGS, "n", None, where)
    assert told.value.exit_code == 2


async def test_the_page_has_each_row_of_the_proxys_table():
    """What passed before its first byte too."""
    ran = await a_ran()
    sample, record = pair(1)
    side = server_side([sample], "r", Stored([record], boot="this"), here())
    [(level, samples)] = ran.levels
    level = level.model_copy(update={"server": side})
    result = BenchResult.model_construct(
        name="n", url="u", model="m", interrupted=False, levels=(level,), search=None,
        server_note="", assumptions=(), versions={}, machine="",
    )  # fmt: skip
    page = to_html(result, [(level, samples)])
    assert "<td>proxy: outside<td>1<td>0<td>5.000" in page
    assert "<td>proxy: before<td>1<td>0<td>2.000" in page


@pytest.mark.parametrize("asked", ["first", "2h..1h"])
def test_a_replay_of_what_the_store_does_not_hold_is_told(monkeypatch, asked):
    """A sweep's name is none of its levels'; a window may be empty."""
    source(monkeypatch, Stored([]))
    settings = BenchSettings(url="http://127.0.0.1:1", replay=asked)
    with pytest.raises(UserError, match=f"--replay {asked}: the store holds no request of it"):
        whole._recorded(settings, Where(), CLOCK)


def test_a_replay_of_a_window_asks_for_it_alone(monkeypatch):
    """From its begin to its end, with the marks of the prompts."""
    asked: list[Filters] = []

    class Told:
        def records(self, filters: Filters, *, limit: int, marks: bool) -> Records:
            asked.append(filters)
            one = pair(1)[1].model_copy(update={"prompt_marks": "t00" if marks else ""})
            return Records(total=1, records=(one,))

    source(monkeypatch, Told())
    settings = BenchSettings(url="http://127.0.0.1:1", replay="2h..1h")
    recorded = whole._recorded(settings, Where(), CLOCK)
    [filters] = asked
    assert (filters.until_unix_ns - filters.since_unix_ns, filters.run) == (3600 * 10**9, None)
    assert abs(CLOCK.unix_ns() - filters.until_unix_ns - 3600 * 10**9) < 60 * 10**9
    assert (len(recorded.records), recorded.unmarked) == (1, 0)


def test_a_name_that_another_load_had_is_told():
    """Report and compare would take both loads for one run."""
    sample, record = pair(1)
    older = [pair(n)[1] for n in (2, 3)]
    side = server_side([sample], "r", Stored([record, *older]), None)
    assert (side.asked, side.found) == (1, 1)
    assert side.reading[-1].startswith("The store holds 2 more requests of a run r, of another load")
    assert "more requests" not in " ".join(server_side([sample], "r", Stored([record]), None).reading)


def test_a_replay_of_more_requests_than_are_read_says_what_it_left_out(monkeypatch):
    """The earliest are sent; none of the others is silently gone."""
    times = dict.fromkeys(("prompt_ns", "queue_ns", "prefill_ns", "decode_ns", "deliver_ns"), 0)
    made = [
        Record(trace_id=f"{n:032x}", start_unix_ns=n, stream=True, status="ok", e2e_ns=1, ttft_ns=1,
               tpot_ns=None, input_tokens=9, output_tokens=output, cached_tokens=0, **times)
        for n, output in enumerate((3, None))
    ]  # fmt: skip
    assert choose(made, 2).unread == 0

    class Source:
        def records(self, *_: object, **__: object) -> Records:
            return Records(total=100_007, records=tuple(made))

    source(monkeypatch, Source())
    settings = BenchSettings(url=SETTINGS.url, replay="r")
    found = whole._recorded(settings, Where(), CLOCK)
    prefixes, *left_out = whole._replay_notes(found)
    assert prefixes.startswith("Prefixes: 1 records hold no hashes of their prompts.")
    assert left_out == [
        "Replay: 1 request without known lengths left out.",
        "Replay: the 100,000 earliest requests; 100,005 later ones are left out.",
    ]


async def test_failures_are_told_with_the_words_of_one_and_so_are_second_sends():
    """How many is not why."""
    def script(asked):
        return answer(asked, before=[Reset()] if len(fake.requests) > 1 else [])

    async with load_target(script) as fake:
        driver, client = driver_for(fake, Plan(iter([talk("a")] * 3), None), concurrency=1)
        await driver.run()
        await client.close()
    driver.samples[-1].resent = True
    level = make_level(driver, driver._settings)
    assert set(level.counts.said) == {"connection"}
    assert level.counts.said["connection"] == driver.samples[1].said != ""
    told = " ".join(assumptions(SETTINGS, (), [level]))
    assert "1 request sent again, as the kept connection closed" in told


async def test_what_a_server_did_not_count_is_not_called_more_than_a_token():
    """Chunk gaps without usage: nothing is known of the chunks."""
    sample = Sample(0, 1, True, sent_ns=1, first_token_ns=2, last_token_ns=3, end_ns=4, chunks=2, gaps=[1])
    async with load_target() as fake:
        driver, _ = driver_for(fake, Plan(iter([]), iter([])))
        driver.samples = [sample]
        level = make_level(driver, SETTINGS)
    told = " ".join(assumptions(SETTINGS, (), [level]))
    assert "the server counted no tokens, so a chunk need not be one" in told
    assert "not one token each" not in told


async def test_where_none_was_answered_nobody_says_that_no_stagelens_is_there(monkeypatch):
    """Only answered requests are set beside records: the store is not asked, and nothing is said of it."""
    source(monkeypatch, AssertionError("not asked"))
    ran = await a_ran()
    for one in ran.levels[0][1]:
        one.error = "timeout"
    _, note = whole._with_server_side(ran, SETTINGS, Where(), Interrupts(CLOCK))
    assert "no measured request was answered" in note
    assert "no Stagelens" not in note


def test_what_a_load_of_conversations_rests_on_is_said_of_conversations():
    """A later turn is longer than a first prompt, and begins with all of it."""
    told = " ".join(assumptions(BenchSettings(url="http://127.0.0.1:1", rate=[1], turns="3"), (), ()))
    assert "first prompts and each further text 256, answers 64" in told
    assert "A turn's prompt holds all before it" in told
    assert "first prompts of conversations begin alike only in" in told


def test_prompts_of_a_file_may_have_fewer_turns_than_were_asked_for(tmp_path):
    """So many at most."""
    made = BenchSettings(url="http://127.0.0.1:1", rate=[1], turns="3", data=tmp_path / "d.json")
    assert "up to 3 turns of each" in " ".join(assumptions(made, (), ()))
