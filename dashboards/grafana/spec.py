"""What a dashboard is made of here, before Grafana's SDK gives it Grafana's form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

Kind = Literal["timeseries", "stat", "table", "barchart", "heatmap", "traces"]
FORMATS: Final[Mapping[Kind, int]] = {
    "timeseries": 0, "heatmap": 0, "stat": 1, "table": 1, "barchart": 1, "traces": 3,
}  # fmt: skip
"""The plugin's numbers: 0 time series, 1 table, 3 traces."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel with its query. ``units`` and ``links`` go by column; others have ``unit``."""

    title: str
    kind: Kind
    about: str
    sql: str
    unit: str = "ms"
    width: int = 12
    height: int = 8
    stacked: bool = False
    points: bool = False
    repeat: str | None = None
    units: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """A choice at the top of a dashboard.

    ``sql`` asks the store for the values (of two columns the first is the value), ``options``
    are fixed ones, and with neither it is a text box. ``many`` lets All be chosen too.
    """

    name: str
    label: str
    about: str
    sql: str = ""
    options: tuple[str, ...] = ()
    start: str = ""
    many: bool = False


@dataclass(frozen=True, slots=True)
class Board:
    """One dashboard; ``uid`` is its address and its file's name."""

    uid: str
    title: str
    about: str
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]
