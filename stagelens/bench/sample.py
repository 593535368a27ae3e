"""What the client saw of one request. Stamps are of the monotonic clock; 0 is "not seen"."""

from __future__ import annotations

from dataclasses import dataclass, field

INTERRUPTED = "interrupted"
"""The error of a request that was in flight when the run was stopped."""
CLIENT_LIMIT = "client_limit"
"""The error of one that this client had no socket for."""


@dataclass(slots=True)
class Sample:
    """One request. Times from ``intended_ns`` hold the wait that the schedule did not mean.

    ``ttft_ns`` and ``e2e_ns`` count from the time at which the request was to be sent;
    ``*_sent_ns`` from when its bytes went to the socket. A stream's gaps are between
    chunks that carry tokens.
    """

    number: int
    intended_ns: int
    measured: bool
    conversation: int = 0
    turn: int = 0
    meant_input: int | None = None
    meant_output: int | None = None
    stream: bool = True

    resent: bool = False
    """The kept connection that it was sent on closed before any answer: sent on another one."""
    connected_ns: int = 0
    sent_ns: int = 0
    head_ns: int = 0
    first_chunk_ns: int = 0
    first_token_ns: int = 0
    last_token_ns: int = 0
    end_ns: int = 0
    chunks: int = 0
    choices: int = 0
    """That had a token in the stream: one, or as many as `n` asked for."""
    streamed: bool = False
    """The answer came as a stream of events."""
    said_something: bool = False
    """A whole answer, which was no stream, held text."""
    gaps: list[int] = field(default_factory=list)

    status: int = 0
    retry_after_s: float | None = None
    """What a refusal named as such, where it is a number of seconds."""
    error: str = ""
    said: str = ""
    trace_id: str = ""
    finish: str = ""
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None

    @property
    def is_empty(self) -> bool:
        """An answer that is whole and held nothing: no text came, and no token was counted.

        A server may count tokens that it does not show; a stream of those has no first token
        either, so that only a whole answer is taken by the count.
        """
        if self.error or self.first_token_ns or self.said_something:
            return False
        return self.streamed or not self.output_tokens

    @property
    def late_ns(self) -> int | None:
        """From the intended time to the bytes' leaving."""
        return self.sent_ns - self.intended_ns if self.sent_ns else None

    @property
    def ttft_ns(self) -> int | None:
        return self.first_token_ns - self.intended_ns if self.first_token_ns else None

    @property
    def ttft_sent_ns(self) -> int | None:
        return self.first_token_ns - self.sent_ns if self.first_token_ns else None

    @property
    def e2e_ns(self) -> int | None:
        return None if self.error else self.end_ns - self.intended_ns

    @property
    def e2e_sent_ns(self) -> int | None:
        return None if self.error else self.end_ns - self.sent_ns

    @property
    def tpot_ns(self) -> float | None:
        """The mean gap between tokens, by the server's count of them.

        Over several choices, the sum of their spans over the sum of their gaps, as in the
        proxy's record: the server counts the tokens of all choices together.
        """
        if self.error or not self.first_token_ns or not self.output_tokens:
            return None
        choices = self.choices or 1
        if self.output_tokens <= choices:
            return None
        span_ns = self.last_token_ns - self.first_token_ns if choices == 1 else sum(self.gaps)
        return span_ns / (self.output_tokens - choices)

    @property
    def token_gaps(self) -> bool:
        """Whether each chunk was one token, so that ``gaps`` are those between tokens."""
        return self.output_tokens is not None and self.chunks == self.output_tokens
