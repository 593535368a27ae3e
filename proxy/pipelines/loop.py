"""One request to a pipeline: retrieve, assemble, ask the model, run tools, until it answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from proxy.middleware import App, Receive, Scope
from proxy.pipelines.asked import checked, led, query, sum_usage, tools_of
from proxy.pipelines.documents import Document, Retrieves, system_text
from proxy.pipelines.outward import Outward
from proxy.pipelines.problems import PipelineProblem, StageProblem
from proxy.pipelines.rounds import BETWEEN, Round, RoundResult, as_chunk
from proxy.pipelines.runs import Runs
from proxy.pipelines.settings import PipelineSettings
from proxy.pipelines.settings_values import called
from proxy.pipelines.text import clean, strict
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
        self._usages: list[dict[str, Any] | None] = []
        self._text = ""
        self._said = False
        self._stream = False

    async def run(self, asked: dict[str, Any]) -> None:
        """Answer the request whose body is ``asked``.

        Raises:
            PipelineProblem: it fails; the answer may have begun.
        """
        messages = checked(asked)
        self._stream = asked.get("stream") is True
        their_tools = tools_of(asked)
        documents = await self._retrieve(query(messages))
        system = system_text(self._settings.system_prompt, documents)
        messages = led(system, messages)
        own = [t for t in self._pipeline.tools.values() if t.name not in their_tools]
        tools = [*(asked.get("tools") or []), *(t.told() for t in own)]
        body = {**asked, "model": self._settings.model}
        if tools:
            body["tools"] = tools
        for number in range(1, self._settings.max_rounds + 1):
            result = await self._round({**body, "messages": messages}, their_tools, number)
            if result is None:
                return
            self._usages.append(result.usage)
            # a call that was cut short lacks arguments, and "none" forbids what the model does
            if result.is_last or asked.get("tool_choice") == "none":
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
            self._out, self._live, their_tools.__contains__, self._settings.max_answer_bytes,
            apart=self._said,
        )  # fmt: skip
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
             "function": {"name": called(c.name) or "_unknown", "arguments": _sound(c.arguments)}}
            for c in calls
        ]  # fmt: skip
        said = {"role": "assistant", "content": result.text or None, **result.reasoning,
                "tool_calls": asked}  # fmt: skip
        if result.whole is not None and result.text:  # not streamed: the client has none of it yet
            await self._tell(self._between(result.text) + result.text)
        self._said = self._said or bool(result.text.strip())
        return [
            said,
            *(
                {"role": "tool", "tool_call_id": c.id, "content": text}
                for c, text in zip(calls, results, strict=True)
            ),
        ]

    async def _tell(self, text: str) -> None:
        """Text of a round that was no stream, for a client that wants one or gets it at the end."""
        if not self._stream:
            self._text += text
            return
        choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
        await self._out.chunk({"object": "chat.completion.chunk", "choices": [choice]})

    def _between(self, text: str) -> str:
        """What goes before ``text``, where an earlier round said something."""
        return BETWEEN if text and self._said else ""

    async def _tool(self, call: ToolCall) -> str:
        try:
            result = await run_call(call, self._pipeline.tools, self._runs)
        except StageProblem as problem:
            await self._show(call, problem.kind)
            if self._settings.on_tool_error == "fail":
                text = f"tool {call.name[:64]}: {problem.text}"
                raise PipelineProblem(502, "tool_failed", text) from None
            return json.dumps({"error": {"type": problem.kind, "message": problem.text}})
        await self._show(call, "ok")
        return result

    async def _show(self, call: ToolCall, status: str) -> None:
        if not (self._settings.show_tools and self._stream):
            return
        choice = {"index": 0, "delta": {}, "finish_reason": None}
        told = {"tool": call.name, "id": call.id, "status": status}
        await self._out.chunk(
            {"object": "chat.completion.chunk", "choices": [choice], "stagelens": told}
        )

    async def _end(self, asked: dict[str, Any], result: RoundResult) -> None:
        if result.whole is not None and not self._out.begun:
            body = {**result.whole, "model": self._pipeline.name}
            message = body["choices"][0]["message"]
            if self._text and isinstance(message.get("content"), str | None):
                message["content"] = self._text + self._between(result.text) + result.text
            if usage := sum_usage(self._usages):
                body["usage"] = usage
            elif len(self._usages) > 1:
                body.pop("usage", None)  # it is of the last round alone
            await self._out.whole(200, body)
            return
        if result.whole is not None:
            await self._out.chunk(as_chunk(result.whole, self._text + self._between(result.text)))
        if result.finish is not None:
            await self._out.chunk(result.finish)
        options = asked.get("stream_options")
        usage = sum_usage(self._usages)
        if usage and isinstance(options, dict) and options.get("include_usage"):
            await self._out.chunk(
                {"object": "chat.completion.chunk", "choices": [], "usage": usage}
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


def _with_ids(calls: Sequence[ToolCall], number: int) -> list[ToolCall]:
    """The calls, each with an id of its own: one missing, long or given twice would mix results up."""
    seen: set[str] = set()
    made = []
    for i, call in enumerate(calls):
        wanted = clean(call.id)
        good = 0 < len(wanted) <= LONGEST_ID and wanted not in seen
        given = replace(call, id=wanted if good else f"call_{number}_{i}")
        seen.add(given.id)
        made.append(given)
    return made


def _sound(arguments: str) -> str:
    """Arguments that chat templates can parse again; bad ones go back as an empty object."""
    try:
        good = isinstance(strict(arguments), dict)
    except (ValueError, RecursionError):
        good = False
    return arguments if good else "{}"
