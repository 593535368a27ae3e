"""The listening socket's connections send each token at once and know when bytes arrived."""

from __future__ import annotations

import asyncio
import socket
import struct
import time

import pytest
import uvloop

from proxy.arrival import StampedReading, stamped
from proxy.server import bind
from tracer.clock import SystemClock

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


class Reading(asyncio.Protocol):
    """Keeps what it is given with its stamps, and what its transport is."""

    def __init__(self) -> None:
        self.got: list[tuple[bytes, int | None]] = []
        self.unstamped: list[bytes] = []
        self.reading: StampedReading | None = None
        self.lost = asyncio.get_running_loop().create_future()
        self.made = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.reading = stamped(transport, lambda data, at: self.got.append((data, at)))
        self.made.set_result(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        self.unstamped.append(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.reading.end()
        self.lost.set_result(exc)


def run(scenario, loop_factory) -> None:
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(scenario())


async def listening() -> tuple[Reading, int, asyncio.Server]:
    listener = bind("127.0.0.1", 0)
    protocol = Reading()
    server = await asyncio.get_running_loop().create_server(lambda: protocol, sock=listener)
    return protocol, listener.getsockname()[1], server


@pytest.mark.parametrize("loop", LOOPS)
def test_small_writes_are_not_held_back_for_an_acknowledgement(loop):
    """Accepted connections have TCP_NODELAY: with Nagle's algorithm a token waits up to 40 ms."""

    async def scenario() -> None:
        protocol, port, server = await listening()
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        sock = await asyncio.wait_for(protocol.made, 5)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        writer.close()
        server.close()

    run(scenario, loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_bytes_that_came_while_the_loop_was_busy_have_the_time_of_their_arrival(loop):
    """The stamp is the kernel's, not that of the moment when somebody got round to reading."""
    clock = SystemClock()

    async def scenario() -> None:
        protocol, port, server = await listening()
        client = socket.create_connection(("127.0.0.1", port))
        await protocol.made
        for _ in range(3):  # let the transport settle
            await asyncio.sleep(0)
        sent = clock.mono_ns()
        client.sendall(b"first")
        time.sleep(0.3)  # noqa: ASYNC251  the loop is busy
        while not protocol.got:  # noqa: ASYNC110  a list, not an event
            await asyncio.sleep(0.01)
        [(data, arrived)] = protocol.got
        assert data == b"first"
        assert 0 <= clock.mono_of_recent(arrived) - sent < 250_000_000  # and not the 300 ms of the busy loop
        client.close()
        await asyncio.wait_for(protocol.lost, 5)
        assert protocol.unstamped == []
        server.close()

    run(scenario, loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_reading_pauses_and_resumes_and_all_bytes_come_in_order(loop):
    """A paused reader leaves the bytes to the kernel; the sender's end is seen after them."""
    total = bytes(range(256)) * 4096

    async def scenario() -> None:
        protocol, port, server = await listening()
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        await protocol.made
        protocol.reading.pause_reading()
        writer.write(total)
        await asyncio.sleep(0.05)
        before = sum(len(data) for data, _ in protocol.got)
        protocol.reading.resume_reading()
        await writer.drain()
        writer.close()
        await asyncio.wait_for(protocol.lost, 5)
        assert before == 0
        assert b"".join(data for data, _ in protocol.got) == total
        server.close()

    run(scenario, loop)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("size", [1, 600_000], ids=["one read", "several reads"])
def test_a_reset_that_waits_behind_the_last_bytes_is_seen_after_them(loop, size):
    """uvloop tells of the two at once and then polls no more: the client's leaving would be unheard."""

    async def scenario() -> None:
        protocol, port, server = await listening()
        client = socket.create_connection(("127.0.0.1", port))
        client.setblocking(False)
        (await protocol.made).setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * size)
        await asyncio.sleep(0.01)
        sent = client.send(bytes(size))
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        await asyncio.wait_for(protocol.lost, 5)
        assert sum(len(data) for data, _ in protocol.got) == sent
        server.close()

    run(scenario, loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_connection_closed_here_is_closed_for_the_other_side(loop):
    """The second descriptor does not keep the connection open."""

    async def scenario() -> None:
        protocol, port, server = await listening()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await protocol.made
        protocol.transport.close()
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()
        server.close()

    run(scenario, loop)
