"""Which answers behind `--upstream` tell the id of their trace."""

from __future__ import annotations

import httpx
import pytest

from tests.fake_llm.dialects import whole
from tests.fake_llm.server import fake_llm
from tests.support.live_proxy import live_proxy
from tests.support.pipelines import ANSWER, CHAT, USER, bot, in_turn

HEADER = "x-stagelens-trace-id"
END = whole({"role": "assistant", "content": "up it is"})


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("model", "told"), [("bot", True), ("m", False)])
async def test_a_pipelines_answer_tells_its_trace_and_an_upstreams_does_not(
    model: str, told: bool, stream: bool
):
    """The former is the proxy's own, the latter passed on as it came."""
    async with (
        fake_llm(in_turn(ANSWER if stream else END)) as fake,
        live_proxy(fake.url, pipelines=bot()) as proxy,
        httpx.AsyncClient(timeout=20) as client,
    ):
        body = {"model": model, "messages": USER, "stream": stream}
        answer = await client.post(proxy.url + CHAT, json=body)
        await proxy.sink.wait_for(1)
    trace_id = f"{proxy.sink.requests[0][0].context.trace_id:032x}"
    assert answer.headers.get_list(HEADER) == ([trace_id] if told else [])


@pytest.mark.parametrize("wanted", [True, False])
async def test_a_pipelines_error_tells_its_trace_unless_the_settings_say_no(wanted: bool):
    """``proxy.trace_id_header`` holds for pipelines too."""
    async with (
        fake_llm(ANSWER) as fake,
        live_proxy(fake.url, pipelines=bot(), proxy={"trace_id_header": wanted}) as proxy,
        httpx.AsyncClient(timeout=20) as client,
    ):
        answer = await client.post(proxy.url + CHAT, json={"model": "bot", "messages": []})
    assert answer.status_code == 400
    assert (HEADER in answer.headers) is wanted
