"""Arguments checked against strangers' schemas: as JSON Schema has it, and never for long."""

from __future__ import annotations

import jsonschema
import pytest

from proxy.pipelines.tools.check import Check, TooManySteps

SLOW = "^(a+)+$"
LONG = "a" * 40 + "!"


def refused(schema: dict[str, object], arguments: object) -> str | None:
    try:
        Check(schema).validate(arguments)
    except jsonschema.ValidationError as problem:
        return problem.message
    return None


@pytest.mark.parametrize(
    "schema",
    [
        {"patternProperties": {SLOW: {"type": "integer"}}},
        {"patternProperties": {SLOW: False}, "additionalProperties": {"type": "string"}},
        {"propertyNames": {"not": {"pattern": SLOW}}},
        {"patternProperties": {SLOW: False}, "unevaluatedProperties": False},
        {"$schema": "https://json-schema.org/draft/2019-09/schema",
         "patternProperties": {SLOW: False}, "unevaluatedProperties": False},
        {"$schema": "http://json-schema.org/draft-04/schema#",
         "patternProperties": {SLOW: {"type": "integer"}}, "additionalProperties": {}},
    ],
)  # fmt: skip
def test_names_of_properties_are_matched_in_linear_time(schema: dict[str, object]):
    """Python's own engine takes 2 to the 40th steps for each of these."""
    assert refused(schema, {LONG: "x"}) is None


def test_properties_by_pattern_and_all_others_are_checked():
    """The name is found anywhere in it, and one that is neither named nor matched is additional."""
    schema = {
        "properties": {"a": {}}, "patternProperties": {"^x-": {"type": "integer"}},
        "additionalProperties": False,
    }  # fmt: skip
    assert refused(schema, {"a": 1, "x-b": 2}) is None
    assert refused(schema, {"x-b": "2"}) == "'2' is not of type 'integer'"
    assert refused(schema, {"b": 1}) == "additional property 'b' is not allowed"
    assert refused({**schema, "additionalProperties": {"type": "string"}}, {"b": 1}) is not None
    assert refused(schema, 5) is None


def test_a_name_that_a_pattern_may_mean_which_is_not_applied_is_none_too_many():
    """Looking around is left to the tool."""
    schema = {"patternProperties": {"^(?!y)": {}}, "additionalProperties": False}
    assert refused(schema, {"x": 1}) is None


def test_a_schema_that_doubles_at_each_level_ends():
    """40 lines of it ask for 2 to the 40th steps."""
    levels = {f"l{n}": {"allOf": [{"$ref": f"#/$defs/l{n + 1}"}] * 2} for n in range(40)}
    schema = {"$defs": {**levels, "l40": {}}, "$ref": "#/$defs/l0"}
    with pytest.raises(TooManySteps):
        Check(schema).validate({})


def test_each_check_has_all_its_steps():
    """Not the validator over its life."""
    check = Check({"items": {"type": "integer"}})
    for _ in range(3):
        check.validate([1] * 8_000)


def test_a_long_list_of_unlike_things_is_not_compared_each_with_each():
    """A short one is."""
    schema = {"uniqueItems": True}
    assert refused(schema, [{"a": 1}, {"a": 1}]) is not None
    assert refused(schema, [{"a": n} if n % 2 else n for n in range(5000)] + [1]) is None
