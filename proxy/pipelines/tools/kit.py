"""The tools of a pipeline: what the model is told of them, and how one call runs."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import jsonschema

from proxy.errors import ProxyError
from proxy.pipelines.problems import StageProblem
from proxy.pipelines.runs import Runs, Trace
from proxy.pipelines.text import clean, sendable
from proxy.pipelines.tools.check import Check, TooManySteps

Call = Callable[[dict[str, Any], Trace], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class ReadyTool:
    """One tool that may run; ``schema`` is the JSON Schema of its arguments."""

    name: str
    description: str
    schema: Mapping[str, Any]
    timeout_s: float
    max_result_bytes: int
    call: Call
    kind: str = "function"
    check: Check | None = None
    """Of ``schema``, made once: ``check_schema`` gives it."""
    left_out: frozenset[str] = frozenset()
    """Arguments that ``null`` leaves out."""

    def told(self) -> dict[str, Any]:
        """As chat completions take it."""
        about = {"name": self.name, "description": self.description, "parameters": self.schema}
        return {"type": "function", "function": about}


class ToolSource(Protocol):
    """Gives tools between ``start`` and ``close``."""

    async def start(self) -> list[ReadyTool]:
        """Raises :class:`ProxyError` where the tools are not as the settings say."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call as the model asked for it; ``arguments`` is its text, of any quality."""

    id: str
    name: str
    arguments: str


def check_schema(tool: ReadyTool) -> ReadyTool:
    """The tool with a check of its arguments; ProxyError where its schema is none."""
    try:
        plain = json.loads(json.dumps(tool.schema, allow_nan=False))  # as it goes to the model
        return replace(tool, schema=plain, check=Check(plain))
    except jsonschema.SchemaError as problem:
        reason = problem.message[:200]
    except Exception as problem:  # noqa: BLE001  a stranger's schema fails in any way
        reason = type(problem).__name__
    raise ProxyError(f"tool {tool.name} has no valid JSON Schema: {reason}")


async def run_call(call: ToolCall, tools: Mapping[str, ReadyTool], runs: Runs) -> str:
    """The result's text.

    Raises:
        StageProblem: the tool is unknown, its arguments are bad, it failed, was too slow
            or gave too much. Each leaves its span.
    """
    tool = tools.get(call.name)
    if tool is None:  # what the model invents names no span: a name is of few values
        async def nothing(_: Trace) -> str:
            raise StageProblem("unknown_tool", "there is no such tool")

        return await runs.tool("_unknown", "function", call.id, 1.0, nothing)

    most = tool.max_result_bytes

    async def work(trace: Trace) -> str:
        result = await tool.call(_arguments(call, tool), trace)
        # by characters first: what is far too long is not looked through
        if len(result) > most or len((result := clean(result)).encode()) > most:
            raise StageProblem("result_too_large", f"the result is longer than {most} bytes")
        return result

    return await runs.tool(tool.name, tool.kind, call.id, tool.timeout_s, work)


def _arguments(call: ToolCall, tool: ReadyTool) -> dict[str, Any]:
    try:
        given = sendable(call.arguments or "{}")
    except (ValueError, RecursionError):
        raise StageProblem("bad_arguments", "the arguments are no valid JSON") from None
    if not isinstance(given, dict):
        raise StageProblem("bad_arguments", "the arguments must be a JSON object")
    given = {k: v for k, v in given.items() if v is not None or k not in tool.left_out}
    try:
        (tool.check or Check(tool.schema)).validate(given)
    except jsonschema.ValidationError as problem:
        where = problem.json_path
        raise StageProblem("bad_arguments", f"argument {where}: {problem.message[:300]}") from None
    except TooManySteps:
        raise StageProblem(
            "bad_arguments", "the arguments are too many to be checked against the tool's schema"
        ) from None
    except Exception:  # noqa: BLE001  a reference that does not resolve
        raise StageProblem("bad_arguments", "the tool's schema cannot be applied") from None
    return given
