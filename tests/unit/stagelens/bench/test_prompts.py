"""Made-up prompts, files of prompts, and what is asked of the server before."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from itertools import islice

import pytest

from stagelens.bench.datafile import read_items
from stagelens.bench.plan import Step, make_plan, rate_step, steps
from stagelens.bench.probe import PAUSES_S, prepare
from stagelens.bench.settings import BenchSettings
from stagelens.bench.wire import Client, Target
from stagelens.bench.words import WORDS, Scale
from stagelens.errors import UserError
from tests.fake_llm.dialects import DONE, content, delta
from tests.fake_llm.server import Reply
from tests.support.load_target import CLOCK, TEMPLATE_TOKENS, answer, load_target

SCALE = Scale(base=TEMPLATE_TOKENS + 1, per_word=1.0, measured=True)
STEP = Step("rate1", "r", rate=1.0)


def settings(**given: object) -> BenchSettings:
    return BenchSettings(url="http://127.0.0.1:1", **{"rate": (1,), **given})  # type: ignore[arg-type]


def texts(count: int, **given: object) -> list[str]:
    plan = make_plan(settings(**given), STEP, SCALE)
    return [talk.turns[0].messages[0]["content"] for talk in islice(plan.conversations, count)]


async def prepared(fake: object, **given: object):
    made = settings(**given).model_copy(update={"url": fake.url})  # type: ignore[attr-defined]
    client = Client(Target.parse(made.url), CLOCK, 20)
    try:
        return await prepare(client, made, "sk-secret")
    finally:
        await client.close()


def test_prompts_have_the_tokens_that_were_asked_for():
    """Words, the template and the first word add up to the drawn length."""
    for text in texts(50, input="uniform:20,90"):
        assert 20 <= len(text.split()) + TEMPLATE_TOKENS <= 90
    assert {len(t.split()) + TEMPLATE_TOKENS for t in texts(20, input="64")} == {64}


def test_a_share_of_the_prompts_has_a_shared_prefix():
    """They begin alike for as long as the prefix is, and no longer."""
    found = texts(400, input="100", prefix_share=0.5, prefix_tokens=40, prefixes=2)
    heads = [tuple(t.split()[:41]) for t in found]
    shared = [h for h in heads if heads.count(h) > 1]
    assert len(set(shared)) == 2
    assert len(shared) == pytest.approx(200, abs=50)
    assert len({tuple(t.split()[:60]) for t in found}) == 400
    assert {len(t.split()) + TEMPLATE_TOKENS for t in found} == {100}


@pytest.mark.parametrize("given", [{"input": "5"}, {"input": "30", "prefix_share": 1, "prefix_tokens": 40}])
def test_a_prompt_that_cannot_be_as_short_as_was_wanted_counts_as_another_length(given):
    """The template and a shared prefix are the least; what was wanted is kept beside."""
    plan = make_plan(settings(**given), STEP, SCALE)
    turn = next(plan.conversations).turns[0]
    assert turn.input_tokens == int(given["input"])
    assert len(turn.messages[0]["content"].split()) + TEMPLATE_TOKENS > turn.input_tokens


def test_the_same_seed_sends_the_same_and_levels_differ():
    """A run can be repeated; one level's prompts are not the cached ones of another."""
    assert texts(5) == texts(5) != texts(5, seed=1)
    other = make_plan(settings(), replace(STEP, label="rate2"), SCALE)
    assert next(other.conversations).turns[0].messages[0]["content"] != texts(1)[0]


def test_levels_of_a_sweep_have_runs_of_their_own():
    """A single level has the run's own name."""
    assert [s.run for s in steps(settings(rate=(1, 2.5)), "n")] == ["n.rate1", "n.rate2.5"]
    assert [s.run for s in steps(settings(rate=(1,)), "n")] == ["n"]
    sweep = settings(rate=(), concurrency=(1, 4))
    found = [(s.run, s.concurrency) for s in steps(sweep, "n")]
    assert found == [("n.concurrency1", 1), ("n.concurrency4", 4)]


SHARED = [{"id": "a", "conversations": [
    {"from": "human", "value": "hello"}, {"from": "gpt", "value": "x" * 40},
    {"from": "human", "value": "more"}, {"from": "gpt", "value": "y" * 8}]},
    {"conversations": [{"from": "gpt", "value": "alone"}]}]  # fmt: skip


