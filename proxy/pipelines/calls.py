"""Tool calls as models tell them: whole, or in the pieces of a stream."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from proxy.pipelines.problems import PipelineProblem
from proxy.pipelines.tools.kit import ToolCall

MOST_CALLS = 128
"""Most tool calls read of one round."""


@dataclass(slots=True)
class _Asked:
    """A tool call while its pieces come; ``outward`` is its index for the client."""

    id: str
    name: str
    outward: int | None
    pieces: list[str] = field(default_factory=list)


class StreamedCalls:
    """Puts the calls of one streamed answer together."""

    def __init__(self, is_theirs: Callable[[str], bool]) -> None:
        """``is_theirs`` tells by name whether a tool is the client's own."""
        self._is_theirs = is_theirs
        self._asked: list[_Asked] = []
        self._open: dict[int, _Asked] = {}
        self._theirs = 0

    @property
    def theirs(self) -> bool:
        """Whether one of them is the client's."""
        return self._theirs > 0

    def own(self) -> list[ToolCall]:
        """Those that are not the client's; one without a name is none."""
        own = [a for a in self._asked if a.name and a.outward is None]
        return [ToolCall(a.id, a.name, "".join(a.pieces)) for a in own]

    def take(self, given: list[Any]) -> list[dict[str, Any]]:
        """Keep the pieces; those of the client's own tools come back, to be passed on untouched."""
        passed = []
        for number, one in enumerate(given):
            if not isinstance(one, dict):
                continue
            index = one.get("index")
            function = one.get("function")
            function = function if isinstance(function, dict) else {}
            asked = self._at(index if isinstance(index, int) else number, one, function)
            asked.pieces.append(_arguments(function))
            if asked.outward is not None:
                passed.append({**one, "index": asked.outward})
        return passed

    def _at(self, index: int, one: dict[str, Any], function: dict[str, Any]) -> _Asked:
        """The call that a piece belongs to. Some servers give all calls one index, or none: a
        piece with a name and another id begins a call.
        """
        found = self._open.get(index)
        name, call_id = str(function.get("name") or ""), str(one.get("id") or "")
        if found is not None and not (name and call_id and found.id and call_id != found.id):
            found.id, found.name = found.id or call_id, found.name or name
            return found
        if len(self._asked) >= MOST_CALLS:
            raise too_many()
        outward = None
        if self._is_theirs(name):
            outward, self._theirs = self._theirs, self._theirs + 1
        made = self._open[index] = _Asked(call_id, name, outward)
        self._asked.append(made)
        return made


def whole_calls(
    message: dict[str, Any], is_theirs: Callable[[str], bool]
) -> tuple[list[ToolCall], list[Any]]:
    """The pipeline's calls of a whole answer, and the client's as they came."""
    asked = message.get("tool_calls")
    named = [c for c in asked if _function(c).get("name")] if isinstance(asked, list) else []
    if len(named) > MOST_CALLS:
        raise too_many()
    own, theirs = [], []
    for call in named:
        function = _function(call)
        if is_theirs(str(function["name"])):
            theirs.append(call)
        else:
            own.append(ToolCall(str(call.get("id") or ""), str(function["name"]), _arguments(function)))
    return own, theirs


def too_many() -> PipelineProblem:
    """The model asks for more than is read."""
    return PipelineProblem(502, "too_many_calls", f"the model asked for more than {MOST_CALLS} tools")


def _function(call: object) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    return function if isinstance(function, dict) else {}


def _arguments(function: dict[str, Any]) -> str:
    """Their text; some servers give the object itself."""
    given = function.get("arguments")
    if isinstance(given, str):
        return given
    return json.dumps(given) if isinstance(given, dict) else ""
