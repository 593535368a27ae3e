"""What a model is told of an operation's arguments, and what of them is checked."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from proxy.pipelines.tools.check import Check
from proxy.pipelines.tools.openapi_document import operations
from proxy.pipelines.tools.openapi_schema import MOST_PARTS, arguments_schema

TEXT = {"type": "string"}
READ = {"type": "integer", "readOnly": True}


def ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def schema_of(body: dict[str, Any], version: str = "3.1.0", **schemas: object) -> dict[str, Any]:
    post = {"operationId": "o", "requestBody": {"required": True, "content": {
        "application/json": {"schema": body}}}}  # fmt: skip
    document = {"openapi": version, "paths": {"/a": {"post": post}}, "components": {"schemas": schemas}}
    return dict(operations(document))["o"].schema


def passes(schema: dict[str, Any], body: object) -> bool:
    try:
        Check(schema).validate({"body": body})
    except jsonschema.ValidationError:
        return False
    return True


RO = {"type": "object", "required": ["id", "name"], "properties": {"id": READ, "name": TEXT}}
NEW = {"name": "x"}


@pytest.mark.parametrize(
    ("body", "sent"),
    [
        (RO, NEW),
        (ref("RO"), NEW),
        ({"type": "array", "items": ref("RO")}, [NEW]),
        ({"type": "object", "properties": {"in": ref("RO")}}, {"in": NEW}),
        ({"allOf": [ref("RO"), {"required": ["id"]}]}, NEW),
        ({"required": ["id"], "oneOf": [ref("RO")]}, NEW),
        ({"required": ["id"], "properties": {"id": ref("Id"), "name": TEXT}}, NEW),
        ({"required": ["id"], "properties": {"id": {"allOf": [ref("Id")]}, "name": TEXT}}, NEW),
        ({"required": ["id"], "properties": {"id": {**ref("Text"), "readOnly": True}}}, NEW),
    ],
)
@pytest.mark.parametrize("version", ["3.0.3", "3.1.0"])
def test_what_only_answers_hold_is_neither_asked_for_nor_offered(
    body: dict[str, Any], sent: object, version: str
):
    """A property that is ``readOnly``, at any depth, by reference and by part."""
    schema = schema_of(body, version, RO=RO, Id=READ, Text=TEXT)
    assert passes(schema, sent)
    assert "'id'" not in str(schema)


def test_what_one_of_two_forms_of_a_body_holds_alone_is_offered_there():
    """Read alone in one form, written in the other."""
    writes = {"required": ["id", "n"], "properties": {"id": {"type": "integer"}, "n": TEXT}}
    schema = schema_of({"oneOf": [RO, writes]})
    assert passes(schema, NEW)
    assert passes(schema, {"id": 1, "n": "a"})
    assert not passes(schema, {"n": "a"})


TREE = {"type": "object", "required": ["v"], "properties": {
    "v": {"type": "integer"}, "kid": ref("Tree"),
    "kids": {"type": "array", "items": ref("Tree")}}}  # fmt: skip


def test_a_schema_that_holds_itself_is_checked_at_any_depth():
    """It stays a reference, and the model is told of it."""
    schema = schema_of(ref("Tree"), Tree=TREE)
    assert passes(schema, {"v": 1, "kid": {"v": 2, "kids": [{"v": 3}]}})
    assert not passes(schema, {"v": 1, "kid": {"v": "no"}})
    assert not passes(schema, {"v": 1, "kid": {"v": 1, "kids": [{"v": 1, "kid": {}}]}})
    assert schema["properties"]["body"]["properties"]["kid"] == {"$ref": "#/$defs/Tree"}


def test_two_schemas_that_hold_each_other_are_checked_at_any_depth():
    """Through a third, too, and under names that differ."""
    a = {"required": ["x"], "properties": {"x": TEXT, "b": ref("B")}}
    b = {"properties": {"a": ref("A"), "y": {"type": "integer"}}}
    schema = schema_of({"properties": {"a": ref("A"), "b": ref("B")}}, A=a, B=b)
    assert passes(schema, {"a": {"x": "1", "b": {"a": {"x": "1", "b": {"y": 1}}}}})
    assert not passes(schema, {"a": {"x": "1", "b": {"a": {"x": "1", "b": {"y": "1"}}}}})
    assert not passes(schema, {"b": {"a": {"b": {}}}})


@pytest.mark.parametrize("start", ["Pet", "Cat"])
def test_a_schema_and_its_parent_that_name_each_other_are_checked_as_far_as_they_say_something(
    start: str,
):
    """Generators write it so: a cat is a pet, and a pet is a cat or a dog."""
    kinds = {n: {"allOf": [ref("Pet"), {"properties": {"t": {"enum": [n]}, "kid": ref("Pet")}}]}
             for n in ("Cat", "Dog")}  # fmt: skip
    pet = {"type": "object", "required": ["t"], "oneOf": [ref("Cat"), ref("Dog")]}
    schema = schema_of(ref(start), Pet=pet, **kinds)
    assert passes(schema, {"t": "Cat"})
    assert passes(schema, {"t": "Cat", "kid": {"t": "Dog"}})
    assert not passes(schema, {})
    assert not passes(schema, {"t": "Cat", "kid": {}})
    assert not passes(schema, {"t": "Cow"})


@pytest.mark.parametrize("body", [ref("Self"), ref("Ping"), ref("Absent"), {"$ref": "other.yaml#/a"}])
def test_a_reference_that_leads_nowhere_is_left_open(body: dict[str, Any]):
    """It neither runs for ever nor refuses each call."""
    schema = schema_of(body, Self=ref("Self"), Ping=ref("Pong"), Pong=ref("Ping"))
    assert passes(schema, {"a": 1})


def test_what_stands_beside_a_reference_holds_in_3_1_alone():
    """3.0 says that it is passed over."""
    body = {"properties": {"n": {**ref("N"), "maximum": 5, "description": "few"}}}
    new, old = schema_of(body, N={"type": "integer"}), schema_of(body, "3.0.3", N={"type": "integer"})
    assert not passes(new, {"n": 6})
    assert not passes(new, {"n": "a"})
    assert passes(old, {"n": 6})


def test_a_property_may_bear_a_keywords_name():
    """``$id``, ``required`` and ``readOnly`` among them."""
    names = ("$id", "required", "readOnly", "oneOf", "default")
    schema = schema_of({"properties": {n: {"type": "integer"} for n in names}})
    assert all(not passes(schema, {n: "a"}) for n in names)
    assert all(passes(schema, {n: 1}) for n in names)


def test_a_schema_that_would_be_large_is_written_with_each_part_once():
    """Forty that all refer to each other are checked at any depth."""
    refers = {f"p{i}": ref(f"S{i}") for i in range(40)}
    schemas = {f"S{i}": {"type": "object", "properties": refers} for i in range(40)}
    schema = schema_of(ref("S0"), **schemas)
    assert passes(schema, {"p1": {"p39": {"p5": {}}}})
    assert not passes(schema, {"p1": {"p39": {"p5": 5}}})
    assert str(schema).count("{") < MOST_PARTS


def test_a_schema_that_is_larger_than_any_model_reads_is_left_open_beyond():
    """And says so; one of two forms may then be met by both."""
    other = {"properties": {f"q{j}": {} for j in range(9)}}
    schemas = {
        f"S{i}": {"oneOf": [{"properties": {"n": ref(f"S{i + 1}")}}, other]} for i in range(3000)
    }
    schema = schema_of({"properties": {"a": ref("S0"), "b": {"type": "array"}}}, **schemas)
    assert not passes(schema, {"b": 1})
    assert passes(schema, {"a": {}})
    assert str(schema).count("{") <= 4 * MOST_PARTS


def test_allof_that_doubles_at_each_level_ends():
    """Both while it is looked through and while it is written."""
    schemas = {f"l{n}": {"allOf": [ref(f"l{n + 1}")] * 2} for n in range(40)}
    document = {"openapi": "3.1.0", "components": {"schemas": {**schemas, "l40": {"type": "string"}}}}
    assert arguments_schema(document, "o", {"a": ref("l0")}, [])["$defs"]["l40"] == {"type": "string"}