@pytest.mark.parametrize("lines", [False, True])
def test_sharegpt_files_give_turns_and_lengths(tmp_path, lines):
    """JSON and JSON lines; an entry without a prompt is counted."""
    file = tmp_path / "d.json"
    file.write_text("\n".join(map(json.dumps, SHARED)) if lines else json.dumps(SHARED))
    [item], skipped = read_items(file)
    assert skipped == 1
    assert [t.messages[0]["content"] for t in item.turns] == ["hello", "more"]
    assert [t.output_tokens for t in item.turns] == [10, 2]


def test_messages_and_prompts_are_entries_too(tmp_path):
    """OpenAI's form, with a system message, and a bare prompt with its length."""
    file = tmp_path / "d.jsonl"
    rows = [{"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]},
            {"prompt": "p", "output_tokens": 7}]  # fmt: skip
    file.write_text("\n".join(map(json.dumps, rows)))
    (one, two), _ = read_items(file)
    assert [m["role"] for m in one.turns[0].messages] == ["system", "user"]
    assert two.turns[0].output_tokens == 7
    plan = make_plan(settings(data=file, output="3"), STEP, SCALE, (one, two))
    drawn = list(islice(plan.conversations, 6))
    assert {t.turns[0].output_tokens for t in drawn} == {3}
    assert len({t.turns[0].messages[-1]["content"] for t in drawn}) == 2


@pytest.mark.parametrize("text", ["", "[]", "{broken", '[{"a": 1}]'])
def test_a_file_without_prompts_is_refused(tmp_path, text):
    """One sentence; exit code 2."""
    file = tmp_path / "d.json"
    file.write_text(text)
    with pytest.raises(UserError, match=r"data file") as told:
        read_items(file)
    assert told.value.exit_code == 2


async def test_two_probes_tell_the_template_and_the_tokens_of_a_word():
    """With them, prompts are of exact lengths; the only model is found."""
    async with load_target() as fake:
        made = await prepared(fake)
        assert made.speech.model == "m"
        assert made.scale == SCALE
        assert made.scale.exact
        assert fake.requests[-1].header("authorization") == "Bearer sk-secret"


async def test_a_server_with_another_vocabulary_gets_near_lengths():
    """A word that is one and a half tokens on average."""
    def script(asked):
        made = answer(asked)
        words = len(json.loads(asked.body)["messages"][0]["content"].split())
        return replace(made, steps=[*made.steps[:-2], usage_of(words + words // 2), DONE])

    async with load_target(lambda a: answer(a) if a.method == "GET" else script(a)) as fake:
        made = await prepared(fake)
    assert made.scale.per_word == pytest.approx(1.5, rel=0.01)
    assert not made.scale.exact
    assert "near, not exact" in made.notes[-1]
    assert made.scale.words(151) == pytest.approx(100, abs=2)


async def test_a_context_too_short_for_every_word_gets_a_shorter_probe():
    """Its lengths are near, and not said to be exact."""
    def script(asked):
        if asked.method == "POST" and len(asked.body) > 1000:
            return Reply([b'{"error":"too long"}'], status=400, framing="length")
        return answer(asked)

    async with load_target(script) as fake:
        made = await prepared(fake)
    assert (made.scale.per_word, made.scale.exact) == (1.0, False)
    assert 'did not answer the probe of all words (http_400: {"error":"too long"})' in made.notes[-1]
    assert "near, not exact" in made.notes[-1]


def usage_of(prompt: int) -> bytes:
    from tests.fake_llm.dialects import usage

    return usage(prompt, 1)


def counting(count, refused: int = 9999):
    """A server that says ``count(words)`` prompt tokens, and refuses longer prompts than ``refused``."""
    def script(asked):
        if asked.target.endswith("/models"):
            return answer(asked)
        words = len(json.loads(asked.body)["messages"][0]["content"].split())
        if words > refused:
            return Reply([b"no"], status=500, framing="length")
        told = count(words)
        given = {} if told is None else {"usage": {"prompt_tokens": told, "completion_tokens": 1}}
        body = {"choices": [{"message": {"content": "a"}, "finish_reason": "length"}], **given}
        return Reply([json.dumps(body).encode()], content_type="application/json", framing="length")

    return script


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (counting(lambda _: 7), f"the server counted 7 tokens for {len(WORDS) + 1} words and 7 for"),
        (counting(lambda _: 0), "the server counted 0 tokens for "),
        (counting(lambda words: 900 - words), "and 899 for one word."),
        (counting(lambda _: None), "each: the server told no count."),
        (counting(lambda words: 3 if words == 1 else None), "the tokens of one prompt and not of another."),
        (counting(lambda _: 7, refused=1), "but did not answer a prompt of 31 words (http_500: no)."),
    ],
)
async def test_why_the_tokens_of_a_word_are_not_known_is_told_as_it_is(script, said):
    """A count that does not grow, one that is not told and a probe that failed are three things."""
    async with load_target(script) as fake:
        made = await prepared(fake, stream=False)
    assert not made.scale.measured
    assert said in made.notes[-1]


async def test_what_a_server_refuses_is_left_out_and_said():
    """First ignore_eos, then stream_options."""
    def script(asked):
        if asked.method == "POST" and {"ignore_eos", "stream_options"} & json.loads(asked.body).keys():
            return Reply([b'{"error":"unknown field"}'], status=400, framing="length")
        return Reply([content("a"), delta(finish="stop"), DONE]) if asked.method == "POST" else answer(asked)

    async with load_target(script) as fake:
        made = await prepared(fake)
    assert (made.speech.ignore_eos, made.speech.stream_usage) == (False, False)
    assert [note.split(":")[0] for note in made.notes] == [
        "The server refused ignore_eos", "The server refused stream_options", "Prompts"]  # fmt: skip
    assert "told no count" in made.notes[-1]


@pytest.mark.parametrize(
    ("field", "note"),
    [
        ("stream_options",
         "The server refused stream_options: it is not asked to count the tokens of streams."),
        ("max_tokens", "The server refused max_tokens: it is sent max_completion_tokens."),
    ],
)  # fmt: skip
async def test_only_what_was_refused_is_said_to_be(field, note):
    """The fields that it takes are sent on."""
    def script(asked):
        body = json.loads(asked.body or b"{}")
        if asked.method == "POST" and field in body:
            return Reply([b"no " + field.encode()], status=400, framing="length")
        return Reply([content("a"), delta(finish="stop"), DONE]) if asked.method == "POST" else answer(asked)

    async with load_target(script) as fake:
        made = await prepared(fake)
        last = json.loads(fake.requests[-1].body)
    assert made.notes[:-1] == (note,)
    assert last["ignore_eos"] is True
    assert ("max_tokens" in last) is (field != "max_tokens")
    assert ("max_completion_tokens" in last) is (field == "max_tokens")


async def test_a_request_that_no_form_helps_is_told_with_the_first_refusal():
    """What the server says of the usual form is what is wrong."""
    def script(asked):
        words = b"too long" if b"max_tokens" in asked.body else b"no max_tokens"
        return Reply([words], status=400, framing="length")

    async with load_target(script) as fake:
        with pytest.raises(UserError, match="http_400: too long"):
            await prepared(fake, model="x")


@pytest.mark.parametrize("status", [429, 503])
async def test_a_server_that_is_busy_at_first_is_asked_again(status):
    """After as long as it says."""
    refused = []

    def script(asked):
        if asked.method == "POST" and len(refused) < 2:
            refused.append(asked)
            return Reply([b"busy"], status=status, framing="length", headers=[("retry-after", "0")])
        return answer(asked)

    async with load_target(script) as fake:
        made = await prepared(fake)
    assert (len(refused), made.scale.exact) == (2, True)


@pytest.mark.parametrize("wait", ["0", "3600"])
async def test_a_server_that_stays_busy_is_an_error_in_a_sentence(wait):
    """Nobody waits an hour."""
    def script(_):
        return Reply([b"busy"], status=429, framing="length", headers=[("retry-after", wait)])

    async with load_target(script) as fake:
        with pytest.raises(UserError, match="http_429: busy"):
            await prepared(fake, model="x")
        assert len(fake.requests) == (1 if wait == "3600" else len(PAUSES_S) + 1)


async def test_a_server_that_refuses_all_is_an_error_in_a_sentence():
    """Its words are in it."""
    refusal = Reply([b"no such model"], status=404, framing="length")
    async with load_target(lambda _: refusal) as fake:
        with pytest.raises(UserError, match="http_404: no such model"):
            await prepared(fake, model="x")
        with pytest.raises(UserError, match="name one with --model"):
            await prepared(fake)
    with pytest.raises(UserError, match="no server answers"):
        await prepared(fake)


def test_the_words_are_different_and_plain():
    """Each stands once; a draw of them hardly ever begins like another."""
    assert len(set(WORDS)) == len(WORDS) > 200
    assert all(word.isalpha() and word.islower() for word in WORDS)
    assert random.Random(1).choices(WORDS, k=4) != random.Random(2).choices(WORDS, k=4)


def test_a_level_is_named_without_powers_of_ten():
    """A million a second, and one in ten thousand."""
    labels = [rate_step(rate, None, "r").label for rate in (1e6, 250000, 4.0, 0.0001, 12.345678)]
    assert labels == ["rate1000000", "rate250000", "rate4", "rate0.0001", "rate12.3457"]
