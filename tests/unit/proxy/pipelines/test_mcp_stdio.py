"""Lines of an MCP server over stdio: messages, noise, and what is too long."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import deque

import mcp_types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.message import SessionMessage

from proxy.pipelines.tools.mcp_sift import Said
from proxy.pipelines.tools.mcp_stdio import MOST_NOISE, PIECE, TOO_LARGE, _Line, limited_stdio

RESULT = {"content": [{"type": "text", "text": 'x", "id": 9}' * 300}]}


def fed(text: bytes, most: int, piece: int = 7) -> _Line:
    line = _Line(most)
    for at in range(0, len(text), piece):
        line.add(text[at : at + piece])
    return line


@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "id": 5, "result": RESULT},
        {"id": 5, "jsonrpc": "2.0", "result": RESULT},
        {"jsonrpc": "2.0", "result": RESULT, "id": 5},
    ],
)
@pytest.mark.parametrize("piece", [7, 199, 100_000])
def test_an_answer_that_is_too_long_fails_the_call_it_answers(message: dict, piece: int):
    """The id is found at either end, and never inside the result; little is kept."""
    line = fed(json.dumps(message).encode(), 1000, piece)
    [answer] = line.end() or []
    assert isinstance(answer.message, mcp_types.JSONRPCError)
    assert (answer.message.id, answer.message.error.code) == (5, TOO_LARGE)
    assert len(line.kept) + len(line.tail) <= 1000


def test_a_long_line_that_answers_nobody_fails_no_call():
    """Nobody's is guessed."""
    noise = json.dumps({"jsonrpc": "2.0", "method": "n", "params": RESULT}).encode()
    assert fed(noise, 1000).end() == []


GREETINGS = [
    b"Starting server v1 ...", b"", b"[]", b"[1] up", b"[info", b"{x", b'{"jsonrpc":"2.0"}', b"5",
    b"[{}]",
]  # fmt: skip


@pytest.mark.parametrize("text", GREETINGS)
def test_a_greeting_is_no_message(text: bytes):
    """Many programs print one before they speak the protocol."""
    assert fed(text, 1000).end() == []


@pytest.mark.parametrize(
    ("said", "heard"), [(b"caf\xe9", "caf�"), (b"\\ud800", "?"), (b"caf\xc3\xa9", "café")]
)
def test_an_answer_in_another_encoding_is_heard(said: bytes, heard: str):
    """Its call would wait for the time-out."""
    line = b'\xef\xbb\xbf{"jsonrpc":"2.0","id":5,"result":{"a":"%s"}}' % said
    [answer] = fed(line, 1000).end() or []
    assert isinstance(answer.message, mcp_types.JSONRPCResponse)
    assert answer.message.result == {"a": heard}


def test_an_answer_that_cannot_be_read_fails_its_call():
    """By the id that it still tells; a request of the server's has an id of its own."""
    [answer] = fed(b'{"jsonrpc":"2.0","id":5,"result":{"a":}}', 1000).end() or []
    assert isinstance(answer.message, mcp_types.JSONRPCError)
    assert answer.message.id == 5
    assert fed(b'{"jsonrpc":"2.0","id":5,"method":"ping","params":{"a":}}', 1000).end() == []


async def test_a_server_that_talks_without_end_is_ended_and_holds_nobody_up():
    """``yes`` says nothing of the protocol: the loop goes on meanwhile, and the session is over."""
    ended = asyncio.Event()
    async with limited_stdio(["yes"], {}, 1000, ended.set, deque(), Said()) as (reading, _):
        hearing = asyncio.create_task(anext(reading, None))
        turns = 0
        while not hearing.done():
            await asyncio.sleep(0)
            turns += 1
        assert hearing.result() is None
    assert ended.is_set()
    assert turns >= MOST_NOISE // PIECE


ONE = {"jsonrpc": "2.0", "id": 5, "result": {"a": '}]{["'}}
TWO = {"jsonrpc": "2.0", "id": 6, "result": {}}
NOTE = {"jsonrpc": "2.0", "method": "n"}


def ids(said: str, most: int = 1000) -> tuple[list[object], Said]:
    """Ids of what is heard of a program that says ``said``."""
    counted = Said()

    async def hear() -> list[object]:
        command = [sys.executable, "-c", "import sys; sys.stdout.write(sys.argv[1])", said]
        async with limited_stdio(command, {}, most, lambda: None, deque(), counted) as (reading, _):
            return [getattr(one.message, "id", None) async for one in reading]

    return asyncio.run(hear()), counted


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([ONE, NOTE, TWO]),
        json.dumps([ONE, {}, 5, NOTE, TWO]),
        json.dumps([ONE, NOTE, TWO], indent=2),
        "[\n" + ",\n".join(map(json.dumps, (ONE, NOTE, TWO))) + "\n]",
        "\n".join(json.dumps(one, indent=2).replace("\n", "\r\n") for one in (ONE, NOTE, TWO)),
        "\n".join(json.dumps(one, indent=0) for one in (ONE, NOTE, TWO)),
        '{\n  "begun": [\n' + "\n".join(map(json.dumps, (ONE, NOTE, TWO))),
        "[\n" + "\n".join(map(json.dumps, (ONE, NOTE, TWO))),
    ],
)
def test_batches_and_messages_over_several_lines_are_heard(text: str):
    """Their calls waited for the time-out. A whole message ends what was begun and is none."""
    assert ids(text + "\n")[0] == [5, None, 6]


def test_lines_that_are_no_messages_are_counted():
    """A call that times out meanwhile says so; empty lines say nothing."""
    heard, said = ids("hei\n\n\r\n" + json.dumps(ONE) + "\n[]\n{'id': 5}\n")
    assert heard == [5]
    assert said.strays == 3


def test_an_answer_over_several_lines_that_is_too_long_fails_the_call_it_answers():
    """Little of it is kept."""
    long = {"jsonrpc": "2.0", "id": 5, "result": {"a": ["b" * 50] * 50}}
    assert ids(json.dumps(long, indent=1) + "\n" + json.dumps(TWO) + "\n")[0] == [5, 6]


@given(st.lists(st.binary(max_size=60) | st.sampled_from([b"{", b"[", b'{"', b"}", b'"jsonrpc"'])))
def test_any_lines_are_messages_or_nothing(texts: list[bytes]):
    """No line raises."""
    line = _Line(100)
    for text in texts:
        line.add(text.replace(b"\n", b""))
        found = line.end()
        assert found is None or all(isinstance(one, SessionMessage) for one in found)
        if found is not None:
            line = _Line(100)
