"""Many requests in few figures each, oldest first. Times as in :mod:`dashboards.models.report`."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    model_config = ConfigDict(frozen=True)


class Record(Model):
    """What a replay and a comparison with the client's own figures need of one request.

    ``prompt_marks``: ``stagelens.prompt.marks``, where they were asked for and are stored.
    """

    trace_id: str
    start_unix_ns: int
    stream: bool
    status: str
    e2e_ns: int
    ttft_ns: int | None
    tpot_ns: float | None
    prompt_ns: int
    queue_ns: int
    prefill_ns: int
    decode_ns: int
    deliver_ns: int
    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    prompt_marks: str = ""


class Records(Model):
    """The first of the chosen requests by time; ``total`` is how many there are of them."""

    version: int = 1
    total: int
    records: tuple[Record, ...]
