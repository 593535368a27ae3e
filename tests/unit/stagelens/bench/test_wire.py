"""The client over real sockets: kept connections, breaks, time-outs."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Self

import pytest
import uvloop

from stagelens.bench.sample import Sample
from stagelens.bench.talk import Speech
from stagelens.bench.wire import Client, Target
from tests.fake_llm.dialects import chat, delta, together
from tests.fake_llm.server import Hang, Reply, Reset, fake_llm
from tracer.clock import SystemClock

HISTORY = [{"role": "user", "content": "hi"}]


class Asking:
    """A client of one fake, and its way to send."""

    def __init__(self, url: str, timeout_s: float = 20.0) -> None:
        self.target = Target.parse(url)
        self.clock = SystemClock()
        self.client = Client(self.target, self.clock, timeout_s)
        self.request = Speech(self.target, "m").request(HISTORY, 5, stream=True, tags="run=r")

    async def send(self) -> Sample:
        sample = Sample(0, self.clock.mono_ns(), True)
        await self.client.send(self.request, sample)
        return sample

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()


class Held:
    """Answers one request from a thread when told to, and keeps the connection till its peer ends it."""

    def __init__(self, answer: Callable[[socket.socket], None]) -> None:
        self._answer = answer
        self._asked, self._go, self._answered = (threading.Event() for _ in range(3))
        self.url = ""

    def serve(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.recv(65536)
            self._asked.set()
            self._go.wait(20)
            self._answer(connection)
            self._answered.set()
            connection.recv(1)

    async def answer_meanwhile(self) -> None:
        """Hold the loop up until the request that waits is answered."""
        assert await asyncio.to_thread(self._asked.wait, 20)
        self._go.set()
        assert self._answered.wait(20)


@asynccontextmanager
async def answering(answer: Callable[[socket.socket], None]) -> AsyncIterator[Held]:
    """A server of one request, which ends after its client."""
    held = Held(answer)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        held.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        server = threading.Thread(target=held.serve, args=(listener,))
        server.start()
        yield held
        await asyncio.to_thread(server.join, 20)


async def test_a_connection_is_kept_and_its_stamps_are_in_order():
    """The second request needs no connection of its own."""
    async with fake_llm(chat()) as fake, Asking(fake.url) as asking:
        first, second = await asking.send(), await asking.send()
        assert fake.connections == 1
        assert fake.requests[0].header("x-stagelens-tags") == "run=r"
    for one in (first, second):
        assert one.error == ""
        assert one.intended_ns <= one.sent_ns <= one.head_ns <= one.first_token_ns <= one.end_ns
    assert (first.connected_ns > 0, second.connected_ns) == (True, 0)


def test_a_reset_behind_part_of_an_answer_ends_it_at_once():
    """Both are there when the loop looks, which uvloop tells of once: the request must not wait on."""

    def answer(connection: socket.socket) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 999\r\n\r\n"
        connection.sendall(head + delta(content="a"))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()

    async def scenario() -> Sample:
        async with answering(answer) as server, Asking(server.url, timeout_s=5) as asking:
            sending = asyncio.create_task(asking.send())
            await server.answer_meanwhile()
            return await sending

    sample = uvloop.run(scenario())
    assert (sample.error, sample.chunks) == ("connection", 1)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's stamps are Linux's")
async def test_an_answer_counts_from_when_it_came_not_from_when_it_was_read():
    """The client's loop is held up while a whole answer arrives: no stamp is later than that."""

    def answer(connection: socket.socket) -> None:
        body = b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}\n\n'
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n"
        connection.sendall(head % len(body) + body)

    async with answering(answer) as server, Asking(server.url) as asking:
        sending = asyncio.create_task(asking.send())
        await server.answer_meanwhile()
        came_by_ns = asking.clock.mono_ns()
        sample = await sending
    assert (sample.error, sample.chunks) == ("", 1)
    assert sample.sent_ns < sample.first_token_ns <= sample.end_ns <= came_by_ns


async def test_a_connection_that_the_server_closed_meanwhile_is_replaced():
    """A kept connection that is gone costs a new one, not the request."""
    async with fake_llm(chat()) as fake, Asking(fake.url) as asking:
        await asking.send()
        [kept] = asking.client._free
        kept.transport.abort()
        assert (await asking.send()).error == ""
        assert fake.connections == 2


