"""Who is let in, what may run, what the client sees, and what stands in no span."""

from __future__ import annotations

import hashlib

import httpx
import pytest

from proxy.pipelines.problems import StageProblem
from proxy.pipelines.runs import Runs, Trace
from proxy.pipelines.tools.kit import ReadyTool, ToolCall, check_schema, run_call
from proxy.pipelines.web import Web, is_public
from proxy.recorder import Recorder
from proxy.request.live import LiveRequest
from proxy.settings import AccessSettings, ClientKey, ProxySettings
from tests.fake_llm.dialects import asks_tools, whole_tools
from tests.fake_llm.server import fake_llm
from tests.support.live_proxy import live_proxy
from tests.support.live_server import MemorySink
from tests.support.pipeline_functions import HELD
from tests.support.pipelines import (
    ANSWER,
    CHAT,
    USER,
    ask,
    bot,
    chunks,
    in_turn,
    names,
    retriever,
    text_of,
    tool,
)
from tracer.clock import SystemClock
from tracer.ids import RandomIds

PRIVATE = [
    "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",
    "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1%eth0", "fc00::1", "ff02::1",
    "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b::169.254.169.254",
    "2002:7f00:1::", "2002:a00:1::1", "2001:0:4136:e378:8000:63bf:f5ff:fffe",
]  # fmt: skip


@pytest.mark.parametrize("address", PRIVATE)
def test_an_address_that_leads_into_a_private_range_is_not_public(address: str):
    """In every form that IPv6 has for an IPv4 address, too."""
    assert not is_public(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "2606:4700::1111", "::ffff:1.1.1.1"])
def test_an_address_of_the_internet_is_public(address: str):
    """Mapped ones too."""
    assert is_public(address)


@pytest.mark.parametrize("host", ["127.1", "2130706433", "0177.0.0.1", "10.1"])
def test_a_short_form_of_an_address_is_refused(host: str):
    """The system would resolve it past the check of names and of addresses."""
    with pytest.raises(StageProblem) as refused:
        Web((host,), ()).check(f"http://{host}/")
    assert refused.value.kind == "host_refused"


async def test_a_schema_of_a_tool_makes_us_fetch_nothing():
    """A reference to another document does not resolve: the call is refused, nobody is asked."""
    async with fake_llm(ANSWER) as server:
        schema = {"type": "object", "properties": {"a": {"$ref": server.url + "/schema.json"}}}
        made = check_schema(ReadyTool("t", "", schema, 1.0, 100, _unused))
        call = ToolCall("1", "t", '{"a": 1}')
        with pytest.raises(StageProblem) as refused:
            await run_call(call, {"t": made}, Runs(_live(), SystemClock(), RandomIds()))
    assert refused.value.kind == "bad_arguments"
    assert server.connections == 0


@pytest.mark.parametrize(
    ("draft", "schema"),
    [("http://json-schema.org/draft-04/schema#", {"minimum": 1, "exclusiveMinimum": True}),
     ("https://json-schema.org/draft/2020-12/schema", {"exclusiveMinimum": 1})],
)  # fmt: skip
async def test_arguments_are_checked_by_the_draft_that_the_schema_names(
    draft: str, schema: dict[str, object]
):
    """The old form of a limit and the new one mean the same."""
    told = {"$schema": draft, "type": "object", "properties": {"a": schema}}
    made = check_schema(ReadyTool("t", "", told, 1.0, 100, _said))
    runs = Runs(_live(), SystemClock(), RandomIds())
    assert await run_call(ToolCall("1", "t", '{"a": 2}'), {"t": made}, runs) == "said"
    with pytest.raises(StageProblem):
        await run_call(ToolCall("1", "t", '{"a": 1}'), {"t": made}, runs)


def _live() -> LiveRequest:
    recorder = Recorder(ProxySettings(), SystemClock(), RandomIds(), MemorySink(), "test")
    return recorder.open("POST", CHAT, [], 0)


async def _unused(_arguments: dict[str, object], _trace: Trace) -> str:
    raise AssertionError("it must not run")


async def _said(_arguments: dict[str, object], _trace: Trace) -> str:
    return "said"


