"""OpenAPI documents as vendors write them: large, cyclic, bundled, odd."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proxy.errors import ProxyError
from proxy.pipelines.problems import StageProblem
from proxy.pipelines.settings import OpenApiTools
from proxy.pipelines.tools.openapi import OpenApiSource, address
from proxy.pipelines.tools.openapi_address import Place
from proxy.pipelines.tools.openapi_document import operations, read_document
from proxy.pipelines.tools.openapi_schema import MOST_PARTS

TEXT = {"type": "string"}
ID = {"name": "id", "in": "path", "required": True, "schema": TEXT}


def document(paths: dict[str, Any], **components: object) -> dict[str, Any]:
    return {"openapi": "3.1.0", "paths": paths, "components": components}


def posting(content: dict[str, Any], required: bool = True) -> dict[str, Any]:
    return {"post": {"operationId": "o", "requestBody": {"required": required, "content": content}}}


def one(paths: dict[str, Any], **components: object) -> Any:
    return dict(operations(document(paths, **components)))["o"]


def web(size: int) -> dict[str, Any]:
    """Schemas each of which refers to all: put in whole they have more parts than memory holds."""
    refers = {f"p{i}": {"$ref": f"#/components/schemas/S{i}"} for i in range(size)}
    return {f"S{i}": {"type": "object", "properties": refers} for i in range(size)}


def test_schemas_that_all_refer_to_each_other_are_put_in_as_far_as_is_bearable():
    """Twenty of them have more paths than there are atoms: each stands once."""
    body = {"application/json": {"schema": {"$ref": "#/components/schemas/S0"}}}
    made = one({"/a": posting(body)}, schemas=web(20))
    assert made.schema["properties"]["body"] == {"$ref": "#/$defs/S0"}
    assert made.schema["$defs"]["S0"]["properties"]["p1"] == {"$ref": "#/$defs/S1"}
    assert json.dumps(made.schema).count("{") <= MOST_PARTS * 2


def test_only_the_operations_that_are_wanted_are_read():
    """Another one of the document may be as it will."""
    paths = {"/a": {"get": {"operationId": "o"}}, "/b": {"get": {"operationId": "x", "parameters": 5}}}
    assert [name for name, _ in operations(document(paths), ["o"])] == ["o"]


def test_references_as_bundlers_write_them_are_found():
    """Quoted characters, places in lists, and a whole path item."""
    query = {"name": "q", "in": "query", "schema": TEXT}
    paths = {
        "/a/{id}": {"parameters": [ID], "get": {"operationId": "a", "parameters": [query]}},
        "/b/{id}": {"get": {"operationId": "o", "parameters": [
            {"$ref": "#/paths/~1a~1%7Bid%7D/parameters/0"},
            {"$ref": "#/paths/~1a~1%7Bid%7D/get/parameters/0"}]}},
        "/c": {"$ref": "#/components/pathItems/c"},
    }  # fmt: skip
    items = {"c": {"get": {"operationId": "c"}}}
    found = dict(operations(document(paths, pathItems=items)))
    assert found["o"].places == {
        "id": Place("id", "path", "simple", False), "q": Place("q", "query", "form", True)
    }  # fmt: skip
    assert found["c"].path == "/c"


def test_an_operations_own_parameter_takes_the_place_of_its_paths():
    """By name and place; needed or not is its own to say."""
    shared = {"name": "q", "in": "query", "required": True, "schema": TEXT}
    own = {"name": "q", "in": "query", "schema": {"type": "integer"}}
    made = one({"/a": {"parameters": [shared], "get": {"operationId": "o", "parameters": [own]}}})
    assert made.schema["properties"] == {"q": {"type": "integer"}}
    assert made.schema["required"] == []


@pytest.mark.parametrize(
    ("item", "says"),
    [
        ({"get": {"operationId": "o", "parameters": 5}}, "not as OpenAPI 3 has it"),
        ({"get": {"operationId": "o", "parameters": ["x"]}}, "parameter that is not in the document"),
        ({"get": {"operationId": "o", "parameters": [{"in": "query"}]}}, "not as OpenAPI 3 has it"),
        ({"get": {"operationId": "o", "parameters": [{"$ref": "common.yaml#/q"}]}},
         "parameter that is not in the document"),
        ({"get": {"operationId": "o", "parameters": [{"$ref": "#/components/x"}]}},
         "parameter that is not in the document"),
        ({"post": {"operationId": "o", "requestBody": [1]}}, "body that is not in the document"),
        ({"get": {"operationId": "o"}, "put": {"operationId": "o"}}, "there twice"),
        (posting({"application/x-www-form-urlencoded": {}}), "takes a body of application/x-www-form"),
    ],
)  # fmt: skip
def test_an_operation_that_cannot_be_called_as_it_is_told_is_refused(item: dict, says: str):
    """One sentence, and never a call without what the document wants."""
    with pytest.raises(ProxyError, match=says):
        one({"/a": item})


@pytest.mark.parametrize(
    ("kind", "sent"),
    [
        ("application/json; charset=utf-8", "application/json; charset=utf-8"),
        ("application/vnd.api+json", "application/vnd.api+json"),
        ("*/*", "application/json"),
    ],
)
def test_a_body_of_any_kind_of_json_is_sent_as_that_kind(kind: str, sent: str):
    """Servers refuse another one."""
    made = one({"/a": posting({"text/xml": {}, kind: {"schema": {"type": "object"}}})})
    assert (made.body_type, made.schema["required"]) == (sent, ["body"])


@pytest.mark.parametrize(("path", "says"), [("/a/{x}", "no parameter for x"), ("a", "begins with /")])
def test_a_path_that_makes_no_address_is_refused(path: str, says: str):
    """Each call would fail, or ask another host."""
    with pytest.raises(ProxyError, match=says):
        one({path: {"get": {"operationId": "o"}}})


def test_a_body_that_is_not_needed_may_be_of_another_kind():
    """The operation is called without it."""
    assert one({"/a": posting({"text/xml": {}}, required=False)}).schema["properties"] == {}


@pytest.mark.parametrize(
    ("path", "arguments"),
    [
        ("/f/{a}{b}", {"a": ".", "b": "."}),
        ("/f/.{a}/z", {"a": "."}),
        ("/f/{a}", {"a": ""}),
        ("/f/{a}", {"a": []}),
        ("/f/{a}", {"a": None}),
    ],
)
def test_a_path_leads_nowhere_but_where_the_document_says(path: str, arguments: dict):
    """Neither up, by dots of two arguments, nor to the list that holds the item."""
    given = [{"name": n, "in": "path", "schema": {}} for n in arguments]
    with pytest.raises(StageProblem) as refused:
        address("http://h/v1", one({path: {"delete": {"operationId": "o", "parameters": given}}}), arguments)
    assert refused.value.kind == "bad_arguments"


def test_nothing_is_no_word_in_a_query_and_half_a_character_is_one():
    """``null`` leaves an argument out."""
    given = [{"name": n, "in": "query", "schema": {}} for n in ("q", "r")]
    made = one({"/a": {"get": {"operationId": "o", "parameters": given}}})
    assert address("http://h", made, {"q": None, "r": "\ud800"})[0] == "http://h/a?r=%3F"


def test_dates_of_a_yaml_document_stay_text(tmp_path: Path):
    """The model is told them as JSON, which has no dates."""
    file = tmp_path / "api.yaml"
    file.write_text("openapi: 3.1.0\npaths: {/a: {get: {operationId: o, parameters: [{name: q, in: query, "
                    "schema: {enum: [2024-01-01]}}]}}}\n")  # fmt: skip
    [(_, made)] = operations(read_document(file))
    assert made.schema["properties"] == {"q": {"enum": ["2024-01-01"]}}


async def test_a_name_that_providers_refuse_is_told_without_its_odd_characters(tmp_path: Path):
    """GitHub's operations have a slash, and OpenAI's API takes none."""
    file = tmp_path / "api.json"
    file.write_text(json.dumps(document({"/a": {"get": {"operationId": "repos/get-content"}}})))
    source = OpenApiSource(OpenApiTools(
        document=str(file), base_url="http://api.example.com", operations=("repos/get-content",),
        allow_hosts=("api.example.com",)))  # fmt: skip
    try:
        assert [tool.name for tool in await source.start()] == ["repos_get-content"]
    finally:
        await source.close()
