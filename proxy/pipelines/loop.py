"""One request to a pipeline: retrieve, assemble, ask the model, run tools, until it answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.middleware import App, Receive, Scope
from proxy.pipelines.documents import Document, Retrieves, system_text
from proxy.pipelines.outward import Outward
from proxy.pipelines.problems import PipelineProblem, StageProblem
from proxy.pipelines.rounds import Round, RoundResult
from proxy.pipelines.runs import Runs
from proxy.pipelines.settings import PipelineSettings
from proxy.pipelines.text import strict
from proxy.pipelines.tools.kit import ReadyTool, ToolCall, run_call
from proxy.request.live import LiveRequest

LONGEST_ID = 128


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline that is ready to work."""

    name: str
    settings: PipelineSettings
    retrievers: Sequence[Retrieves]
    tools: Mapping[str, ReadyTool]


class Loop:
    """Made for one request, ``run`` once."""

    def __init__(
        self,
        pipeline: Pipeline,
        app: App,
        scope: Scope,
        receive: Receive,
        out: Outward,
        live: LiveRequest,
        runs: Runs,
    ) -> None:
        self._pipeline = pipeline
        self._settings = pipeline.settings
        self._app, self._scope, self._receive = app, scope, receive
        self._out, self._live, self._runs = out, live, runs
        self._usage: dict[str, Any] = {}
        self._text = ""
        self._stream = False

    async def run(self, asked: dict[str, Any]) -> None:
        """Answer the request whose body is ``asked``.

        Raises:
            PipelineProblem: it fails; the answer may have begun.
        """
        messages = _checked(asked)
        self._stream = asked.get("stream") is True
        their_tools = _tools_of(asked)
        documents = await self._retrieve(_query(messages))
        system = system_text(self._settings.system_prompt, documents)
        messages = _led(system, messages)
        own = [t for t in self._pipeline.tools.values() if t.name not in their_tools]
        tools = [*(asked.get("tools") or []), *(t.told() for t in own)]
        body = {**asked, "model": self._settings.model}
        if tools:
            body["tools"] = tools
        for number in range(1, self._settings.max_rounds + 1):
            result = await self._round({**body, "messages": messages}, their_tools, number)
            if result is None:
                return
            self._add_usage(result)
            if result.theirs or not result.calls:
                await self._end(asked, result)
                return
            if number < self._settings.max_rounds:
                messages = [*messages, *await self._tools(result, number)]
                body.pop("tool_choice", None)  # it forced the first call, not one after another
        raise PipelineProblem(
            502, "rounds_limit",
            f"the model still asked for tools after {self._settings.max_rounds} rounds (max_rounds)",
        )  # fmt: skip

    async def _retrieve(self, query: str) -> list[Document]:
        """All retrievers at once; their documents in the order of the settings."""
        found = await _all([self._ask(one, query) for one in self._pipeline.retrievers])
        return [document for part in found for document in part]

    async def _ask(self, one: Retrieves, query: str) -> list[Document]:
        try:
            return await self._runs.retrieval(
                one.name, one.top_k, one.timeout_s, lambda trace: one.find(query, trace)
            )
        except StageProblem as problem:
            if one.skips:
                self._out.note_skipped(one.name)
                return []
            raise PipelineProblem(
                502, "retrieval_failed", f"retrieval {one.name}: {problem.text}"
            ) from None

    async def _round(
        self, body: dict[str, Any], their_tools: set[str], number: int
    ) -> RoundResult | None:
        one = Round(
            self._out, self._live, their_tools.__contains__, self._settings.max_answer_bytes
        )
        try:
            return await one.run(self._app, self._scope, self._receive, body, number)
        finally:
            self._live.model = self._pipeline.name

    async def _tools(self, result: RoundResult, number: int) -> list[dict[str, Any]]:
        """Run the round's calls at once; the messages that tell the model of them."""
        calls = _with_ids(result.calls, number)
        if len(calls) > self._settings.max_parallel_tools:
            raise PipelineProblem(
                502, "too_many_calls",
                f"the model asked for {len(calls)} tools at once, more than "
                f"{self._settings.max_parallel_tools} (max_parallel_tools)",
            )  # fmt: skip
        results = await _all([self._tool(call) for call in calls])
        asked = [
            {"id": c.id, "type": "function",
             "function": {"name": c.name, "arguments": _sound(c.arguments)}}
            for c in calls
        ]  # fmt: skip
        said = {"role": "assistant", "content": result.text or None, "tool_calls": asked}
        self._text += result.text
        return [
            said,
            *(
                {"role": "tool", "tool_call_id": c.id, "content": text}
                for c, text in zip(calls, results, strict=True)
            ),
        ]

    async def _tool(self, call: ToolCall) -> str:
        status = "ok"
        try:
            return await run_call(call, self._pipeline.tools, self._runs)
        except StageProblem as problem:
            status = problem.kind
            if self._settings.on_tool_error == "fail":
                text = f"tool {call.name[:64]}: {problem.text}"
                raise PipelineProblem(502, "tool_failed", text) from None
            return json.dumps({"error": {"type": problem.kind, "message": problem.text}})
        finally:
            if self._settings.show_tools and self._stream:
                await self._show(call, status)

    async def _show(self, call: ToolCall, status: str) -> None:
        choice = {"index": 0, "delta": {}, "finish_reason": None}
        told = {"tool": call.name, "id": call.id, "status": status}
        await self._out.chunk(
            {"object": "chat.completion.chunk", "choices": [choice], "stagelens": told}
        )

    def _add_usage(self, result: RoundResult) -> None:
        for name, count in (result.usage or {}).items():
            if isinstance(count, int):
                self._usage[name] = self._usage.get(name, 0) + count
            elif isinstance(count, dict):
                inner = self._usage.setdefault(name, {})
                for key, value in count.items():
                    if isinstance(value, int):
                        inner[key] = inner.get(key, 0) + value

    async def _end(self, asked: dict[str, Any], result: RoundResult) -> None:
        if result.whole is not None:
            body = {**result.whole, "model": self._pipeline.name}
            message = body["choices"][0]["message"]
            if self._text and isinstance(message.get("content"), str | None):
                message["content"] = self._text + (message.get("content") or "")
            if self._usage:
                body["usage"] = self._usage
            await self._out.whole(200, body)
            return
        if result.finish is not None:
            await self._out.chunk(result.finish)
        options = asked.get("stream_options")
        if self._usage and isinstance(options, dict) and options.get("include_usage"):
            await self._out.chunk(
                {"object": "chat.completion.chunk", "choices": [], "usage": self._usage}
            )
        await self._out.done()


