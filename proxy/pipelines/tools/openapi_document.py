"""OpenAPI documents: their operations, and the JSON Schema of each one's arguments."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from proxy.errors import ProxyError
from proxy.pipelines.tools.openapi_address import JSON, STYLES, Place
from proxy.pipelines.tools.openapi_schema import arguments_schema, at

METHODS = ("get", "post", "put", "patch", "delete")
_IGNORED = ("accept", "content-type", "authorization")
"""Headers that OpenAPI has told elsewhere than as parameters."""
_JSON_TYPE = re.compile(r"application/(?:[\w.\-]+\+)?json\s*(?:;.*)?", re.IGNORECASE)
_ANY_TYPE = ("*/*", "application/*")

log = logging.getLogger("stagelens.proxy")


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation: where each argument goes, by the name that the model has for it; what is not
    there is the JSON ``body``, of the media type ``body_type``. ``headers`` must go with each call.
    """

    method: str
    path: str
    places: dict[str, Place]
    schema: dict[str, Any]
    description: str
    body_type: str = "application/json"
    headers: tuple[str, ...] = ()


class _Loader(yaml.SafeLoader):
    """Dates stay text: JSON has no others."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in found if tag != "tag:yaml.org,2002:timestamp"]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_document(file: Path) -> dict[str, Any]:
    """The document.

    Raises:
        ProxyError: it cannot be read or is no OpenAPI 3 document.
    """
    try:
        document = yaml.load(file.read_text(encoding="utf-8"), _Loader)  # noqa: S506  a SafeLoader
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as problem:
        raise ProxyError(
            f"OpenAPI document {file} cannot be read ({type(problem).__name__}): check it"
        ) from None
    if not isinstance(document, dict) or not re.match(r"3\.", str(document.get("openapi", ""))):
        raise ProxyError(f"{file} is no OpenAPI 3 document: it has no `openapi: 3.…`")
    return document


def operations(
    document: dict[str, Any], wanted: Collection[str] | None = None
) -> Iterator[tuple[str, Operation]]:
    """The operations with an operationId, by that id; with ``wanted``, those alone.

    Raises:
        ProxyError: one is there twice, is not as OpenAPI has it, or needs what is not sent.
    """
    seen: set[str] = set()
    for path, method, operation, shared in _told(document):
        name = operation.get("operationId")
        if not isinstance(name, str) or not name or (wanted is not None and name not in wanted):
            continue
        if name in seen:
            raise ProxyError(f"operation {name} is there twice: operationIds must differ")
        seen.add(name)
        try:
            yield name, _operation(document, str(path), method, operation, shared)
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as problem:
            raise ProxyError(
                f"operation {name} is not as OpenAPI 3 has it ({type(problem).__name__}): mend it"
            ) from None


def _told(document: dict[str, Any]) -> Iterator[tuple[object, str, dict[str, Any], list[Any]]]:
    paths = document.get("paths")
    for path, given in (paths if isinstance(paths, dict) else {}).items():
        item = at(document, given)
        for method in METHODS:
            operation = item.get(method) if isinstance(item, dict) else None
            if isinstance(operation, dict):
                yield path, method, operation, item.get("parameters") or []


def _operation(
    document: dict[str, Any], path: str, method: str, operation: dict[str, Any], shared: list[Any]
) -> Operation:
    name = operation["operationId"]
    kind, body, needed = _body(document, name, operation)
    given, headers = _parameters(document, name, [*shared, *(operation.get("parameters") or [])])
    places: dict[str, Place] = {}
    properties: dict[str, Any] = {}
    required: list[str] = []
    for called, one in _called(given, ["body"] if kind else []):
        places[called] = _place(name, one)
        described = one if "schema" in one else next(iter((one.get("content") or {}).values()), {})
        properties[called] = described.get("schema") or {}
        if one.get("required") or one["in"] == "path":
            required.append(called)
    _check_path(path, name, [p.name for p in places.values() if p.where == "path"])
    if kind:
        properties["body"] = body
        required += ["body"] if needed else []
    about = str(operation.get("description") or operation.get("summary") or "")
    schema = arguments_schema(document, name, properties, required)
    return Operation(
        method.upper(), path, places, schema, about, kind or "application/json", headers
    )


def _parameters(
    document: dict[str, Any], name: str, given: list[Any]
) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Those of path and query, and the headers that are needed; an operation's own parameter takes
    the place of its path's. Headers and cookies are the settings' to give, not the model's.
    """
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for raw in given:
        one = at(document, raw)
        if not isinstance(one, dict):
            raise ProxyError(f"operation {name} has a parameter that is not in the document: add it")
        found[str(one["name"]), one["in"]] = {**one, "name": str(one["name"])}
    headers = [n if where == "header" else "cookie" for (n, where), one in found.items()
               if where in ("header", "cookie") and one.get("required") is True]  # fmt: skip
    told = tuple(header for header in headers if header.lower() not in _IGNORED)
    return [one for one in found.values() if one["in"] in STYLES], told


def _called(
    given: list[dict[str, Any]], taken: list[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Parameters by the names that the model has for them: one name may be of the path and of the
    query, and the second is told with its place (``id_query``).
    """
    used = set(taken)
    own = {one["name"] for one in given}
    for one in given:
        called = one["name"]
        while called in used or (called != one["name"] and called in own):
            called += f"_{one['in']}"
        used.add(called)
        yield called, one


def _place(operation: str, parameter: dict[str, Any]) -> Place:
    """Where a parameter goes, and how.

    Raises:
        ProxyError: its style is none of its place.
    """
    name, where = parameter["name"], parameter["in"]
    style = JSON if "content" in parameter else str(parameter.get("style") or STYLES[where][0])
    if style not in STYLES[where]:
        raise ProxyError(
            f"operation {operation} has the parameter {name} with style {style}, which a {where} has "
            f"not: it has {', '.join(STYLES[where][:-1])}"
        )
    explode = bool(parameter.get("explode", style == "form"))
    return Place(name, where, style, explode, parameter.get("allowReserved") is True)


def _check_path(path: str, name: str, told: list[str]) -> None:
    if not path.startswith("/"):
        raise ProxyError(f"operation {name} has the path {path}: one begins with /")
    if missing := [n for n in re.findall(r"\{([^{}]*)\}", path) if n not in told]:
        raise ProxyError(f"operation {name} has no parameter for {missing[0]} of its path: add it")


def _body(
    document: dict[str, Any], name: str, operation: dict[str, Any]
) -> tuple[str, Any, bool]:
    """The body's media type ("" for none), its schema, and whether it is needed."""
    body = at(document, operation.get("requestBody") or {})
    if not isinstance(body, dict):
        raise ProxyError(f"operation {name} has a body that is not in the document: add it")
    content = body.get("content") or {}
    kind = next((k for k in content if _JSON_TYPE.fullmatch(k) or k in _ANY_TYPE), "")
    if kind:
        sent = "application/json" if kind in _ANY_TYPE else kind
        return sent, (content[kind] or {}).get("schema") or {}, bool(body.get("required"))
    if content and body.get("required"):
        raise ProxyError(f"operation {name} takes a body of {next(iter(content))}: JSON alone is sent")
    if content:
        log.warning("operation %s is called without its body, which is %s", name, next(iter(content)))
    return "", {}, False
