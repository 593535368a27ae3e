"""Regular expressions of strangers' schemas, matched in linear time.

Python's own would hold up the event loop for ever at one as short as ``^(a+)+$``. Those that the
engine does not know (looking around, references back) are not applied: the tool checks for itself.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import jsonschema
from jsonschema.protocols import Validator
from jsonschema.validators import extend
from pydantic_core import SchemaError, SchemaValidator, core_schema

log = logging.getLogger("stagelens.proxy")


def with_patterns(kind: type[Validator]) -> type[Validator]:
    """``kind`` of validator with ``pattern`` matched so."""
    made: type[Validator] = extend(kind, {"pattern": _pattern})
    return made


def _pattern(
    validator: Validator, pattern: object, instance: object, _: object
) -> Iterator[jsonschema.ValidationError]:
    if not (validator.is_type(instance, "string") and isinstance(pattern, str)):
        return
    engine = engine_of(pattern)
    if engine is not None and not engine.isinstance_python(instance):
        yield jsonschema.ValidationError(f"{instance!r} does not match {pattern!r}")


@lru_cache(maxsize=1024)
def engine_of(pattern: str) -> SchemaValidator | None:
    """What matches ``pattern``; None where it is not known to the engine."""
    given: Any = core_schema.str_schema(pattern=pattern, regex_engine="rust-regex")
    try:
        return SchemaValidator(given)
    except SchemaError:
        log.warning("a tool's schema has a pattern that is not applied: %.100r", pattern)
        return None
