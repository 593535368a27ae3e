"""What Grafana and its ClickHouse plugin make of a query before the server sees it.

Written after the plugin's ``pkg/macros/macros.go`` and ``applyConditionalAll`` (v4.20) and
Grafana's format registry; only what our dashboards use, so that anything else is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

ALL = "$__all"
Choice = str | list[str]
_VARIABLE = re.compile(r"\$(\w+)|\[\[(\w+?)(?::(\w+))?\]\]|\$\{(\w+)(?:\.([^:^}]+))?(?::([^}]+))?\}")
_ALL_MACRO = "$__conditionalAll("


@dataclass(frozen=True)
class Range:
    """The time picker and the step that Grafana chose for the panel."""

    begin_unix_ms: int
    end_unix_ms: int
    step_s: int = 60


@dataclass(frozen=True)
class View:
    """A dashboard as a user left it; ``options`` are what All stands for."""

    range: Range
    choices: Mapping[str, Choice] = field(default_factory=dict)
    options: Mapping[str, list[str]] = field(default_factory=dict)
    url_style: bool = False
    """Dashboards give ``queryparam`` by the address bar's encoder, repeated panels by another."""

    def expand(self, sql: str, repeated: Mapping[str, str] | None = None) -> str:
        """The SQL that reaches ClickHouse; ``repeated`` are the values of one panel's copy."""
        return self._macros(self._variables(self._conditional_all(sql), repeated or {}))

    def _conditional_all(self, sql: str) -> str:
        at = sql.rfind(_ALL_MACRO)
        while at != -1:
            arguments = _arguments(sql, at + len(_ALL_MACRO) - 1)
            assert len(arguments) == 2, arguments
            phrase = arguments[0]
            named = re.search(r"(?<=\$\{)\w+(?=\})|(?<=\$)\w+", arguments[1].strip())
            assert named, arguments
            value = self.choices[named[0]]
            if (",".join(value) if isinstance(value, list) else value) in ("", ALL):
                phrase = "1=1"
            sql = sql.replace(f"{_ALL_MACRO}{arguments[0]},{arguments[1]})", phrase, 1)
            at = sql.rfind(_ALL_MACRO)
        return sql

    def _variables(self, sql: str, repeated: Mapping[str, str]) -> str:
        def value(match: re.Match[str]) -> str:
            name = match[1] or match[2] or match[4]
            form = match[3] or match[6]
            if name in repeated:
                return _formatted(name, repeated[name], form, url_style=False)
            if name not in self.choices:
                return match[0]
            chosen = self.choices[name]
            if form != "queryparam" and chosen in (ALL, [ALL]):
                chosen = self.options[name]
            return _formatted(name, chosen, form, url_style=self.url_style)

        return _VARIABLE.sub(value, sql)

    def _macros(self, sql: str) -> str:
        span = self.range
        begin, end = (f"toDateTime({ms // 1000})" for ms in (span.begin_unix_ms, span.end_unix_ms))
        begin_ms, end_ms = (
            f"fromUnixTimestamp64Milli({ms})" for ms in (span.begin_unix_ms, span.end_unix_ms)
        )
        plain = {
            "fromTime_ms": begin_ms, "toTime_ms": end_ms, "fromTime": begin, "toTime": end,
            "interval_s": str(span.step_s),
        }  # fmt: skip
        with_column: dict[str, Callable[[str], str]] = {
            "timeFilter_ms": lambda c: f"{c} >= {begin_ms} AND {c} <= {end_ms}",
            "timeFilter": lambda c: f"{c} >= {begin} AND {c} <= {end}",
            "timeInterval": lambda c: f"toStartOfInterval(toDateTime({c}), INTERVAL {span.step_s} second)",
        }
        for name, made in with_column.items():
            sql = re.sub(rf"\$__{name}\(([^()]*)\)", lambda m, made=made: made(m[1]), sql)  # type: ignore[misc]
        for name, text in plain.items():
            sql = re.sub(rf"\$__{name}\b", text, sql)
        left = re.search(r"\$__\w+\(|\$__(?!all)\w+|\$\{", sql)
        assert not left, f"{left[0] if left else ''} is left in {sql}"
        return sql


def _arguments(sql: str, at: int) -> list[str]:
    """The plugin's own way: brackets are counted, quotes are not seen."""
    found: list[str] = []
    depth, last = 0, 1
    rest = sql[at:]
    for match in re.finditer(r"[(),]", rest):
        depth += {"(": 1, ")": -1, ",": 0}[match[0]]
        if match[0] == "," and depth == 1:
            found.append(rest[last : match.start()])
            last = match.end()
        if depth == 0:
            return [*found, rest[last : match.start()]]
    return []


def _formatted(name: str, value: Choice, form: str | None, *, url_style: bool) -> str:
    if form == "percentencode":
        return _strict("{" + ",".join(value) + "}" if isinstance(value, list) else value)
    if form == "queryparam":
        values = value if isinstance(value, list) else [value]
        encode = _address_bar if url_style else _strict
        return "&".join(f"var-{name}={encode(one)}" for one in values)
    if form == "singlequote":
        values = value if isinstance(value, list) else [value]
        return ",".join("'" + one.replace("'", "\\'") + "'" for one in values)
    raise AssertionError(f"format {form} of {name} is not one that our dashboards may use")


def _strict(text: str) -> str:
    """``encodeURIComponent`` and ``!'()*`` too."""
    return quote(text, safe="-_.~")


def _address_bar(text: str) -> str:
    """``urlUtil``: leaves ``@:$,;`` and writes a space as ``+``."""
    return quote(text, safe="-_.~@:$,; ").replace(" ", "+")
