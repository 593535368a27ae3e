"""Schemas of an OpenAPI document as one JSON Schema that stands alone and tells what is sent."""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

from proxy.errors import ProxyError

MOST_PARTS = 10_000
"""Schemas inside one operation's schema; more is of no use to a model."""
DEEPEST = 64
"""References inside references that are put in; deeper ones stand under ``$defs``."""
_MAPS = frozenset({"properties", "patternProperties", "dependentSchemas"})
_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_ONES = frozenset({
    "items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames",
    "unevaluatedItems", "unevaluatedProperties",
})  # fmt: skip
_IN_PLACE = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"})
"""Keywords whose schemas are of the very value that the schema with them is of."""
_LEFT_OUT = frozenset({
    "$id", "$schema", "$anchor", "$dynamicAnchor", "$dynamicRef", "$defs", "definitions",
})  # fmt: skip
"""References are followed here, by the document's own places."""
_Names = frozenset[str]
_NONE: _Names = frozenset()

log = logging.getLogger("stagelens.proxy")


def arguments_schema(
    document: dict[str, Any], operation: str, properties: dict[str, Any], required: list[str]
) -> dict[str, Any]:
    """The schema of an operation's arguments: references put in, and those that repeat themselves
    under ``$defs``; without properties that are ``readOnly``.

    Raises:
        ProxyError: ``properties`` alone are too large.
    """
    for shares, loose in ((False, False), (True, False), (True, True)):
        writer = _Writer(document, shares=shares, loose=loose)
        try:
            made = {name: writer.whole(one) for name, one in properties.items()}
            defs = writer.definitions()
        except _TooManyPartsError:
            continue
        if loose:
            log.warning("operation %s has a schema of more than %d parts: what is beyond is left open",
                        operation, MOST_PARTS)  # fmt: skip
        return {"type": "object", "properties": made, "required": required,
                "additionalProperties": False, **({"$defs": defs} if defs else {})}  # fmt: skip
    raise ProxyError(
        f"operation {operation} has a schema of more than {MOST_PARTS} parts: it is too large"
    )


class _TooManyPartsError(Exception):
    pass


@dataclass(frozen=True, slots=True)
class _Where:
    """The references that led to a place: ``here`` to the same value, ``above`` to values that hold
    it; and the names of properties that are not sent there.
    """

    here: _Names = _NONE
    above: _Names = _NONE
    unsent: _Names = _NONE

    def inside(self) -> _Where:
        """The place of a part of the value."""
        return _Where(above=self.above | self.here)


