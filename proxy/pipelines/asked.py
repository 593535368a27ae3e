"""What a client asks of a pipeline: its messages, its own tools, its question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proxy.pipelines.calls import inner_of
from proxy.pipelines.problems import PipelineProblem
from proxy.pipelines.text import clean

_COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")


def checked(asked: dict[str, Any]) -> list[Any]:
    """The messages.

    Raises:
        PipelineProblem: there are none, or more than one choice is asked for.
    """
    messages = asked.get("messages")
    if not isinstance(messages, list) or not messages:
        raise PipelineProblem(400, "invalid_request_error", "messages must be a list with messages")
    if asked.get("n") is not None and not (asked["n"] == 1 and _is_number(asked["n"])):
        raise PipelineProblem(400, "invalid_request_error", "a pipeline gives one choice: leave out n")
    return messages


def tools_of(asked: dict[str, Any]) -> set[str]:
    """The names of the client's own tools, of any type; one with a pipeline's name is the client's."""
    tools = asked.get("tools") or []
    if not isinstance(tools, list):
        raise PipelineProblem(400, "invalid_request_error", "tools must be a list")
    named = [inner_of(tool).get("name") for tool in tools]
    legacy = asked.get("functions")  # as tools were called before
    named += [one.get("name") for one in legacy if isinstance(one, dict)] if isinstance(legacy, list) else []
    return {name for name in named if isinstance(name, str)}


def led(system: str, messages: list[Any]) -> list[Any]:
    """``messages`` under the pipeline's own words. They and a system message of the client become
    one, be that a text or a list of parts: many chat templates take no second.
    """
    if not system:
        return messages
    first = messages[0]
    theirs = first.get("content") if isinstance(first, dict) and first.get("role") == "system" else None
    if isinstance(theirs, str):
        return [{**first, "content": f"{system}\n\n{theirs}"}, *messages[1:]]
    if isinstance(theirs, list):
        return [{**first, "content": [{"type": "text", "text": system}, *theirs]}, *messages[1:]]
    return [{"role": "system", "content": system}, *messages]


def query(messages: list[Any]) -> str:
    """The text of the last message of the user."""
    for message in reversed(messages):
        if isinstance(message, dict) and message.get("role") == "user":
            content = message.get("content")
            if isinstance(content, str):
                return clean(content)
            if isinstance(content, list):
                texts = [p.get("text") for p in content if isinstance(p, dict)]
                return clean(" ".join(t for t in texts if isinstance(t, str)))
    return ""


def sum_usage(told: Sequence[dict[str, Any] | None]) -> dict[str, Any]:
    """What several answers cost together; nothing where one did not tell it: a part of the counts
    would look like the whole. Of the main counts each stands where all told it.
    """
    total: dict[str, Any] = {}
    known = [one for one in told if one]
    if len(known) < len(told):
        return total
    for one in known:
        add_usage(total, one)
    partly = (n for n in _COUNTS if not all(_is_number(one.get(n)) for one in known))
    for name in partly:
        total.pop(name, None)
    return total


def add_usage(total: dict[str, Any], more: dict[str, Any]) -> None:
    """Add the counts of ``more`` to ``total``, member by member; what is no count, or of another
    kind than before, adds nothing.
    """
    for name, count in more.items():
        before = total.get(name)
        if isinstance(count, dict):
            if before is None:
                before = total[name] = {}
            if isinstance(before, dict):
                add_usage(before, count)
        elif _is_number(count) and (before is None or _is_number(before)):
            total[name] = (before or 0) + count


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
