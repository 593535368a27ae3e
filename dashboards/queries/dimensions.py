"""What ``--by`` can group by."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

from dashboards.errors import BadValueError

INPUT_BOUNDS: Final = (1, 128, 512, 2048, 8192, 32_768, 131_072)
OUTPUT_BOUNDS: Final = (1, 16, 64, 256, 1024, 4096, 16_384)
CONCURRENCY_BOUNDS: Final = (2, 3, 5, 9, 17, 33, 65, 129, 257, 513)
MOST_DIMENSIONS: Final = 4
TAG: Final = "tag:"
NO_BUCKET: Final = 255


@dataclass(frozen=True, slots=True)
class Dimension:
    """One way to divide requests.

    ``sql`` yields a String: ``v`` and the value, or the empty string where there is
    none, so that no real value can be taken for "unknown". ``label`` and ``order`` turn
    the value into what is shown and where it stands.

    ``code`` is what tells the values apart and costs less to group by; ``decoded`` makes the String
    of ``sql`` out of it, for each group instead of each request.
    """

    name: str
    sql: str
    label: Callable[[str], str] = str
    order: Callable[[str], tuple[int, str]] = field(default=lambda value: (0, value))
    params: tuple[tuple[str, str], ...] = ()
    code: str = ""
    decoded: Callable[[str], str] = str

    @property
    def key(self) -> str:
        """What to group by: ``code``, where there is one."""
        return self.code or self.sql

    def read(self, raw: str) -> str | None:
        return self.label(raw[1:]) if raw else None

    def rank(self, raw: str) -> tuple[int, int, str]:
        """Sorts known values in their own order and the unknown last."""
        return (0, *self.order(raw[1:])) if raw else (1, 0, "")


def parse_by(text: str | Sequence[str]) -> tuple[str, ...]:
    """The names in ``model,input_tokens,tag:tenant``, each known and named once.

    In a tag's name ``%2C`` stands for a comma, ``%20`` for a blank and ``%25`` for ``%``.

    Raises:
        BadValueError: unknown, repeated or too many; the sentence lists the known ones.
    """
    parts = text.split(",") if isinstance(text, str) else list(text)
    names = tuple(part.strip() for part in parts if part.strip())
    for name in names:
        if name not in _PLAIN and not (name.startswith(TAG) and len(name) > len(TAG)):
            raise BadValueError(
                f"by {name!r} is not a dimension: it is one of {', '.join(known())}"
            )
        if names.count(name) > 1:
            raise BadValueError(f"by names {name!r} twice: name each dimension once")
    if len(names) > MOST_DIMENSIONS:
        raise BadValueError(
            f"by names {len(names)} dimensions: at most {MOST_DIMENSIONS} at once; "
            "ask in two reports"
        )
    return names


def known() -> tuple[str, ...]:
    """The names that :func:`parse_by` takes."""
    return (*_PLAIN, TAG + "NAME")


def dimensions(names: Sequence[str]) -> tuple[Dimension, ...]:
    """The dimensions of names that :func:`parse_by` gave."""
    return tuple(_PLAIN[name] if name in _PLAIN else _tag(name, i) for i, name in enumerate(names))


def bucket_labels(bounds: Sequence[int]) -> tuple[str, ...]:
    """Labels of the buckets that ascending ``bounds`` cut whole numbers from 0 into."""
    edges = (0, *bounds)
    labels = [
        str(low) if high == low + 1 else f"{low}-{high - 1}"
        for low, high in zip(edges, bounds, strict=False)
    ]
    return (*labels, f"{edges[-1]}+")


def bucket_of(value: int, bounds: Sequence[int]) -> str:
    """The label of the bucket that holds ``value``: what the SQL does, in Python."""
    return bucket_labels(bounds)[bisect_right(bounds, value)]


def _text(name: str, column: str) -> Dimension:
    return Dimension(
        name,
        f"if({column} = '', '', concat('v', toString({column})))",
        code=column,
        decoded=lambda code: f"if({code} = '', '', concat('v', toString({code})))",
    )


def _flag(name: str, unknown: str, fact: str) -> Dimension:
    return Dimension(
        name,
        f"multiIf({unknown}, '', {fact}, 'vyes', 'vno')",
        code=f"toUInt8(multiIf({unknown}, 2, {fact}, 1, 0))",
        decoded=lambda code: f"multiIf({code} = 2, '', {code} = 1, 'vyes', 'vno')",
    )


def _bucket(
    name: str, value: str, bounds: Sequence[int], labels: Sequence[str], unknown: str = "false"
) -> Dimension:
    place = " + ".join(f"({bound} <= {value})" for bound in bounds)
    return Dimension(
        name,
        f"if({unknown}, '', concat('v', toString({place})))",
        label=lambda index: labels[int(index)],
        order=lambda index: (int(index), ""),
        code=f"toUInt8(if({unknown}, {NO_BUCKET}, {place}))",
        decoded=lambda code: f"if({code} = {NO_BUCKET}, '', concat('v', toString({code})))",
    )


def _tag(name: str, place: int) -> Dimension:
    at = f"{{by{place}:String}}"
    found = f"indexOf(Tags.keys, {at})"
    return Dimension(
        name,
        f"if(mapContains(Tags, {at}), concat('v', Tags[{at}]), '')",
        params=((f"by{place}", unquote(name.removeprefix(TAG))),),
        code=f"if({found} = 0, '', concat('v', arrayElement(Tags.values, {found})))",
    )


def _tokens(name: str, column: str, bounds: Sequence[int]) -> Dimension:
    labels = bucket_labels(bounds)
    return _bucket(name, f"assumeNotNull({column})", bounds, labels, f"isNull({column})")


_CONCURRENCY_LABELS: Final = bucket_labels(CONCURRENCY_BOUNDS)

_PLAIN: Final[dict[str, Dimension]] = {
    one.name: one
    for one in (
        _text("model", "Model"),
        _tokens("input_tokens", "InputTokens", INPUT_BOUNDS),
        _tokens("output_tokens", "OutputTokens", OUTPUT_BOUNDS),
        _flag("cached", "isNull(CachedTokens)", "CachedTokens > 0"),
        _bucket("concurrency", "InFlight + 1", CONCURRENCY_BOUNDS, ("1", *_CONCURRENCY_LABELS[1:])),
        _text("route", "Route"),
        _text("status", "Status"),
        _flag("warm", "isNull(Warm)", "Warm"),
        _flag("stream", "false", "Stream"),
        _text("finish_reason", "FinishReason"),
        _text("error_type", "ErrorType"),
    )
}
