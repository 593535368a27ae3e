"""Arguments of an OpenAPI operation on their way: told apart, whole, and named apart."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from proxy.errors import ProxyError
from proxy.pipelines.problems import StageProblem
from proxy.pipelines.runs import Runs
from proxy.pipelines.settings import OpenApiTools
from proxy.pipelines.tools.kit import ReadyTool, ToolCall, run_call
from proxy.pipelines.tools.openapi import OpenApiSource, address
from proxy.pipelines.tools.openapi_document import operations
from proxy.recorder import Recorder
from proxy.settings import ProxySettings
from tests.fake_llm.server import FakeLlm, Reply, fake_llm
from tests.support.live_server import MemorySink
from tests.support.pipelines import CHAT
from tracer.clock import SystemClock
from tracer.ids import RandomIds

OK = Reply([b"{}"], content_type="application/json", framing="length")


def document(path: str, parameters: list[dict[str, Any]], **more: object) -> dict[str, Any]:
    given = {"operationId": "o", "parameters": parameters, **more}
    return {"openapi": "3.1.0", "paths": {path: {"post": given}}}


def target(where: str, how: dict[str, Any], value: object) -> str:
    path = "/v/{id}/a" if where == "path" else "/a"
    one = {"name": "id", "in": where, "required": True, "schema": {}, **how}
    made = dict(operations(document(path, [one])))["o"]
    return address("http://h", made, {"id": value})[0].removeprefix("http://h")


@asynccontextmanager
async def served(
    folder: Path, told: dict[str, Any], reply: Reply = OK, **more: object
) -> AsyncIterator[tuple[FakeLlm, ReadyTool]]:
    file = folder / "api.json"
    file.write_text(json.dumps(told))
    async with fake_llm(lambda _: reply) as api:
        source = OpenApiSource(OpenApiTools.model_validate({
            "document": str(file), "base_url": api.url, "operations": ("o",),
            "allow_hosts": ("127.0.0.1",), "private_hosts": ("127.0.0.1",), **more}))  # fmt: skip
        try:
            [tool] = await source.start()
            yield api, tool
        finally:
            await source.close()


async def run(tool: ReadyTool, arguments: str) -> str:
    clock, ids = SystemClock(), RandomIds()
    live = Recorder(ProxySettings(), clock, ids, MemorySink(), "test").open("POST", CHAT, [], 0)
    return await run_call(ToolCall("1", "o", arguments), {"o": tool}, Runs(live, clock, ids))


LIST: list[object] = ["a", "b,c", "d e|f"]
MAP = {"x": 1, "y": "b,c"}


@pytest.mark.parametrize(
    ("how", "value", "query"),
    [
        ({"explode": False}, LIST, "id=a,b%2Cc,d%20e%7Cf"),
        ({"explode": False}, [], "id="),
        ({"explode": False}, MAP, "id=x,1,y,b%2Cc"),
        ({"style": "pipeDelimited"}, ["a", "b,c d"], "id=a%7Cb%2Cc%20d"),
        ({"style": "spaceDelimited"}, ["a", "b,c|"], "id=a%20b%2Cc%7C"),
        ({"style": "pipeDelimited"}, MAP, "id=x%7C1%7Cy%7Cb%2Cc"),
        ({"style": "pipeDelimited", "explode": True}, ["a|", "b"], "id=a%7C&id=b"),
        ({"allowReserved": True}, "a/b?c:d", "id=a/b?c:d"),
        ({"allowReserved": True}, "a&x=1#y+", "id=a%26x=1%23y%2B"),
        ({"allowReserved": True, "explode": False}, ["a/b", "c,d"], "id=a/b,c%2Cd"),
    ],
)
def test_a_querys_items_stay_apart_whatever_they_hold(how: dict, value: object, query: str):
    """The separator stands as it is, and an item's own is quoted."""
    assert target("query", how, value) == f"/a?{query}"


@pytest.mark.parametrize(
    ("where", "how", "value"),
    [
        ("query", {"style": "pipeDelimited"}, ["a|b"]),
        ("query", {"style": "spaceDelimited"}, ["a b", "c"]),
        ("query", {"style": "spaceDelimited"}, {"a b": 1}),
        ("path", {"style": "label", "explode": True}, ["a.b", "c"]),
    ],
)
def test_an_item_that_no_reader_could_tell_from_two_is_refused(where: str, how: dict, value: object):
    """Where the separator is what quoting gives, or is never quoted."""
    with pytest.raises(StageProblem, match="argument id may hold no") as refused:
        target(where, how, value)
    assert refused.value.kind == "bad_arguments"


