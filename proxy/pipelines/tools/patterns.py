"""Regular expressions of JSON Schema (ECMA 262), matched in linear time.

Python's own would hold up the event loop for ever at one as short as ``^(a+)+$``, and reads some
in another way. Those that the engine does not know (looking around, references back), and those
that would take long on a text, are not applied: the tool checks for itself.
"""

from __future__ import annotations

import logging
import re
from functools import lru_cache
from typing import Any

from pydantic_core import SchemaError, SchemaValidator, core_schema

log = logging.getLogger("stagelens.proxy")
LONGEST = 2000
"""Characters of a pattern."""
MOST_STATES = 100_000
MOST_WORK = 10_000_000
"""States times characters that are matched: some 0.06 s."""
_TOKEN = re.compile(
    r"(?P<escape>\\(?:c[A-Za-z]|[pPu]\{[\w=]+\}|.))|(?P<set>\[(?:\\.|[^\]\\])*\])"
    r"|(?P<open>\((?:\?(?:[:=!]|<[=!]|<\w+>))?)|(?P<close>\))"
    r"|(?P<count>\{(?P<least>\d+)(?:,(?P<most>\d*))?\})|(?P<other>.)",
    re.DOTALL,
)
_IN_SET = re.compile(
    r"(?<=\\[dDwWsS])-|-(?=\\[dDwWsS])|\\(?:c[A-Za-z]|.)|[\[&~]", re.DOTALL
)
_ESCAPES = {
    r"\d": "[0-9]", r"\D": "[^0-9]", r"\w": "[A-Za-z0-9_]", r"\W": "[^A-Za-z0-9_]", r"\0": r"\x00",
}  # fmt: skip
"""ECMA's are of ASCII alone."""


class Matcher:
    """One pattern."""

    def __init__(self, engine: SchemaValidator | None, states: int) -> None:
        """``engine`` is None where the pattern is not applied."""
        self._engine = engine
        self._most = MOST_WORK // max(states, 1)

    def search(self, text: str) -> bool | None:
        """Whether the pattern is found in ``text``; None where it is not applied."""
        if self._engine is None or len(text) > self._most:
            return None
        return self._engine.isinstance_python(text)


@lru_cache(maxsize=1024)
def matcher(pattern: str) -> Matcher:
    """What finds ``pattern``; said in the log where it is not applied."""
    if len(pattern) <= LONGEST:
        told, states = translated(pattern)
        given: Any = core_schema.str_schema(pattern=told, regex_engine="rust-regex")
        try:
            if states <= MOST_STATES:
                return Matcher(SchemaValidator(given), states)
        except SchemaError:
            pass
    log.warning("a tool's schema has a pattern that is not applied: %.100r", pattern)
    return Matcher(None, 0)


def translated(pattern: str) -> tuple[str, int]:
    """``pattern`` in the words of Rust's engine, and about how many states it has there."""
    made: list[str] = []
    outside: list[int] = []
    states = last = 0
    for token in _TOKEN.finditer(pattern):
        made.append(_told(token))
        if token["open"]:
            outside.append(states)
            states = last = 0
        elif token["close"]:
            last = states + 1
            states = (outside.pop() if outside else 0) + last
        elif token["count"]:
            last *= int(token["most"] or token["least"])
            states += last
        else:
            last = 1
            states += 1
    return "".join(made), states


def _told(token: re.Match[str]) -> str:
    text = token[0]
    if token["escape"]:
        return _escape(text)
    if token["set"]:
        return r"[\s\S]" if text == "[^]" else "[" + _IN_SET.sub(_in_set, text[1:-1]) + "]"
    return "\\" + text if text in ("{", "}") else text


def _in_set(token: re.Match[str]) -> str:
    text = token[0]
    if text == r"\b":
        return r"\x08"
    return _escape(text) if text.startswith("\\") else "\\" + text


def _escape(text: str) -> str:
    if text.startswith(r"\c"):
        return f"\\x{ord(text[2]) % 32:02x}" if len(text) == 3 else text
    return _ESCAPES.get(text, text)
