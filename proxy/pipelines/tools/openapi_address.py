"""The URL of one call of an operation: each argument in its place, in the document's own style."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from proxy.pipelines.problems import StageProblem
from proxy.pipelines.text import clean

if TYPE_CHECKING:
    from proxy.pipelines.tools.openapi_document import Operation

JSON = "json"
STYLES = {
    "path": ("simple", "label", "matrix", JSON),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject", JSON),
}
"""By place, the usual one first."""
_BETWEEN = {"spaceDelimited": "%20", "pipeDelimited": "%7C"}
_RESERVED = ":/?@!$'()*="
"""Reserved characters that neither end a query nor begin another argument of it."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an argument goes: the parameter's own ``name``, ``where`` (path or query), and how its
    parts are told apart there, as OpenAPI has it.
    """

    name: str
    where: str
    style: str
    explode: bool
    reserved: bool = False


def address(base: str, operation: Operation, arguments: dict[str, Any]) -> tuple[str, object]:
    """The URL with path and query filled in, every character of them quoted, and the body.

    Raises:
        StageProblem: the path would lead elsewhere than the document says, or a list's items
            could not be told apart.
    """
    path = operation.path
    query: list[str] = []
    for name, place in operation.places.items():
        if name not in arguments:
            continue
        value = arguments[name]
        if place.where == "path":
            path = path.replace("{" + place.name + "}", _in_path(name, place, value))
        elif value is not None:
            query += _in_query(name, place, value)
    if "{" in path:
        raise StageProblem("bad_arguments", "an argument of the path is missing")
    # two arguments of one part may make up what none of them is
    if any(part in (".", "..") for part in path.split("/")):
        raise StageProblem("bad_arguments", "an argument of the path may not be dots alone")
    begins = "&" if "?" in operation.path else "?"  # some documents write a query into the path
    url = base.rstrip("/") + path + (begins + "&".join(query) if query else "")
    return url, arguments.get("body")


def _in_path(name: str, place: Place, value: object) -> str:
    """A path's argument. Without one the address would be that of another operation: of a whole
    list in place of one of its members.
    """
    if value in (None, "", [], {}) or (isinstance(value, list) and not any(map(_word, value))):
        raise StageProblem("bad_arguments", f"argument {name} may not be empty")
    if value in (".", ".."):
        raise StageProblem("bad_arguments", f"argument {name} may not be {value}")
    own = quote(place.name, safe="")
    begins, between = {
        "label": (".", "."), "matrix": (f";{own}=", f";{own}="),
    }.get(place.style, ("", ","))  # fmt: skip
    if isinstance(value, dict) and place.style == "matrix" and place.explode:
        begins = between = ";"
    if not place.explode:
        between = ","
    if place.style == JSON:
        return quote(json.dumps(value), safe="")
    return begins + between.join(_parts(name, place, value, between))


def _in_query(name: str, place: Place, value: object) -> list[str]:
    """One argument in a query: as many pairs as it makes there."""
    own, safe = quote(place.name, safe=""), _RESERVED if place.reserved else ""
    if place.style == JSON:
        return [f"{own}={quote(json.dumps(value), safe=safe)}"]
    if isinstance(value, dict) and place.style == "deepObject":
        keyed = ((f"{place.name}[{clean(key)}]", one) for key, one in value.items())
        return [f"{quote(key, safe='')}={quote(_word(one), safe=safe)}" for key, one in keyed]
    if isinstance(value, list | dict) and not place.explode and place.style != "deepObject":
        between = _BETWEEN.get(place.style, ",")
        return [f"{own}={between.join(_parts(name, place, value, between, safe))}"]
    if isinstance(value, list):
        return [f"{own}={quote(_word(one), safe=safe)}" for one in value]
    if isinstance(value, dict):
        return _parts(name, place, value, "&", safe)
    return [f"{own}={quote(_word(value), safe=safe)}"]


def _parts(name: str, place: Place, value: object, between: str, safe: str = "") -> list[str]:
    """The quoted items of a list, or an object's keys and values: as pairs where it is exploded,
    else in turn.

    Raises:
        StageProblem: one of them holds what stands between them, and quoting does not hide it.
    """
    if isinstance(value, dict) and place.explode:
        pairs = ((quote(clean(k), safe=""), quote(_word(v), safe=safe)) for k, v in value.items())
        made = [f"{key}={one}" for key, one in pairs]
    elif isinstance(value, dict):
        made = [quote(one, safe=safe) for k, v in value.items() for one in (clean(k), _word(v))]
    else:
        items = value if isinstance(value, list) else [value]
        made = [quote(_word(one), safe=safe) for one in items]
    if isinstance(value, list | dict) and any(between in one for one in made):
        told = {"%20": "a space", "%7C": "|"}.get(between, between)
        raise StageProblem(
            "bad_arguments", f"argument {name} may hold no {told} in an item: it stands between them"
        )
    return made


def _word(value: object) -> str:
    return clean(value) if isinstance(value, str) else json.dumps(value)
