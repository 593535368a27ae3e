"""Who may ask, how often, how large, and how many at once."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pydantic import ValidationError

from proxy.errors import ProxyError
from proxy.settings import AccessSettings, ClientKey
from proxy.upstream.answers import Refusal
from proxy.upstream.body import too_large
from proxy.upstream.headers import Headers, value_of
from tracer.clock import Clock


@dataclass(slots=True)
class _Bucket:
    """A token bucket: ``rate`` a nanosecond, at most ``burst`` saved up."""

    rate: float
    burst: float
    left: float
    at_mono_ns: int

    def take(self, now_mono_ns: int) -> float:
        """0 when a request may pass now, else the seconds until one may."""
        self.left = min(self.burst, self.left + (now_mono_ns - self.at_mono_ns) * self.rate)
        self.at_mono_ns = now_mono_ns
        if self.left >= 1:
            self.left -= 1
            return 0.0
        return (1 - self.left) / self.rate / 1e9


class Access:
    """The door. Used from the event loop only.

    Raises:
        ProxyError: the file of keys cannot be read or has a line of another form.
    """

    def __init__(self, settings: AccessSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._keys = (*settings.keys, *_keys_of_file(settings))
        self._buckets: dict[str, _Bucket] = {}
        self._in_flight = 0

    @property
    def guarded(self) -> bool:
        """A key is asked for; it is ours and must not go upstream."""
        return bool(self._keys)

    @property
    def size_limit(self) -> int | None:
        return self._settings.max_request_bytes

    @contextmanager
    def enter(self, headers: Headers) -> Iterator[str]:
        """Let a request in for as long as the block runs; the name of its key, or "".

        Raises:
            Refusal: 401, 413, 429 or 503, the latter two with Retry-After.
        """
        name = self._key_of(headers)
        self._check_size(headers)
        limit = self._settings.max_in_flight
        if limit is not None and self._in_flight >= limit:
            raise Refusal(503, "overloaded", "too many requests are in flight (--max-in-flight)",
                          self._settings.retry_after_s)  # fmt: skip
        self._check_rate(name)
        self._in_flight += 1
        try:
            yield name
        finally:
            self._in_flight -= 1

    def _key_of(self, headers: Headers) -> str:
        """Every key is compared in full, so that the time taken tells nothing."""
        if not self._keys:
            return ""
        found = ""
        for presented in _presented(headers):
            digest = hashlib.sha256(presented).hexdigest()
            for key in self._keys:
                if hmac.compare_digest(digest, key.sha256):
                    found = key.name
        if not found:
            raise Refusal(401, "invalid_api_key", "a valid API key is needed: send it as "
                          "Authorization: Bearer KEY")  # fmt: skip
        return found

    def _check_size(self, headers: Headers) -> None:
        limit, told = self._settings.max_request_bytes, value_of(headers, b"content-length")
        if limit is not None and told is not None and told.isdigit() and int(told) > limit:
            raise too_large(limit)

    def _check_rate(self, name: str) -> None:
        own = next((k.requests_per_minute for k in self._keys if k.name == name), None)
        per_minute = own if own is not None else self._settings.requests_per_minute
        if per_minute is None:
            return
        now = self._clock.mono_ns()
        bucket = self._buckets.get(name)
        if bucket is None:
            burst = max(1.0, per_minute)
            bucket = self._buckets[name] = _Bucket(per_minute / 60e9, burst, burst, now)
        if (wait_s := bucket.take(now)) > 0:
            raise Refusal(429, "rate_limit_exceeded", "this key's rate limit is reached", wait_s)


def _presented(headers: Headers) -> Iterator[bytes]:
    """The keys a request shows: OpenAI's, Anthropic's and Azure's header."""
    for name, value in headers:
        lower = name.lower()
        if lower == b"authorization":
            scheme, _, key = value.partition(b" ")
            if scheme.lower() == b"bearer":
                yield key.strip()
        elif lower in (b"x-api-key", b"api-key"):
            yield value.strip()


def _keys_of_file(settings: AccessSettings) -> Iterator[ClientKey]:
    file = settings.keys_file
    if file is None:
        return
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        raise ProxyError(f"the client keys cannot be read from {file}: {type(problem).__name__}") from None
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield _key_of_line(line.strip(), f"{file}:{number}")


def _key_of_line(line: str, where: str) -> ClientKey:
    name, _, rest = line.partition(":")
    digest, _, rate = rest.partition(":")
    try:
        return ClientKey(
            name=name, sha256=digest, requests_per_minute=float(rate) if rate else None
        )
    except (ValidationError, ValueError):
        raise ProxyError(
            f"{where}: a client key is a line NAME:SHA256[:PER_MINUTE] with 64 hex digits"
        ) from None
