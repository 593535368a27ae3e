"""OTLP/gRPC beside OTLP/HTTP: the same bodies, checks, counts and spool.

Messages are decompressed here, not in gRPC's core, which would unpack a small message
into gigabytes before anything could refuse it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from collectors.receive.access import Tokens
from collectors.receive.decode import PROTOBUF, BadBody
from collectors.receive.http import RETRY_AFTER_S, OtlpHttp
from collectors.receive.signals import SIGNALS, Signal
from collectors.receive.tls import ReceiverTls

SERVICES = {
    "spans": "opentelemetry.proto.collector.trace.v1.TraceService",
    "logs": "opentelemetry.proto.collector.logs.v1.LogsService",
    "metrics": "opentelemetry.proto.collector.metrics.v1.MetricsService",
}
GZIP = b"\x1f\x8b"
ZLIB = 0x78
CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,  # without RetryInfo: not to be sent again
    415: grpc.StatusCode.INVALID_ARGUMENT,
    503: grpc.StatusCode.UNAVAILABLE,
}
FRAME_BYTES = 1 << 20
"""What the envelope may add to a body; the body itself is held to its own limit."""
Call = Callable[[bytes, grpc.aio.ServicerContext], Awaitable[bytes]]


class PortTaken(Exception):
    """Nothing can listen there."""


class OtlpGrpc:
    """One gRPC server in the collector's event loop.

    ``start`` before the HTTP one is announced; ``stop(deadline_s)`` lets running calls end.
    """

    def __init__(
        self,
        taking: OtlpHttp,
        most_bytes: int,
        tokens: Tokens | None = None,
        tls: ReceiverTls | None = None,
    ) -> None:
        self._taking = taking
        self._tokens = tokens or Tokens(())
        self._tls = tls or ReceiverTls()
        self._server = grpc.aio.server(
            options=[
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", most_bytes + FRAME_BYTES),
                ("grpc.per_message_decompression", 0),
            ]
        )
        for signal in SIGNALS.values():
            export = grpc.unary_unary_rpc_method_handler(self._export(signal))
            self._server.add_generic_rpc_handlers(
                (grpc.method_handlers_generic_handler(SERVICES[signal.name], {"Export": export}),)
            )

    def listen(self, host: str, port: int) -> int:
        """The port that is listened on, ``port`` or any free one for 0.

        Raises:
            PortTaken: one sentence that says what to do.
        """
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            if self._tls.certfile is None:
                bound = self._server.add_insecure_port(place)
            else:
                bound = self._server.add_secure_port(place, self._credentials())
        except RuntimeError:
            bound = 0
        if not bound:
            raise PortTaken(
                f"port {port} on {host} cannot be listened on: stop what uses it, or choose "
                "--grpc-port N"
            )
        return int(bound)

    async def start(self) -> None:
        await self._server.start()

    async def stop(self, deadline_s: float) -> None:
        await self._server.stop(deadline_s)

    def _credentials(self) -> grpc.ServerCredentials:
        key, certificate, authorities = self._tls.read()
        return grpc.ssl_server_credentials(
            [(key, certificate)],
            root_certificates=authorities,
            require_client_auth=authorities is not None,
        )

    def _export(self, signal: Signal) -> Call:
        async def export(body: bytes, context: grpc.aio.ServicerContext) -> bytes:
            try:
                self._let_in(context)
                headers = {b"content-type": PROTOBUF, b"content-encoding": _packed(body)}
                answer = await self._taking.take(signal, body, headers)
            except BadBody as refusal:
                await _abort(context, refusal.status, refusal.message)
                raise  # abort raises
            made: bytes = answer.SerializeToString()
            return made

        return export

    def _let_in(self, context: grpc.aio.ServicerContext) -> None:
        said = dict(context.invocation_metadata() or ()).get("authorization", "")
        self._tokens.check(said.decode("latin-1") if isinstance(said, bytes) else said)


def _packed(body: bytes) -> str:
    """How gRPC packed a message, told by its first bytes: a request begins with tag 0x0a."""
    if body.startswith(GZIP):
        return "gzip"
    head = int.from_bytes(body[:2], "big")
    return "deflate" if len(body) > 1 and head >> 8 == ZLIB and head % 31 == 0 else ""


async def _abort(context: grpc.aio.ServicerContext, status: int, text: str) -> None:
    """End the call as the OTLP specification asks; RetryInfo where sending again helps."""
    code = CODES.get(status, grpc.StatusCode.INVALID_ARGUMENT)
    details = Status(code=code.value[0], message=text)
    if status == 503:
        retry = RetryInfo()
        retry.retry_delay.seconds = RETRY_AFTER_S
        packed = AnyMessage()
        packed.Pack(retry)
        details.details.append(packed)
    trailers = (("grpc-status-details-bin", details.SerializeToString()),)
    await context.abort(code, text, trailers)
