"""Tools of real MCP servers and of an OpenAPI document, and what they are kept from."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path

import jsonschema
import pytest

from proxy.errors import ProxyError
from proxy.pipelines.problems import StageProblem
from proxy.pipelines.runs import Trace
from proxy.pipelines.settings import OpenApiTools
from proxy.pipelines.tools.kit import ReadyTool
from proxy.pipelines.tools.openapi import OpenApiSource, address, operations, read_document
from tests.fake_llm.server import Reply, fake_llm
from tests.support.mcp_tools import tools_of

TRACE = Trace(0xABC, 0xDEF, 1)
COMMAND = (sys.executable, "-m", "tests.support.mcp_server")
ALL = ("echo", "trace", "wait", "pid", "secret", "much", "die", "fail")


@asynccontextmanager
async def http_server() -> AsyncIterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        *COMMAND, str(port), stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(20):
            while True:
                with suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    break
                await asyncio.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def mcp(**settings: object) -> AbstractAsyncContextManager[dict[str, ReadyTool]]:
    return tools_of(**{"tools": ALL, **settings})


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_mcp_tools_run_over_both_transports_and_get_the_trace(transport: str):
    """Schemas come from the server, results go back, and ``_meta`` holds our ``traceparent``."""
    async with http_server() as url:
        way = {"command": COMMAND} if transport == "stdio" else {"url": url}
        async with mcp(**way) as tools:
            assert tools["echo"].description == "Say it again."
            assert tools["echo"].schema["required"] == ["text"]
            assert await tools["echo"].call({"text": "hei"}, TRACE) == "hei"
            told = json.loads(await tools["trace"].call({}, TRACE))
            assert told["traceparent"] == TRACE.traceparent
            with pytest.raises(StageProblem) as failed:
                await tools["fail"].call({}, TRACE)
            assert failed.value.kind == "tool_error"
            slow, fast = tools["wait"].call({"seconds": 30}, TRACE), tools["echo"].call(
                {"text": "meanwhile"}, TRACE
            )
            waiting = asyncio.create_task(slow)
            assert await fast == "meanwhile"
            waiting.cancel()
            await asyncio.wait({waiting})
            assert waiting.cancelled()
            assert await tools["echo"].call({"text": "still"}, TRACE) == "still"


async def test_an_mcp_server_that_dies_in_a_call_is_told_and_started_again():
    """The call fails at once with ``server_gone``; the next one has a new process."""
    async with mcp(command=COMMAND) as tools:
        first = await tools["pid"].call({}, TRACE)
        with pytest.raises(StageProblem) as gone:
            await asyncio.wait_for(tools["die"].call({}, TRACE), 10)
        assert gone.value.kind == "server_gone"
        second = await tools["pid"].call({}, TRACE)
        assert second != first
    with pytest.raises(ProcessLookupError):
        os.kill(int(second), 0)


async def test_an_mcp_server_gets_only_the_secrets_that_the_settings_name(
    monkeypatch: pytest.MonkeyPatch,
):
    """A named variable goes to it under its name there, others of ours do not."""
    monkeypatch.setenv("OUR_TOKEN", "t1")
    monkeypatch.setenv("OTHER", "o1")
    async with mcp(command=COMMAND, env={"TOKEN": "OUR_TOKEN"}) as tools:
        assert await tools["secret"].call({}, TRACE) == "t1/none"


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"command": COMMAND, "tools": ("rm",)}, "has no tool rm"),
        ({"command": ("no-such-program",)}, "cannot be reached"),
        ({"command": (sys.executable, "-m", "no_such_module")}, "it said: .*No module named no_such"),
        ({"command": ("cat",)}, r"cat begins no session as the protocol has it \(its answer: Method"),
        ({"url": "http://127.0.0.1:9/mcp"}, "cannot be reached"),
        ({"command": COMMAND, "env": {"A": "NOT_SET_1"}}, "NOT_SET_1 is not set"),
    ],
)
async def test_what_an_mcp_server_lacks_is_said_at_the_start(settings: dict, text: str):
    """One sentence names the server, the tool or the variable."""
    with pytest.raises(ProxyError, match=text):
        async with mcp(**settings):
            pass


DOCUMENT = {
    "openapi": "3.1.0",
    "components": {
        "schemas": {
            "Item": {"type": "object", "properties": {"name": {"type": "string"},
                     "inner": {"$ref": "#/components/schemas/Item"}}},
        },
    },
    "paths": {
        "/items/{id}": {
            "parameters": [
                {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}},
            ],
            "get": {"operationId": "get_item", "summary": "One item",
                    "parameters": [{"name": "q", "in": "query", "schema": {"type": "integer"}}]},
            "put": {"operationId": "put_item", "requestBody": {"required": True, "content": {
                "application/json": {"schema": {"$ref": "#/components/schemas/Item"}}}}},
        },
    },
}  # fmt: skip


@asynccontextmanager
async def openapi(
    folder: Path, base: str, hosts: tuple[str, ...] = ("127.0.0.1",), **more: object
) -> AsyncIterator[dict[str, object]]:
    file = folder / "api.json"
    file.write_text(json.dumps(DOCUMENT))
    given = {"document": str(file), "base_url": base, "operations": ("get_item", "put_item"),
             "allow_hosts": hosts, "private_hosts": hosts, **more}  # fmt: skip
    source = OpenApiSource(OpenApiTools.model_validate(given))
    try:
        yield {tool.name: tool for tool in await source.start()}
    finally:
        await source.close()


def said(text: str, **more: object) -> Reply:
    return Reply([text.encode()], content_type="application/json", framing="length", **more)  # type: ignore[arg-type]


async def test_an_operation_is_called_with_its_arguments_in_their_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Path and query are quoted, the body is JSON, the secret and the trace go as headers."""
    monkeypatch.setenv("API_KEY", "k1")
    async with (
        fake_llm(said('{"ok": 1}')) as api,
        openapi(tmp_path, api.url, headers_env={"x-key": "API_KEY"}) as tools,
    ):
        assert await tools["get_item"].call({"id": "a/../b?c", "q": 3}, TRACE) == '{"ok": 1}'
        await tools["put_item"].call({"id": "7", "body": {"name": "n"}}, TRACE)
    first, second = api.requests
    assert first.target == "/items/a%2F..%2Fb%3Fc?q=3"
    assert first.header("x-key") == "k1"
    assert first.header("traceparent") == TRACE.traceparent
    assert (second.method, json.loads(second.body)) == ("PUT", {"name": "n"})
    inner = tools["put_item"].schema["properties"]["body"]["properties"]["inner"]
    assert inner == {"$ref": "#/$defs/Item"}


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (said("", status=302, headers=[("Location", "http://10.0.0.1/")]), "redirect_refused"),
        (said("x" * 70_000), "result_too_large"),
        (said("{}", status=500), "500"),
    ],
)
async def test_an_http_tools_bad_answers_are_refused(tmp_path: Path, reply: Reply, kind: str):
    """No redirect is followed and no more is read than allowed."""
    async with fake_llm(reply) as api, openapi(tmp_path, api.url) as tools:
        with pytest.raises(StageProblem) as refused:
            await tools["get_item"].call({"id": "1"}, TRACE)
    assert refused.value.kind == kind
    assert len(api.requests) == 1


