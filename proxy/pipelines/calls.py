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
    """A tool call while its pieces come; ``outward`` is its index for the client, where it is the
    client's. Until its name is whole nobody can tell, and its pieces are ``waiting``.
    """

    id: str
    name: str = ""
    outward: int | None = None
    pieces: list[str] = field(default_factory=list)
    waiting: list[dict[str, Any]] = field(default_factory=list)


class StreamedCalls:
    """Puts the calls of one streamed answer together."""

    def __init__(self, is_theirs: Callable[[str], bool]) -> None:
        """``is_theirs`` tells by name whether a tool is the client's own."""
        self._is_theirs = is_theirs
        self._asked: list[_Asked] = []
        self._open: dict[int, _Asked] = {}
        self._theirs = 0
        self._legacy_theirs = False
        self.told = False
        """Whether there was anything, if it is a call or not."""

    @property
    def theirs(self) -> bool:
        """Whether one of them is the client's."""
        return self._theirs > 0 or self._legacy_theirs

    def take_legacy(self, message: dict[str, Any]) -> None:
        """Leave a ``function_call``, the form before ``tool_calls``, in a delta or a whole message
        only where it is of a function of the client's.
        """
        if "function_call" not in message:
            return
        given = message["function_call"]
        name = given.get("name") if isinstance(given, dict) else None
        if isinstance(name, str) and name:
            self._legacy_theirs = self._is_theirs(name)
        if not self._legacy_theirs:
            del message["function_call"]
            self.told = self.told or bool(given)

    def own(self) -> list[ToolCall]:
        """Those that are not the client's; one without a name is one of them, unless it is empty."""
        own = [a for a in self._asked if a.outward is None]
        told = [ToolCall(a.id, a.name, "".join(a.pieces)) for a in own]
        return [call for call in told if not _is_empty(call)]

    def take(self, given: list[Any]) -> list[dict[str, Any]]:
        """Keep the pieces; those of the client's own tools come back, to be passed on untouched."""
        passed = []
        for number, one in enumerate(given):
            self.told = True
            if not isinstance(one, dict):
                continue
            index = one.get("index")
            inner = inner_of(one)
            asked = self._at(index if isinstance(index, int) else number, one, inner)
            asked.pieces.append(_arguments(inner))
            asked.waiting.append(one)
            if asked.outward is not None:
                passed += [{**piece, "index": asked.outward} for piece in asked.waiting]
            elif not asked.name or not any(asked.pieces):
                continue  # whose it is may be told yet
            asked.waiting.clear()
        return passed

    def _at(self, index: int, one: dict[str, Any], inner: dict[str, Any]) -> _Asked:
        """The call that a piece belongs to. Some servers give all calls one index, or none: a
        piece with a name and another id begins a call.
        """
        found = self._open.get(index)
        name, call_id = str(inner.get("name") or ""), str(one.get("id") or "")
        if found is not None and not (name and call_id and found.id and call_id != found.id):
            found.id = found.id or call_id
            self._name(found, name)
            return found
        if len(self._asked) >= MOST_CALLS:
            raise too_many()
        made = self._open[index] = _Asked(call_id)
        self._name(made, name)
        self._asked.append(made)
        return made

    def _name(self, asked: _Asked, name: str) -> None:
        """A name may come in pieces before the arguments, or whole with each piece of them; it says
        whose the call is.
        """
        if not name or (asked.name and (name == asked.name or any(asked.pieces))):
            return
        asked.name += name
        if asked.outward is None and self._is_theirs(asked.name):
            asked.outward, self._theirs = self._theirs, self._theirs + 1


def whole_calls(
    message: dict[str, Any], is_theirs: Callable[[str], bool]
) -> tuple[list[ToolCall], list[Any]]:
    """The pipeline's calls of a whole answer, and the client's as they came. What names no tool is
    the pipeline's; what is no call in any form, or says nothing, is left out.
    """
    told = message.get("tool_calls")
    asked = [call for call in told if isinstance(call, dict)] if isinstance(told, list) else []
    if len(asked) > MOST_CALLS:
        raise too_many()
    own, theirs = [], []
    for call in asked:
        inner = inner_of(call)
        name = str(inner.get("name") or "")
        if name and is_theirs(name):
            theirs.append(call)
        elif not _is_empty(made := ToolCall(str(call.get("id") or ""), name, _arguments(inner))):
            own.append(made)
    return own, theirs


def _is_empty(call: ToolCall) -> bool:
    return not (call.id or call.name or call.arguments)


def too_many() -> PipelineProblem:
    """The model asks for more than is read."""
    return PipelineProblem(502, "too_many_calls", f"the model asked for more than {MOST_CALLS} tools")


def inner_of(told: object) -> dict[str, Any]:
    """What lies under a call's or a tool's type: ``function``, ``custom`` or one yet unknown."""
    if not isinstance(told, dict):
        return {}
    for kind in ("function", "custom", str(told.get("type"))):
        if isinstance(inner := told.get(kind), dict):
            return inner
    return {}


def _arguments(inner: dict[str, Any]) -> str:
    """Their text; some servers give the object itself. What is no object stays none."""
    given = inner.get("arguments", inner.get("input"))
    if given is None or isinstance(given, str):
        return given or ""
    return json.dumps(given)
