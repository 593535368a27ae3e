"""Lines of an MCP server over stdio: messages, noise, and what is too long."""

from __future__ import annotations

import json

import mcp_types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.message import SessionMessage

from proxy.pipelines.tools.mcp_stdio import TOO_LARGE, _Line

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


def test_a_long_line_that_answers_nobody_is_an_error_of_the_session():
    """No call is failed by guessing."""
    noise = json.dumps({"jsonrpc": "2.0", "method": "n", "params": RESULT}).encode()
    assert isinstance(fed(noise, 1000).message(), ValueError)


@given(st.binary(max_size=60))
def test_any_line_is_a_message_an_error_or_nothing(text: bytes):
    """No line raises."""
    found = fed(text, 40).message()
    assert found is None or isinstance(found, SessionMessage | Exception)