@pytest.mark.parametrize("framing", ["length", "close"])
async def test_other_framings_are_read_to_their_end(framing):
    """A body with a length, and one that ends with its connection."""
    reply = Reply([together(chat())], framing=framing)
    async with fake_llm(reply) as fake, Asking(fake.url) as asking:
        one = await asking.send()
        assert (one.error, one.output_tokens) == ("", 5)
        again = await asking.send()
        assert again.error == ""


async def test_a_broken_connection_is_an_error_of_the_request():
    """A reset amid the stream; nothing is raised."""
    async with fake_llm(chat(reset_after=2)) as fake, Asking(fake.url) as asking:
        one = await asking.send()
    assert (one.error, one.e2e_ns) == ("connection", None)
    assert one.end_ns > one.first_token_ns > 0


async def test_nobody_there_is_an_error_of_the_request():
    """A refused connection."""
    async with fake_llm(chat()) as fake:
        url = fake.url
    async with Asking(url) as asking:
        assert (await asking.send()).error == "connection"


async def test_a_request_that_takes_too_long_is_given_up():
    """The connection is closed, so that the server can stop; the next one works."""
    replies = iter((Reply([delta(content="a"), Hang()]), chat()))
    async with fake_llm(lambda _: next(replies)) as fake, Asking(fake.url, timeout_s=0.3) as asking:
        assert (await asking.send()).error == "timeout"
        await asyncio.wait_for(fake.left.wait(), 10)
        asking.client._timeout_s = 20
        assert (await asking.send()).error == ""


async def test_nonsense_is_an_error_of_the_request():
    """Bytes that are no HTTP."""
    async with (
        fake_llm(Reply([b"SSH-2.0-x\r\n\r\n"], framing="raw")) as fake,
        Asking(fake.url) as asking,
    ):
        assert (await asking.send()).error == "connection"


async def test_a_break_before_any_answer_on_a_new_connection_is_not_tried_again():
    """Only a kept connection may have been closed before the request."""
    broken = Reply([Reset()], head_first=False, framing="raw")
    async with fake_llm(broken) as fake, Asking(fake.url) as asking:
        one = await asking.send()
        assert (one.error, fake.connections) == ("connection", 1)


@pytest.mark.parametrize(
    ("url", "host", "port", "base", "tls"),
    [("http://h", "h", 80, "/v1", False), ("https://h/v1/", "h", 443, "/v1", True),
     ("http://[::1]:8/x", "::1", 8, "/x/v1", False)],
)  # fmt: skip
def test_addresses_are_read_with_and_without_v1(url, host, port, base, tls):
    """Both forms of the base address mean the same."""
    assert Target.parse(url) == Target(host, port, base, tls)


@pytest.mark.parametrize("interim", [b"100 Continue", b"103 Early Hints\r\nlink: </x>"])
async def test_an_interim_answer_is_not_the_answer(interim):
    """The one that counts comes after it, on a connection that is kept."""
    body = together(chat())
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(body)
    reply = Reply([b"HTTP/1.1 " + interim + b"\r\n\r\n", head + body], framing="raw")
    async with fake_llm(reply) as fake, Asking(fake.url) as asking:
        one, two = await asking.send(), await asking.send()
    assert [(s.error, s.status, s.output_tokens) for s in (one, two)] == [("", 200, 5)] * 2


async def test_headers_that_break_off_are_no_answer():
    """Neither a status nor a body came."""
    async with (
        fake_llm(Reply([b"HTTP/1.1 200 OK\r\ncontent-type: text/"], framing="raw")) as fake,
        Asking(fake.url, timeout_s=0.5) as asking,
    ):
        one = await asking.send()
    assert one.error in ("connection", "timeout")


async def test_a_request_that_a_kept_connection_swallowed_is_sent_again_once_and_told():
    """The server drops it unanswered: one more try, on a new connection, from the first send's time."""
    broken = Reply([Reset()], head_first=False, framing="raw")
    replies = iter((chat(), broken, chat(), broken, broken))
    async with fake_llm(lambda _: next(replies)) as fake, Asking(fake.url) as asking:
        assert (await asking.send()).resent is False
        again = await asking.send()
        assert (again.error, again.resent, len(fake.requests)) == ("", True, 3)
        assert again.sent_ns < again.connected_ns
        lost = await asking.send()
        assert (lost.error, lost.resent, len(fake.requests)) == ("connection", True, 5)
