"""Whether the proxy's wall clock is this client's, so that stamps of both may be subtracted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median

from dashboards.errors import DashboardError
from dashboards.models.records import Record
from dashboards.source import Source
from stagelens.bench.sample import Sample
from tracer.clock import Anchor, boot_id

SLACK_NS = 1_000_000
"""By which a record may lie outside of its request before the clocks are taken for two."""
_TWO_BOOTS = (
    "The proxy's spans are of another clock than this client's (another machine, behind a tunnel "
    "perhaps): what passed before its first byte is not told."
)
_APART = (
    "By their stamps records begin before their request was sent, or end after its answer: the "
    "proxy's clock is not this client's, or was set. What passed before its first byte is not told."
)
_BY_ADDRESS = (
    "The proxy is taken to have this client's clock because its address is this machine's; behind "
    "a tunnel or a forwarded port it has not, and what passed before its first byte is off by that."
)


@dataclass
class SharedClock:
    """``anchor`` ties this client's stamps to its wall clock; ``is_here``: by the server's address.

    The store tells on which boot of which kernel the proxy's spans were stamped; the same
    boot is one clock, whatever the address. Where that is not told the address decides, and
    the reader is told so.
    """

    anchor: Anchor
    is_here: bool
    own: str | None = field(default_factory=boot_id)

    def before(
        self, pairs: Iterable[tuple[Sample, Record]], source: Source
    ) -> tuple[list[int] | None, str]:
        """From each send to the proxy's first byte, ns; and a sentence where one is needed."""
        pairs = list(pairs)
        if not pairs:
            return None, ""
        told = _boot_of(pairs[0][1], source) if self.own else None
        if told is None and not self.is_here:
            return None, ""
        if told is not None and told != self.own:
            return None, _TWO_BOOTS if self.is_here else ""
        gaps = [r.start_unix_ns - self.anchor.to_unix_ns(s.sent_ns) for s, r in pairs]
        over = [
            gap + r.e2e_ns - (s.e2e_sent_ns or 0) for gap, (s, r) in zip(gaps, pairs, strict=True)
        ]
        if min(gaps) < -SLACK_NS or median(over) > SLACK_NS:  # an end may be stamped late, a start not
            return None, _APART
        return gaps, "" if told else _BY_ADDRESS


def _boot_of(one: Record, source: Source) -> str | None:
    """On the span of the request itself; None where the store does not tell."""
    try:
        trace = source.trace(one.trace_id)
    except DashboardError:
        return None
    spans = {r.span_id for r in trace.requests if r.start_unix_ns == one.start_unix_ns}
    return next((s.boot_id for s in trace.spans if s.span_id in spans and s.boot_id), None)