async def _all(work: Sequence[Any]) -> list[Any]:
    """All results; on the first failure or a cancel, the others are cancelled and awaited."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in work]
    except BaseExceptionGroup as problems:
        for problem in problems.exceptions:
            if isinstance(problem, PipelineProblem):
                raise problem from None
        raise problems.exceptions[0] from None
    return [task.result() for task in tasks]


def _checked(asked: dict[str, Any]) -> list[Any]:
    messages = asked.get("messages")
    if not isinstance(messages, list) or not messages:
        raise PipelineProblem(400, "invalid_request_error", "messages must be a list with messages")
    if asked.get("n") not in (None, 1):
        raise PipelineProblem(400, "invalid_request_error", "a pipeline gives one choice: leave out n")
    return messages


def _tools_of(asked: dict[str, Any]) -> set[str]:
    """The names of the client's own tools; one with a pipeline's name is the client's."""
    tools = asked.get("tools") or []
    if not isinstance(tools, list):
        raise PipelineProblem(400, "invalid_request_error", "tools must be a list")
    functions = [t.get("function") for t in tools if isinstance(t, dict)]
    return {str(f.get("name")) for f in functions if isinstance(f, dict)}


def _led(system: str, messages: list[Any]) -> list[Any]:
    """``messages`` under the pipeline's own words. They and a system message of the client become
    one: many chat templates take no second.
    """
    if not system:
        return messages
    first = messages[0]
    theirs = first.get("content") if isinstance(first, dict) and first.get("role") == "system" else None
    if isinstance(theirs, str):
        return [{**first, "content": f"{system}\n\n{theirs}"}, *messages[1:]]
    return [{"role": "system", "content": system}, *messages]


def _with_ids(calls: Sequence[ToolCall], number: int) -> list[ToolCall]:
    """The calls, each with an id of its own: one missing, long or given twice would mix results up."""
    seen: set[str] = set()
    made = []
    for i, call in enumerate(calls):
        good = 0 < len(call.id) <= LONGEST_ID and call.id not in seen
        given = call if good else ToolCall(f"call_{number}_{i}", call.name, call.arguments)
        seen.add(given.id)
        made.append(given)
    return made


def _query(messages: list[Any]) -> str:
    """The text of the last message of the user."""
    for message in reversed(messages):
        if isinstance(message, dict) and message.get("role") == "user":
            content = message.get("content")
            if isinstance(content, str):
                return content
            if isinstance(content, list):
                texts = [p.get("text") for p in content if isinstance(p, dict)]
                return " ".join(t for t in texts if isinstance(t, str))
    return ""


def _sound(arguments: str) -> str:
    """Arguments that chat templates can parse again; bad ones go back as an empty object."""
    try:
        good = isinstance(strict(arguments), dict)
    except (ValueError, RecursionError):
        good = False
    return arguments if good else "{}"
