"""Schemas of strangers, applied to what a model wrote, in bounded time.

A short schema whose parts refer to each other can take more steps than ever end, and Python's
regular expressions too: either would hold up the event loop, and with it all other requests.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jsonschema
from jsonschema.validators import extend, validator_for
from referencing import Registry

from proxy.pipelines.tools.patterns import matcher

log = logging.getLogger("stagelens.proxy")
MOST_STEPS = 10_000
"""Keywords that are applied in one check: up to 0.1 s."""
MOST_COMPARED = 1000
"""Items of a list that are compared with each other, which can take their number's square."""
Keyword = Callable[[Any, Any, Any, Any], Iterator[jsonschema.ValidationError] | None]


class TooManySteps(Exception):
    """The check would take too long."""


class Check:
    """A check by the draft that ``schema`` names. References to other documents do not resolve:
    the library would fetch them, and a schema comes from a stranger's server.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Raises :class:`jsonschema.SchemaError`, or anything else, where it is no schema."""
        given = dict(schema)
        kind = validator_for(given, default=jsonschema.Draft202012Validator)
        # no formats: the one of patterns is Python's, which refuses good ones of JSON Schema
        kind.check_schema(given, format_checker=None)
        keywords = _keywords(kind.VALIDATORS, given)
        made = extend(kind, {name: self._counted(keyword) for name, keyword in keywords.items()})
        self._validator = made(given, registry=Registry())
        self._left = 0

    def validate(self, arguments: object) -> None:
        """Refuse ``arguments`` that are not as the schema has them.

        Raises:
            jsonschema.ValidationError: the first thing that is wrong.
            TooManySteps: there is more to check than is allowed.
        """
        self._left = MOST_STEPS
        self._validator.validate(arguments)

    def _counted(self, keyword: Keyword) -> Keyword:
        def counted(
            validator: object, value: object, instance: object, schema: object
        ) -> Iterator[jsonschema.ValidationError] | None:
            self._left -= 1
            if self._left < 0:
                raise TooManySteps
            return keyword(validator, value, instance, schema)

        return counted


def _keywords(given: Mapping[str, Keyword], schema: Mapping[str, Any]) -> dict[str, Keyword]:
    """The draft's keywords, those of them replaced that match patterns or compare all with all."""
    ours: dict[str, Keyword] = {
        "pattern": _pattern, "patternProperties": _pattern_properties,
        "additionalProperties": _additional, "uniqueItems": _unique(given["uniqueItems"]),
    }  # fmt: skip
    text = json.dumps(schema)
    if '"unevaluatedProperties"' in text and '"patternProperties"' in text:
        log.warning("a tool's schema has unevaluatedProperties beside patternProperties: not applied")
        ours["unevaluatedProperties"] = _nothing  # the library matches there by itself
    return {name: ours.get(name, keyword) for name, keyword in given.items()}


def _nothing(*_: object) -> None:
    return None


def _pattern(
    validator: Any, pattern: str, instance: Any, _: object,  # noqa: ANN401
) -> Iterator[jsonschema.ValidationError]:  # fmt: skip
    if validator.is_type(instance, "string") and matcher(pattern).search(instance) is False:
        yield jsonschema.ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: Mapping[str, Any], instance: Any, _: object,  # noqa: ANN401
) -> Iterator[jsonschema.ValidationError]:  # fmt: skip
    if not validator.is_type(instance, "object"):
        return
    for pattern, schema in patterns.items():
        one = matcher(pattern)
        for name, value in instance.items():
            if one.search(name):
                yield from validator.descend(value, schema, path=name, schema_path=pattern)


def _additional(
    validator: Any, told: Any, instance: Any, schema: Mapping[str, Any],  # noqa: ANN401
) -> Iterator[jsonschema.ValidationError]:  # fmt: skip
    if not validator.is_type(instance, "object"):
        return
    named = schema.get("properties", {})
    patterns = [matcher(pattern) for pattern in schema.get("patternProperties", {})]
    for name in instance:
        # where a pattern is not applied, any name may be one that it means
        if name in named or any(one.search(name) is not False for one in patterns):
            continue
        if told is False:
            yield jsonschema.ValidationError(f"additional property {name!r} is not allowed")
        else:
            yield from validator.descend(instance[name], told, path=name)


def _unique(keyword: Keyword) -> Keyword:
    def unique(
        validator: Any, told: object, instance: Any, schema: object,  # noqa: ANN401
    ) -> Iterator[jsonschema.ValidationError] | None:  # fmt: skip
        if validator.is_type(instance, "array") and len(instance) > MOST_COMPARED:
            return None
        return keyword(validator, told, instance, schema)

    return unique