@pytest.mark.parametrize(
    ("how", "value", "part"),
    [
        ({}, LIST, "a,b%2Cc,d%20e%7Cf"),
        ({}, MAP, "x,1,y,b%2Cc"),
        ({"explode": True}, MAP, "x=1,y=b%2Cc"),
        ({"style": "label"}, "a", ".a"),
        ({"style": "label"}, ["a", "b,c"], ".a,b%2Cc"),
        ({"style": "label", "explode": True}, ["a", 2], ".a.2"),
        ({"style": "label", "explode": True}, MAP, ".x=1.y=b%2Cc"),
        ({"style": "matrix"}, "a/b", ";id=a%2Fb"),
        ({"style": "matrix"}, ["a", "b;c"], ";id=a,b%3Bc"),
        ({"style": "matrix", "explode": True}, ["a", 2], ";id=a;id=2"),
        ({"style": "matrix", "explode": True}, MAP, ";x=1;y=b%2Cc"),
        ({"style": "matrix"}, MAP, ";id=x,1,y,b%2Cc"),
        ({"content": {"application/json": {}}}, ["a"], "%5B%22a%22%5D"),
    ],
)
def test_lists_and_objects_go_into_a_path_as_the_document_says(how: dict, value: object, part: str):
    """By its style and explode, as OpenAPI has them."""
    assert target("path", how, value) == f"/v/{part}/a"


@pytest.mark.parametrize(("where", "style"), [("path", "form"), ("query", "matrix"), ("query", "csv")])
def test_a_style_that_is_none_of_its_place_is_refused(where: str, style: str):
    """What the server would make of it nobody knows."""
    with pytest.raises(ProxyError, match=f"parameter id with style {style}"):
        target(where, {"style": style}, "a")


@pytest.mark.parametrize(
    "how", [{}, {"style": "label"}, {"style": "matrix"}, {"style": "label", "explode": True}]
)
@pytest.mark.parametrize("value", ["", [], {}, [""], None, ".", ".."])
def test_no_style_lets_a_path_lead_elsewhere(how: dict, value: object):
    """Neither up, nor to the list that holds the item."""
    with pytest.raises(StageProblem) as refused:
        target("path", how, value)
    assert refused.value.kind == "bad_arguments"


async def test_a_whole_number_is_sent_as_one_however_the_model_writes_it(tmp_path: Path):
    """JSON Schema takes ``1.0`` for an integer, and servers do not."""
    whole = {"type": "integer"}
    told = document(
        "/v/{id}", [{"name": "id", "in": "path", "schema": whole},
                    {"name": "n", "in": "query", "schema": {"items": whole}}],
        requestBody={"content": {"application/json": {"schema": {"properties": {"m": whole}}}}},
    )  # fmt: skip
    async with served(tmp_path, told) as (api, tool):
        await run(tool, '{"id": 1e0, "n": [2.0, 12345678901234567890.0], "body": {"m": 3.0, "f": 0.5}}')
        with pytest.raises(StageProblem):
            await run(tool, '{"id": 1.5}')
    [asked] = api.requests
    assert asked.target == "/v/1?n=2&n=12345678901234567890"
    assert asked.body == b'{"m": 3, "f": 0.5}'


async def test_null_leaves_out_what_need_not_be_given(tmp_path: Path):
    """Whatever its schema says; what must be given is checked."""
    flag = {"name": "flag", "in": "query", "schema": {"type": "boolean"}}
    need = {"name": "need", "in": "query", "required": True, "schema": {"type": "boolean"}}
    body = {"content": {"application/json": {"schema": {"type": "object"}}}}
    async with served(tmp_path, document("/a", [flag, need], requestBody=body)) as (api, tool):
        await run(tool, '{"flag": null, "need": true, "body": null}')
        with pytest.raises(StageProblem) as refused:
            await run(tool, '{"need": null}')
    assert refused.value.kind == "bad_arguments"
    [asked] = api.requests
    assert (asked.target, asked.body) == ("/a?need=true", b"")