class _Writer:
    """Writes schemas. ``shares``: each one that is referred to stands once, under ``$defs``;
    ``loose``: what finds no room is left open.
    """

    def __init__(self, document: dict[str, Any], *, shares: bool, loose: bool) -> None:
        self._document = document
        self._old = str(document.get("openapi")).startswith("3.0")
        self._shares = shares
        self._loose = loose
        self._parts = 0
        self._names: dict[tuple[str, _Names], str] = {}
        self._taken: set[str] = set()
        self._waiting: deque[tuple[str, _Names]] = deque()
        self._unsent_of: dict[int, tuple[object, _Names]] = {}
        self._led: dict[str, _Names] = {}

    def whole(self, schema: Any) -> Any:  # noqa: ANN401
        """The schema of one argument."""
        return self._write(schema, _Where())

    def definitions(self) -> dict[str, Any]:
        """What the schemas written so far refer to, and what that refers to."""
        made: dict[str, Any] = {}
        while self._waiting:
            key = reference, unsent = self._waiting.popleft()
            try:
                target = found(self._document, reference)
                made[self._names[key]] = self._write(
                    target, _Where(here=frozenset({reference}), unsent=unsent)
                )
            except _TooManyPartsError:
                if not self._loose:
                    raise
                made[self._names[key]] = {}
        return made

    def _write(self, value: Any, where: _Where) -> Any:  # noqa: ANN401
        if not isinstance(value, dict):
            return value if isinstance(value, bool) else {}
        self._parts += 1
        if self._parts > MOST_PARTS:
            raise _TooManyPartsError
        reference = value.get("$ref")
        if not isinstance(reference, str):
            return self._object(value, where)
        made = self._referred(reference, where)
        beside = {} if self._old else {k: v for k, v in value.items() if k != "$ref"}
        if not beside or made is False:
            return made
        more = self._object(beside, where)
        if made is True or made.keys().isdisjoint(more.keys() - {"description", "title"}):
            return {**({} if made is True else made), **more}
        return {**more, "allOf": [made, *more.get("allOf", [])]}

    def _referred(self, reference: str, where: _Where) -> Any:  # noqa: ANN401
        target = found(self._document, reference)
        if not isinstance(target, dict) or reference in where.here:
            return target if isinstance(target, bool) else {}  # what holds itself says nothing more
        circular = self._leads(reference) & (where.here | {reference})
        if reference in where.above or (self._shares and not circular):
            return {"$ref": f"#/$defs/{self._name(reference, where.unsent)}"}
        if len(where.here) + len(where.above) >= DEEPEST:
            raise _TooManyPartsError
        return self._write(target, replace(where, here=where.here | {reference}))

    def _name(self, reference: str, unsent: _Names) -> str:
        key = (reference, unsent)
        if key not in self._names:
            last = re.sub(r"[^A-Za-z0-9_]", "_", reference.rpartition("/")[2])[:64]
            while last in self._taken:
                last += f"_{len(self._taken)}"
            self._taken.add(last)
            self._names[key] = last
            self._waiting.append(key)
        return self._names[key]

    def _object(self, value: dict[str, Any], where: _Where) -> dict[str, Any]:
        where = replace(where, unsent=where.unsent | self._unsent(value))
        made: dict[str, Any] = {}
        for key, one in value.items():
            if key in _LEFT_OUT or (self._loose and key in ("not", "if")):
                continue
            # where a member is open, as many as will may be met
            told = "anyOf" if key == "oneOf" and (self._loose or self._holds(one, where)) else key
            made[told] = self._member(key, one, where)
        return _modern(made) if self._old else made

    def _member(self, key: str, one: Any, where: _Where) -> Any:  # noqa: ANN401
        inner = where if key in _IN_PLACE else where.inside()
        if key in _MAPS and isinstance(one, dict):
            unsent = where.unsent if key == "properties" else _NONE
            return {n: self._write(s, inner) for n, s in one.items() if n not in unsent}
        if key in _LISTS | _ONES and isinstance(one, list):
            return [self._write(s, inner) for s in one]
        if key in _ONES:
            return self._write(one, inner)
        if key == "required" and isinstance(one, list):
            return [n for n in one if n not in where.unsent]
        if key == "dependentRequired" and isinstance(one, dict):
            return {n: [m for m in more if m not in where.unsent] for n, more in one.items()}
        return one

    def _holds(self, members: Any, where: _Where) -> bool:  # noqa: ANN401
        """Whether one of ``members`` is what is being written."""
        return any(isinstance(m, dict) and m.get("$ref") in where.here for m in members)

    def _leads(self, reference: str) -> _Names:
        """The references that ``reference`` leads to without a step into the value."""
        if reference not in self._led:
            reached: set[str] = set()
            left = [reference]
            while left:
                new = _in_place(found(self._document, left.pop())) - reached
                reached |= new
                left += new
            self._led[reference] = frozenset(reached)
        return self._led[reference]

    def _unsent(self, schema: Any) -> _Names:  # noqa: ANN401
        """The properties that a request does not hold, wherever they are told in this place."""
        if not isinstance(schema, dict):
            return _NONE
        if id(schema) not in self._unsent_of:
            self._unsent_of[id(schema)] = (schema, _NONE)  # one that holds itself ends here
            told = schema.get("properties")
            own = {n for n, s in told.items() if self._read_only(s)} if isinstance(told, dict) else set()
            if isinstance(reference := schema.get("$ref"), str):
                own |= self._unsent(found(self._document, reference))
            for one in _list(schema.get("allOf")):
                own |= self._unsent(one)
            for key in ("anyOf", "oneOf"):
                if branches := [self._unsent(one) for one in _list(schema.get(key))]:
                    own |= frozenset.intersection(*branches)
            self._unsent_of[id(schema)] = (schema, frozenset(own))
        return self._unsent_of[id(schema)][1]

    def _read_only(self, schema: Any) -> bool:  # noqa: ANN401
        def beside(one: dict[str, Any]) -> Iterator[Any]:
            yield from _list(one.get("allOf"))
            if isinstance(reference := one.get("$ref"), str):
                yield found(self._document, reference)

        return any(one.get("readOnly") is True for one in _reached(schema, beside))


def _reached(schema: Any, inner: Callable[[dict[str, Any]], Iterable[Any]]) -> Iterator[dict[str, Any]]:  # noqa: ANN401
    """``schema`` and all schemas that ``inner`` leads to from it, each once."""
    left, seen = [schema], set()
    while left:
        one = left.pop()
        if not isinstance(one, dict) or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        left += inner(one)


def _in_place(schema: Any) -> set[str]:  # noqa: ANN401
    """The references of a schema that are of the same value as it."""
    parts = _reached(schema, _of_the_same_value)
    return {one["$ref"] for one in parts if isinstance(one.get("$ref"), str)}


def _of_the_same_value(one: dict[str, Any]) -> Iterator[Any]:
    for key in _IN_PLACE & one.keys():
        inner = one[key]
        if key in _MAPS and isinstance(inner, dict):
            yield from inner.values()
        else:
            yield from inner if isinstance(inner, list) else [inner]


def _list(value: Any) -> list[Any]:  # noqa: ANN401
    return value if isinstance(value, list) else []


def _modern(made: dict[str, Any]) -> dict[str, Any]:
    """A schema of OpenAPI 3.0 in the words of JSON Schema, which 3.1 uses: null and open limits."""
    for limit, opened in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(made.get(opened), bool):
            is_open = made.pop(opened)
            if is_open and limit in made:
                made[opened] = made.pop(limit)
    if made.get("nullable") is True and isinstance(made.get("type"), str):
        made["type"] = [made["type"], "null"]
        if isinstance(made.get("enum"), list) and None not in made["enum"]:
            made["enum"] = [*made["enum"], None]
    return made


def at(document: dict[str, Any], value: Any) -> Any:  # noqa: ANN401
    """What ``value`` is or refers to; None where that is not in the document."""
    seen: set[str] = set()
    while isinstance(value, dict) and isinstance(reference := value.get("$ref"), str):
        if reference in seen:
            return None
        seen.add(reference)
        value = found(document, reference)
    return value


def found(document: dict[str, Any], reference: str) -> Any:  # noqa: ANN401
    """What is at a JSON pointer of the document; None where nothing is, or it is another's."""
    if not reference.startswith("#/"):
        return None
    there: Any = document
    for part in reference[2:].split("/"):
        name = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(there, list) and name.isdecimal() and int(name) < len(there):
            there = there[int(name)]
        else:
            there = there.get(name) if isinstance(there, dict) else None
    return there
