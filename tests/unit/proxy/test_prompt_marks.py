"""Marks tell which prompts begin alike, and not what they say."""

from __future__ import annotations

import json

import httpx

from proxy.request.prompt_marks import LIMIT, PromptMarks, places, prompt_text
from proxy.request.spans import drafts
from tests.fake_llm import dialects
from tests.fake_llm.server import fake_llm
from tests.support.clock import CountingIds
from tests.support.live_proxy import live_proxy
from tests.unit.proxy.test_record import ANCHOR, chat_call, live, ns
from tracer import semconv

MARKS = PromptMarks(b"k")


def same(one: str, other: str) -> int:
    """How many marks two prompts have in common from their beginning."""
    pairs = zip(*([m[at : at + 8] for at in range(1, len(m), 8)] for m in (one, other)), strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)) // 8)


def test_prompts_have_the_marks_in_common_up_to_where_they_differ():
    """Of ids and of text; three prefixes of one length are three."""
    a, b, c = ([family] * 64 for family in (1, 2, 3))
    of_a, of_b, of_c = (MARKS.of(p + [9] * 40) for p in (a, b, c))
    assert len({of_a[:9], of_b[:9], of_c[:9]}) == 3
    assert same(of_a, MARKS.of([*a, *[8] * 40])) == 4  # at 16, 32, 48 and 64 tokens
    assert same(MARKS.of(b"x" * 300), MARKS.of(b"x" * 200 + b"y" * 100)) == 3


def test_a_mark_cannot_be_made_by_another_process():
    """Its key is the process's own."""
    assert PromptMarks().of(b"x" * 64) != PromptMarks().of(b"x" * 64)


def test_marks_are_bounded_and_a_short_prompt_has_none():
    """However long the prompt: 56 places, to the 8192nd token."""
    assert MARKS.of(b"x" * 63) == MARKS.of([]) == ""
    assert len(MARKS.of(b"x" * 10_000_000)) == len(MARKS.of([1] * 1_000_000)) == 1 + 8 * 56
    assert (len(list(places())), list(places())[-1]) == (56, LIMIT)


def test_what_are_no_ids_gives_no_marks():
    """A tap's guess that fails costs no record."""
    assert MARKS.of([-1] * 20) == MARKS.of(["a"] * 20) == ""


def test_the_prompt_of_a_request_begins_where_the_model_reads_first():
    """Tools and a system prompt stand before the messages; the model's name and options do not count."""
    body = {"model": "m", "system": "be kind", "messages": [{"role": "user", "content": "a"}]}
    assert prompt_text(json.dumps(body).encode()).startswith(b' "be kind"')
    assert prompt_text(json.dumps({"prompt": 'say "messages": b', "n": 1}).encode())[:5] == b' "say'
    assert prompt_text(b"no prompt") == prompt_text(b"") == b""
    assert len(prompt_text(b'{"input":"' + b"x" * 1_000_000)) == LIMIT


def test_the_record_has_the_marks_of_the_engines_ids_before_those_of_the_text():
    """The first call's ids; its spans hold the marks and no id."""
    call = chat_call()
    call.prompt = list(range(100))
    request = live(calls=[call], prompt=b"x" * 100)
    assert request.prompt_seen == call.prompt
    request.end(ns(3))
    root = drafts(request.record("engine", MARKS.of(request.prompt_seen)), ANCHOR, CountingIds())[0]
    assert root.attributes[semconv.PROMPT_MARKS] == MARKS.of(list(range(100)))


async def test_requests_through_the_proxy_tell_whose_prompts_begin_alike():
    """Two of one system prompt and one of another, equally long; no word of them is in a span."""
    async with (
        fake_llm(dialects.chat(tokens=2)) as fake,
        live_proxy(fake.url) as proxy,
        httpx.AsyncClient() as client,
    ):
        for system in ("alpha " * 30, "bravo " * 30, "alpha " * 30):
            said = [{"role": "system", "content": system}, {"role": "user", "content": "hello " * 20}]
            await client.post(
                proxy.url + "/v1/chat/completions", json={"model": "m", "messages": said}
            )
        roots = await proxy.sink.wait_for(3)
    first, other, again = (root[semconv.PROMPT_MARKS] for root in roots)
    assert first == again
    assert (len(first), same(first, other)) == (len(other), 0)
    spans = str([s.attributes for request in proxy.sink.requests for s in request])
    assert not [word for word in ("alpha", "bravo", "hello") if word in spans]