async def test_arguments_of_one_name_are_told_apart_by_their_place(tmp_path: Path):
    """OpenAPI allows it for path and query; a body has a name of ours."""
    text = {"type": "string"}
    told = document(
        "/v/{id}", [{"name": "id", "in": "path", "schema": text},
                    {"name": "id", "in": "query", "schema": text},
                    {"name": "body", "in": "query", "schema": text}],
        requestBody={"content": {"application/json": {"schema": {"type": "object"}}}},
    )  # fmt: skip
    async with served(tmp_path, told) as (api, tool):
        assert set(tool.schema["properties"]) == {"id", "id_query", "body_query", "body"}
        await run(tool, '{"id": "p", "id_query": "q", "body_query": "b", "body": {"k": 1}}')
    [asked] = api.requests
    assert (asked.target, asked.body) == ("/v/p?id=q&body=b", b'{"k": 1}')


def test_a_name_that_is_told_with_its_place_is_no_other_ones():
    """``id_query`` may be an argument of the operation too."""
    given = [("id", "path"), ("id", "query"), ("id_query", "query")]
    told = document("/v/{id}", [{"name": n, "in": w, "schema": {}} for n, w in given])
    places = dict(operations(told))["o"].places
    assert [(p.name, p.where) for p in places.values()] == given
    assert len(places) == 3


@pytest.mark.parametrize(
    ("where", "header"), [({"name": "X-Tenant", "in": "header"}, "X-Tenant"),
                          ({"name": "sid", "in": "cookie"}, "cookie")],
)  # fmt: skip
async def test_a_header_that_an_operation_needs_is_given_or_asked_for_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: dict, header: str
):
    """The server would refuse each call."""
    monkeypatch.setenv("TENANT", "t1")
    told = document("/a", [{**where, "required": True, "schema": {}}])
    with pytest.raises(ProxyError, match=f"operation o needs the header {header}: give it with headers_env"):
        async with served(tmp_path, told):
            pass
    async with served(tmp_path, told, headers_env={header.lower(): "TENANT"}) as (api, tool):
        await run(tool, "{}")
    assert api.requests[0].header(header) == "t1"


@pytest.mark.parametrize("name", ["Authorization", "accept", "Content-Type"])
def test_headers_that_openapi_tells_elsewhere_are_not_asked_for(name: str):
    """It has such parameters passed over."""
    told = document("/a", [{"name": name, "in": "header", "required": True, "schema": {}}])
    assert dict(operations(told))["o"].headers == ()


PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        ("café".encode("latin-1"), "text/plain; charset=iso-8859-1", "café"),
        ("café".encode("utf-16"), "text/plain; charset=utf-16", "café"),
        ("café".encode("utf-16-be"), 'application/json; charset="UTF-16BE"', "café"),
        ("café".encode("utf-16"), "text/plain", "café"),
        ("\ufeffcafé".encode(), "application/json", "café"),
        ("café".encode("cp1251", "replace"), "text/plain; charset=windows-1251", "caf?"),
        ("café".encode(), "text/plain; charset=no-such", "café"),
        ("café".encode(), "text/plain; charset=punycode", "café"),
        ("café".encode(), "application/octet-stream", "café"),
        ("café".encode(), "", "café"),
        (b"<svg/>", "image/svg+xml", "<svg/>"),
        (b"a\xff", "text/plain", "a\ufffd"),
        (PNG, "image/png", f"[image/png, {len(PNG)} bytes]"),
        (b"abc", "image/png", "[image/png, 3 bytes]"),
        (b"\0" * 123, "application/octet-stream", "[application/octet-stream, 123 bytes]"),
        (b"\xff\xfe\xff", "application/pdf", "[application/pdf, 3 bytes]"),
        (b"\0", "text/plain", "[text/plain, 1 byte]"),
        (b"\xff\0", "<script>", "[application/octet-stream, 2 bytes]"),
        (b"", "image/png", "[image/png, 0 bytes]"),
        (b"", "", ""),
    ],
)
async def test_an_answer_is_told_in_its_own_characters_or_by_its_kind(
    tmp_path: Path, body: bytes, kind: str, text: str
):
    """What is no text goes to the model as a mark, like a part of an MCP result."""
    reply = Reply([body] if body else [], content_type=kind, framing="length")
    async with served(tmp_path, document("/a", []), reply) as (_, tool):
        assert await run(tool, "{}") == text



def test_a_query_that_stands_in_the_path_is_gone_on_with():
    """No document may write so; some do."""
    one = {"name": "q", "in": "query", "schema": {}}
    made = dict(operations(document("/a?kind=x", [one])))["o"]
    assert address("http://h", made, {"q": "?"})[0] == "http://h/a?kind=x&q=%3F"