@pytest.mark.parametrize("base", ["http://127.0.0.1:1", "http://[::1]:1", "http://10.1.2.3"])
async def test_private_addresses_and_unnamed_hosts_are_refused_at_the_start(
    tmp_path: Path, base: str
):
    """Neither may be a tool's server unless the settings name it."""
    host = base.removeprefix("http://").rsplit(":", 1)[0].strip("[]")
    with pytest.raises(ProxyError, match="not public"):
        async with openapi(tmp_path, base, (host,), private_hosts=()):
            pass
    with pytest.raises(ProxyError, match="not in allow_hosts"):
        async with openapi(tmp_path, base, ("api.example.com",)):
            pass


async def test_a_name_that_resolves_to_a_private_address_is_refused(tmp_path: Path):
    """The address that would be connected to decides, not the name."""
    async with (
        fake_llm(said("{}")) as api,
        openapi(tmp_path, f"http://localhost:{api.port}", ("localhost",), private_hosts=()) as tools,
    ):
        with pytest.raises(StageProblem) as refused:
            await tools["get_item"].call({"id": "1"}, TRACE)
    assert refused.value.kind == "host_refused"
    assert api.connections == 0


@pytest.mark.parametrize(
    ("how", "value", "query"),
    [
        ({}, ["a b", 2, True], "list=a%20b&list=2&list=true"),
        ({"explode": False}, ["a", 2], "list=a,2"),
        ({"style": "pipeDelimited"}, ["a", "b"], "list=a%7Cb"),
        ({}, {"x": 1, "y": "z"}, "x=1&y=z"),
        ({"style": "deepObject"}, {"x": 1}, "list%5Bx%5D=1"),
        ({"content": {"application/json": {"schema": {}}}}, ["a"], "list=%5B%22a%22%5D"),
        ({}, "plain", "list=plain"),
    ],
)
def test_lists_and_objects_go_into_a_query_as_the_document_says(
    how: dict, value: object, query: str
):
    """By its style and explode, as OpenAPI has them."""
    parameter = {"name": "list", "in": "query", **({} if "content" in how else {"schema": {}}), **how}
    get = {"operationId": "o", "parameters": [parameter]}
    document = {"openapi": "3.1.0", "paths": {"/a": {"get": get}}}
    [(_, operation)] = operations(document)
    assert address("http://h", operation, {"list": value}) == (f"http://h/a?{query}", None)


def test_a_schema_of_openapi_3_0_means_what_it_meant():
    """Null and open limits, which JSON Schema tells in other words."""
    schema = {"type": "object", "properties": {
        "n": {"type": "integer", "minimum": 1, "exclusiveMinimum": True, "nullable": True},
        "m": {"type": "number", "maximum": 5, "exclusiveMaximum": False},
        "e": {"type": "string", "enum": ["a"], "nullable": True}}}  # fmt: skip
    body = {"content": {"application/json": {"schema": schema}}}
    post = {"operationId": "o", "requestBody": body}
    document = {"openapi": "3.0.3", "paths": {"/a": {"post": post}}}
    [(_, operation)] = operations(document)
    given = operation.schema["properties"]["body"]
    check = jsonschema.Draft202012Validator(given)
    check.check_schema(given)
    assert check.is_valid({"n": None, "m": 5, "e": None})
    assert check.is_valid({"n": 2})
    assert not check.is_valid({"n": 1})


@pytest.mark.parametrize("value", [".", ".."])
def test_a_path_argument_cannot_climb(value: str):
    """Dots alone would be taken out by URL normalising."""
    found = dict(operations(DOCUMENT))
    with pytest.raises(StageProblem):
        address("http://h", found["get_item"], {"id": value})


@pytest.mark.parametrize(
    ("text", "says"),
    [("{a: " * 5000, "RecursionError"), ("a: [", "cannot be read"), ("[1]", "no OpenAPI 3 document")],
)
def test_a_document_that_cannot_be_used_is_one_sentence(tmp_path: Path, text: str, says: str):
    """It names the file; endless nesting is no crash."""
    file = tmp_path / "api.yaml"
    file.write_text(text)
    with pytest.raises(ProxyError, match=says) as told:
        read_document(file)
    assert str(file) in str(told.value)
