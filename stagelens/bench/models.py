"""The result of a run. Times are ns, ``None`` is "no data", never zero."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Model(BaseModel):
    model_config = ConfigDict(frozen=True)


class Figures(Model):
    """One measure's distribution; ``weak`` as in the report (few values above it)."""

    measure: str
    n: int
    no_data: int
    mean_ns: float | None
    p50_ns: float | None
    p90_ns: float | None
    p95_ns: float | None
    p99_ns: float | None
    max_ns: float | None
    weak: tuple[str, ...] = ()


class Counts(Model):
    """Requests of one level, by what became of them; ``warmup`` ones are in no figure."""

    warmup: int
    sent: int
    ok: int
    failed: int
    interrupted: int = Field(description="in flight when the run was stopped")
    errors: dict[str, int]
    said: dict[str, str] = Field(default_factory=dict, description="one failure's words, by kind")
    resent: int = Field(default=0, description="sent again, as their kept connection had closed")
    turns_failed: int = Field(default=0, description="turns not sent behind a failed one")
    turns_late: int = Field(default=0, description="turns not sent, as the time was over")
    primers: int = Field(default=0, description="of warmup: sent to fill the prefix cache")


class ServerSide(Model):
    """The same requests as the proxy recorded them.

    ``before`` is from the client's send to the proxy's first byte (by the wall clock,
    so only where both run on one machine), ``outside`` all of the client's E2E that the
    proxy's does not hold.
    """

    asked: int = Field(description="requests whose answers named a trace")
    found: int
    figures: tuple[Figures, ...]
    outside: Figures
    before: Figures | None
    reading: tuple[str, ...]


class Level(Model):
    """One level of load. Rates are per second; ``offered`` what was sent, ``done`` answered.

    ``window_s`` is the measured time: the level's own, or to the last answer when that is later.
    ``done`` and the tokens are over it. ``offered`` is over the time of the sending: the level's
    own, or, where a count ended it, the n - 1 gaps from the first to the last. ``in_flight_peak``
    counts the warm-up's last requests where they were still in flight.
    """

    label: str
    run: str
    rate: float | None
    concurrency: int | None
    window_s: float | None
    offered_per_s: float | None
    done_per_s: float | None
    input_tokens_per_s: float | None
    output_tokens_per_s: float | None
    in_flight_mean: float | None
    in_flight_peak: int
    counts: Counts
    figures: tuple[Figures, ...]
    input_tokens: int | None
    output_tokens: int | None
    cached_share: float | None = Field(description="of input tokens, as the server says")
    inputs_as_meant: int
    inputs_known: int
    outputs_as_meant: int
    outputs_known: int
    empty: int = Field(default=0, description="answers (ok) that held no token")
    unstreamed: int = Field(default=0, description="answers (ok) that were no stream as asked for")
    good: int | None
    good_per_s: float | None
    untold: int = Field(default=0, description="answers not within the limits, as a figure is not known")
    at_percentile: dict[str, float | None] = Field(default_factory=dict)
    meets_limits: bool | None = None
    server: ServerSide | None = None

    def figure(self, measure: str) -> Figures:
        return next(one for one in self.figures if one.measure == measure)


class Point(Model):
    """One rate that the search tried."""

    rate: float
    good_per_s: float | None
    meets: bool
    at_percentile: dict[str, float | None]


class Search(Model):
    """The highest rate that met the limits; ``None`` when the lowest one tried did not.

    ``ended_by`` says why the search ended early, with no verdict on the last rate that it
    sent; "" when it came to its end.
    """

    limits_s: dict[str, float]
    percentile: float
    best_rate: float | None
    first_failed: float | None
    curve: tuple[Point, ...]
    ended_by: str = ""


class BenchResult(Model):
    """A whole run."""

    version: int = 1
    name: str
    url: str
    model: str
    started_unix_ns: int
    interrupted: bool
    levels: tuple[Level, ...]
    search: Search | None = None
    server_note: str
    assumptions: tuple[str, ...]
    settings: dict[str, Any]
    versions: dict[str, str]
    machine: str
