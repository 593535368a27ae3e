"""What a load is: one frozen model, from a file, the command line, or both."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from stagelens.bench.lengths import parse_lengths
from stagelens.bench.limits import parse_limits

_NAME = re.compile(r"[A-Za-z0-9._-]{1,80}")
OWN_TAGS = ("run", "bench", "level")
MOST_S = 31_536_000
"""A year."""
_TEXTS = ("input", "prefix_share", "prefix_tokens", "prefixes")
_OF_OPTIONS = {
    "model": "--model", "stream": "--stream", "ignore_eos": "--ignore-eos",
    "max_tokens": "--output", "max_completion_tokens": "--output",
    "messages": "--data", "prompt": "--data",
}  # fmt: skip
_WITHOUT_USE = (
    ("data", _TEXTS, "takes its prompts from the file"),
    ("replay", (*_TEXTS, "output", "data", "turns", "think_s", "arrivals", "burstiness"),
     "takes its lengths, prefixes and times from what was recorded"),
    ("concurrency", ("arrivals", "burstiness"), "has no schedule"),
)  # fmt: skip
"""Settings that would change nothing beside another one, and are refused there."""


class BenchSettings(BaseModel):
    """A load. Exactly one of ``rate``, ``concurrency`` and ``replay`` drives it.

    With ``goodput`` and ``find_max`` the rate is searched for, and ``rate`` is where the
    search begins.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    url: str
    model: str | None = Field(default=None, description="asked of the server when it has one")
    endpoint: Literal["chat", "completions"] = "chat"
    name: str | None = Field(default=None, description="of the run; by default from the time")
    tags: dict[str, str] = Field(default_factory=dict)
    seed: int = 0

    rate: tuple[float, ...] = ()
    concurrency: tuple[int, ...] = ()
    arrivals: Literal["poisson", "constant", "gamma"] = "poisson"
    burstiness: float = Field(default=2.0, gt=0, le=100)
    replay: str | None = None
    speed: float = Field(default=1.0, gt=0, le=1000)

    duration_s: float | None = Field(default=None, gt=0, le=MOST_S)
    requests: int | None = Field(default=None, gt=0)
    warmup_s: float | None = Field(default=None, ge=0, le=MOST_S, description="5; 0 in a replay")
    warmup_requests: int = Field(default=0, ge=0)

    input: str = "256"
    output: str | None = None
    data: Path | None = None
    prefix_share: float = Field(default=0.0, ge=0, le=1)
    prefix_tokens: int = Field(default=256, gt=0)
    prefixes: int = Field(default=1, gt=0)
    turns: str = "1"
    think_s: float = Field(default=0.0, ge=0, le=MOST_S)

    stream: bool = True
    ignore_eos: bool = True
    body: dict[str, Any] = Field(default_factory=dict)
    timeout_s: float = Field(default=600.0, gt=0, le=MOST_S)
    ca: Path | None = Field(default=None, description="PEM file, trusted beside the system's")

    goodput: dict[str, float] = Field(default_factory=dict)
    percentile: float = Field(default=95.0, gt=0, lt=100)
    find_max: bool = False
    precision: float = Field(default=0.05, gt=0, lt=1)

    @field_validator("url")
    @classmethod
    def _url(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("it is no address: write it as http://HOST:PORT")
        try:
            _ = parts.port, parts.hostname.encode("idna")
        except ValueError:
            raise ValueError("it is no address: write it as http://HOST:PORT") from None
        if re.search(r"[\s\x00-\x20\x7f-\U0010ffff]", parts.path):
            raise ValueError("its path holds what an address must write as %XX") from None
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError("give the address alone; a key goes into the environment")
        return url.rstrip("/")

    @field_validator("name")
    @classmethod
    def _name(cls, name: str | None) -> str | None:
        if name is not None and not _NAME.fullmatch(name):
            raise ValueError("a run's name is 1 to 80 letters, digits, . _ or -")
        return name

    @field_validator("tags")
    @classmethod
    def _tags(cls, tags: dict[str, str]) -> dict[str, str]:
        for key, value in tags.items():
            if key in OWN_TAGS:
                raise ValueError(f"tag {key} is this command's own: take another key")
            if not _NAME.fullmatch(key) or not value.isascii() or re.search(r"[\s,=\x00-\x20\x7f]", value):
                raise ValueError(f"tag {key}={value} holds what a tag cannot (spaces, commas)")
        return tags

    @field_validator("rate", "concurrency")
    @classmethod
    def _positive(cls, levels: tuple[float, ...]) -> tuple[float, ...]:
        if any(not 0 < level <= 1_000_000 for level in levels):
            raise ValueError("each level is a number above 0 and at most a million")
        if len({f"{level:.6g}" for level in levels}) != len(levels):
            raise ValueError("a level stands twice")
        return levels

    @field_validator("input", "output", "turns", mode="before")
    @classmethod
    def _plain_length(cls, told: object) -> object:
        """A file's ``input: 32`` is a number, and means what ``--input 32`` does."""
        return str(told) if isinstance(told, int | float) and not isinstance(told, bool) else told

    @field_validator("input", "output", "turns")
    @classmethod
    def _lengths(cls, text: str | None) -> str | None:
        if text is not None:
            parse_lengths(text)
        return text

    @field_validator("body")
    @classmethod
    def _body(cls, body: dict[str, Any]) -> dict[str, Any]:
        for field in body:
            if option := _OF_OPTIONS.get(field):
                raise ValueError(f"{field} is what {option} tells: the result would not know of another")
        try:
            json.dumps(body, allow_nan=False)
        except (ValueError, TypeError):
            raise ValueError("it holds what no JSON can (NaN, Infinity, dates)") from None
        return body

    @field_validator("goodput")
    @classmethod
    def _limits(cls, limits: dict[str, float]) -> dict[str, float]:
        return parse_limits([f"{name}={value}" for name, value in limits.items()])

    @model_validator(mode="after")
    def _one_driver(self) -> BenchSettings:
        given = [n for n in ("rate", "concurrency", "replay") if getattr(self, n)]
        if self.find_max:
            if not self.goodput:
                raise ValueError("a search for the highest rate needs limits")
            if given not in ([], ["rate"]) or len(self.rate) > 1:
                raise ValueError(
                    "a search takes one rate to begin with, or none, and neither concurrency nor replay"
                )
            if self.requests:
                raise ValueError(
                    "a search gives each rate its duration_s: so many requests are over in no time at a "
                    "high rate, before a queue has built up (leave requests out)"
                )
        elif len(given) != 1:
            raise ValueError("give one of rate, concurrency and replay")
        for driver, useless, why in _WITHOUT_USE:
            given = [name for name in useless if name in self.model_fields_set]
            if getattr(self, driver) and given:
                raise ValueError(f"{' and '.join(given)}: a load with {driver} {why}")
        return self

    @model_validator(mode="after")
    def _of_another(self) -> BenchSettings:
        """Settings that need another one."""
        if self.speed != 1 and not self.replay:
            raise ValueError("speed is of a replay")
        if "burstiness" in self.model_fields_set and self.arrivals != "gamma":
            raise ValueError("burstiness is of arrivals gamma")
        if self.think_s and self.turns == "1":
            raise ValueError("think_s is of conversations: give turns")
        if self.endpoint == "completions" and self.turns != "1":
            raise ValueError("several turns need the chat endpoint")
        if self.warmup_s and self.warmup_requests:
            raise ValueError("warmup_requests stands in place of warmup_s: give one of them")
        return self

    @model_validator(mode="after")
    def _limits_of_streams(self) -> BenchSettings:
        if not self.stream and (given := [one for one in self.goodput if one != "e2e"]):
            raise ValueError(f"limits {', '.join(given)} are of streams: without them there is e2e alone")
        return self

    @model_validator(mode="after")
    def _ca_of_tls(self) -> BenchSettings:
        if self.ca is not None and not self.url.lower().startswith("https:"):
            raise ValueError("ca is of a server behind https")
        return self