async def test_a_client_without_a_key_starts_no_retrieval():
    """The door is asked before anything is read for the pipeline: 401 and no span of work."""
    secret = ClientKey(name="c", sha256=hashlib.sha256(b"k").hexdigest())
    async with (
        fake_llm(ANSWER) as fake,
        live_proxy(
            fake.url, access=AccessSettings(keys=(secret,), requests_per_minute=1),
            pipelines=bot(retrievers=[retriever("docs", "find")], tools=[tool("add")]),
        ) as proxy,
        httpx.AsyncClient() as client,
    ):  # fmt: skip
        body = {"model": "bot", "messages": USER}
        refused = await client.post(proxy.url + CHAT, json=body)
        assert refused.status_code == 401
        await proxy.sink.wait_for(1)
        assert "retrieval docs" not in names(proxy)
        assert fake.requests == []


async def test_the_rounds_of_a_request_count_once_against_a_keys_rate():
    """Two model calls for one request pass a limit of one request a minute."""
    secret = ClientKey(name="c", sha256=hashlib.sha256(b"k").hexdigest())
    async with (
        fake_llm(in_turn(asks_tools(("add", '{"a": 1, "b": 2}')), ANSWER)) as fake,
        live_proxy(
            fake.url, access=AccessSettings(keys=(secret,), requests_per_minute=1),
            pipelines=bot(tools=[tool("add")]),
        ) as proxy,
        httpx.AsyncClient() as client,
    ):  # fmt: skip
        body = {"model": "bot", "messages": USER, "stream": True}
        key = {"Authorization": "Bearer k"}
        assert text_of(await client.post(proxy.url + CHAT, json=body, headers=key)) == "up it is"
        again = await client.post(proxy.url + CHAT, json=body, headers=key)
        assert again.status_code == 429


async def test_nothing_of_prompts_documents_arguments_or_results_is_in_spans_or_logs(
    caplog: pytest.LogCaptureFixture,
):
    """Contents are not captured."""
    _, _, proxy, _ = await ask(
        [asks_tools(("add", '{"a": 71234, "b": 1}'), ("CANARYTOOL", '"CANARY"')), ANSWER],
        bot(retrievers=[retriever("docs", "find")], tools=[tool("add")]),
        stream=True, messages=[{"role": "user", "content": "CANARY"}],
    )  # fmt: skip
    told = "".join(s.to_json() for s in proxy.sink.requests[0]) + caplog.text
    assert "execute_tool _unknown" in told
    for secret in ("CANARY", "71234", "71235"):
        assert secret not in told


async def test_a_mixed_round_gives_the_client_its_own_calls_and_runs_none():
    """The client's conversation stays valid: it sees no call that it cannot answer."""
    theirs = {"type": "function", "function": {"name": "mine"}}
    answer, [root], _, fake = await ask(
        [whole_tools(("add", '{"a": 1, "b": 2}'), ("mine", "{}"))],
        bot(tools=[tool("add")]), tools=[theirs],
    )  # fmt: skip
    calls = answer.json()["choices"][0]["message"]["tool_calls"]
    assert [c["function"]["name"] for c in calls] == ["mine"]
    assert len(fake.requests) == 1
    assert "stagelens.stage.tool_count" not in root


async def test_tool_rounds_are_shown_where_the_settings_say_so():
    """A chunk with a ``stagelens`` member tells the tool, its call and how it went."""
    answer, _, _, _ = await ask(
        [asks_tools(("add", '{"a": 1, "b": 2}'), text="Hm."), ANSWER],
        bot(tools=[tool("add")], show_tools=True), stream=True,
    )  # fmt: skip
    shown = [c["stagelens"] for c in chunks(answer) if "stagelens" in c]
    assert shown == [{"tool": "add", "id": "c0", "status": "ok"}]
    assert text_of(answer) == "Hm.\n\nup it is"


async def test_text_streams_to_the_client_while_the_tools_still_run():
    """The first round's words are with the client while its tool still runs."""
    async with (
        fake_llm(in_turn(asks_tools(("hold", "{}"), text="one moment"), ANSWER)) as fake,
        live_proxy(fake.url, pipelines=bot(tools=[tool("hold")])) as proxy,
        httpx.AsyncClient(timeout=20) as client,
    ):
        HELD.clear()
        body = {"model": "bot", "messages": USER, "stream": True}
        seen = ""
        async with client.stream("POST", proxy.url + CHAT, json=body) as stream:
            async for line in stream.aiter_lines():
                seen += line
                if "one moment" in line:
                    assert len(fake.requests) == 1
                    HELD.set()
        assert "up" in seen
