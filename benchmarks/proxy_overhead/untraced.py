"""Stagelens' forwarding without a record: what tracing itself costs is the difference."""

from __future__ import annotations

import sys

from proxy.reverse import run_reverse
from proxy.server import bind, run_loop
from proxy.settings import AccessSettings, ProxySettings, UpstreamSettings, UpstreamTarget
from tracer.clock import SystemClock
from tracer.export_settings import SpanGroup
from tracer.ids import RandomIds


class Nowhere:
    """Takes no spans: none are made."""

    def put_spans(self, group: SpanGroup) -> None:
        """Never called without tracing."""


async def ready(_names: str) -> None:
    return


def main() -> None:
    url, port = sys.argv[1], int(sys.argv[2])
    run_loop(
        run_reverse(
            ProxySettings(port=port), UpstreamSettings(targets=(UpstreamTarget(url=url),)),
            AccessSettings(), bind("127.0.0.1", port), Nowhere(), SystemClock(),
            RandomIds(), ready, traced=False,
        )
    )  # fmt: skip


if __name__ == "__main__":
    main()
