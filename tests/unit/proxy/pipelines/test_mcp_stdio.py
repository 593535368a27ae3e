"""Lines of an MCP server over stdio: messages, noise, and what is too long."""

from __future__ import annotations

import asyncio
import json
from collections import deque

import anyio
import mcp_types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.message import SessionMessage

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
    answer = line.message()
    assert isinstance(answer, SessionMessage)
    assert isinstance(answer.message, mcp_types.JSONRPCError)
    assert (answer.message.id, answer.message.error.code) == (5, TOO_LARGE)
    assert len(line.kept) + len(line.tail) <= 1000


def test_a_long_line_that_answers_nobody_fails_no_call():
    """Nobody's is guessed."""
    noise = json.dumps({"jsonrpc": "2.0", "method": "n", "params": RESULT}).encode()
    assert fed(noise, 1000).message() is None


@pytest.mark.parametrize("text", [b"Starting server v1 ...", b"", b"[]", b"{", b'{"jsonrpc":"2.0"}', b"5"])
def test_a_greeting_is_no_message(text: bytes):
    """Many programs print one before they speak the protocol."""
    assert fed(text, 1000).message() is None


@pytest.mark.parametrize(
    ("said", "heard"), [(b"caf\xe9", "caf�"), (b"\\ud800", "?"), (b"caf\xc3\xa9", "café")]
)
def test_an_answer_in_another_encoding_is_heard(said: bytes, heard: str):
    """Its call would wait for the time-out."""
    line = b'\xef\xbb\xbf{"jsonrpc":"2.0","id":5,"result":{"a":"%s"}}' % said
    answer = fed(line, 1000).message()
    assert answer is not None
    assert isinstance(answer.message, mcp_types.JSONRPCResponse)
    assert answer.message.result == {"a": heard}


def test_an_answer_that_cannot_be_read_fails_its_call():
    """By the id that it still tells; a request of the server's has an id of its own."""
    answer = fed(b'{"jsonrpc":"2.0","id":5,"result":{"a":}}', 1000).message()
    assert answer is not None
    assert isinstance(answer.message, mcp_types.JSONRPCError)
    assert answer.message.id == 5
    assert fed(b'{"jsonrpc":"2.0","id":5,"method":"ping","params":{"a":}}', 1000).message() is None


async def test_a_server_that_talks_without_end_is_ended_and_holds_nobody_up():
    """``yes`` says nothing of the protocol: the loop goes on meanwhile, and the session is over."""
    ended = asyncio.Event()
    async with limited_stdio(["yes"], {}, 1000, ended.set, deque()) as (reading, _):
        hearing = asyncio.create_task(reading.receive())
        turns = 0
        while not hearing.done():
            await asyncio.sleep(0)
            turns += 1
        with pytest.raises(anyio.EndOfStream):
            hearing.result()
    assert ended.is_set()
    assert turns >= MOST_NOISE // PIECE


@given(st.binary(max_size=60))
def test_any_line_is_a_message_or_nothing(text: bytes):
    """No line raises."""
    found = fed(text, 40).message()
    assert found is None or isinstance(found, SessionMessage)
