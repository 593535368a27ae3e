"""Which upstream a request goes to: by model, health, prefix and load."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from proxy.errors import ProxyError
from proxy.settings import UpstreamSettings, UpstreamTarget
from proxy.upstream.answers import Refusal
from proxy.upstream.secrets import read_secret
from tracer.clock import Clock


@dataclass(slots=True, eq=False)
class Upstream:
    """One target and how it does. ``credential`` is a (header, value) pair kept out of repr."""

    target: UpstreamTarget
    credential: Credential | None
    in_flight: int = 0
    served: int = 0
    failures: int = 0
    resting_until_mono_ns: int = 0
    label: str = field(init=False)
    address: tuple[str, int] = field(init=False)
    _base: str = field(init=False)
    _prefix: str = field(init=False)

    def __post_init__(self) -> None:
        """Once, not in each request: the parts of the target's URL."""
        parts = urlsplit(self.target.url)
        self.label = self.target.label
        self.address = (
            parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        )  # fmt: skip
        self._base = f"{parts.scheme}://{parts.netloc}"
        self._prefix = parts.path.rstrip("/")

    def url(self, path: str, query: str) -> str:
        """The target's URL for a request path; a prefix that both share is not doubled."""
        prefix = self._prefix
        if prefix and (path in (prefix, "*") or path.startswith(prefix + "/")):
            prefix = ""  # ``*`` asks about the server as a whole
        return f"{self._base}{prefix}{path}" + (f"?{query}" if query else "")


class Credential:
    """A header with a secret; its repr says nothing."""

    __slots__ = ("header", "value")

    def __init__(self, header: str, value: str) -> None:
        self.header = header
        self.value = value

    def __repr__(self) -> str:
        return "Credential(…)"


class Pool:
    """All upstreams. Used from the event loop only."""

    def __init__(self, settings: UpstreamSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self.upstreams = [Upstream(t, _credential(t)) for t in settings.targets]

    @property
    def by_model(self) -> bool:
        """Which upstream a request goes to, or what is sent there, depends on its model."""
        return any(u.target.models for u in self.upstreams)

    def choose(self, model: str, prefix: bytes, tried: list[Upstream]) -> Upstream | None:
        """The upstream for the next attempt; None when every fitting one was tried.

        Healthy before resting ones; the prefix's own one unless it is busier than the
        least busy by more than the slack; then the fewest requests in flight, then
        the fewest served. When all rest, the one that has rested longest is asked.

        Raises:
            Refusal: 404, no upstream has the model.
        """
        fitting = [u for u in self.upstreams if _serves(u, model)]
        if not fitting:
            raise Refusal(404, "model_not_found", "no upstream serves the model asked for")
        left = [u for u in fitting if u not in tried]
        if not left:
            return None
        now = self._clock.mono_ns()
        healthy = [u for u in left if u.resting_until_mono_ns <= now]
        if not healthy:
            return min(left, key=lambda u: u.resting_until_mono_ns)
        least = min(healthy, key=lambda u: (u.in_flight, u.served))
        if prefix and len(healthy) > 1:
            own = max(healthy, key=lambda u: _rank(u.target.url, prefix))
            if own.in_flight <= least.in_flight + self._settings.affinity_slack:
                return own
        return least

    def begin(self, upstream: Upstream) -> None:
        """An attempt begins. A rested one gets one request at a time to prove itself."""
        upstream.in_flight += 1
        upstream.served += 1
        if upstream.failures >= self._settings.eject_after_failures:
            self._rest(upstream)

    def end(self, upstream: Upstream, healthy: bool | None) -> None:
        """An attempt ended; None says nothing of the upstream's health (the client left)."""
        upstream.in_flight -= 1
        if healthy is None:
            return
        if healthy:
            upstream.failures = 0
            upstream.resting_until_mono_ns = 0
            return
        upstream.failures += 1
        if upstream.failures >= self._settings.eject_after_failures:
            self._rest(upstream)

    def _rest(self, upstream: Upstream) -> None:
        times = min(upstream.failures - self._settings.eject_after_failures, 16)
        rest_s = min(self._settings.eject_s * 2**times, self._settings.eject_max_s)
        upstream.resting_until_mono_ns = self._clock.mono_ns() + round(rest_s * 1e9)


def _serves(upstream: Upstream, model: str) -> bool:
    return not upstream.target.models or not model or model in upstream.target.models


def _rank(url: str, prefix: bytes) -> bytes:
    """Rendezvous hashing: each prefix keeps its upstream when others come and go."""
    return hashlib.blake2b(prefix + b"\0" + url.encode(), digest_size=8).digest()


def _credential(target: UpstreamTarget) -> Credential | None:
    secret = read_secret(target.api_key_env, target.api_key_file, f"upstream {target.label}")
    if secret is None:
        return None
    if not secret.isascii() or not secret.isprintable():
        raise ProxyError(f"the key of upstream {target.label} holds characters no header can carry")
    value = f"Bearer {secret}" if target.api_key_header == "authorization" else secret
    return Credential(target.api_key_header, value)
