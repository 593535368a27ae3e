"""Operations of an OpenAPI document as tools."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import yaml

from proxy.errors import ProxyError
from proxy.pipelines.callables import from_env
from proxy.pipelines.problems import StageProblem
from proxy.pipelines.runs import Trace
from proxy.pipelines.settings import OpenApiTools
from proxy.pipelines.tools.kit import Call, ReadyTool, check_schema
from proxy.pipelines.web import Web

METHODS = ("get", "post", "put", "patch", "delete")
PLACES = ("path", "query")
JSON = "json"
SEPARATORS = {"joined": ",", "spaceDelimited": " ", "pipeDelimited": "|"}


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation: where each argument goes (path, query or the JSON body), and how its parts
    are told apart there (OpenAPI's ``style`` and ``explode``).
    """

    method: str
    path: str
    places: dict[str, tuple[str, str]]
    schema: dict[str, Any]
    description: str


class OpenApiSource:
    """The operations that the settings name, of one document."""

    def __init__(self, settings: OpenApiTools) -> None:
        self._settings = settings
        self._headers = from_env(settings.headers_env)
        self._web = Web(settings.allow_hosts, settings.private_hosts)

    async def start(self) -> list[ReadyTool]:
        given = self._settings
        found = dict(operations(read_document(Path(given.document))))
        await self._web.start()
        try:
            self._web.check(given.base_url)
        except StageProblem as problem:
            raise ProxyError(f"OpenAPI tools at {given.base_url}: {problem.text}") from None
        if missing := [n for n in given.operations if n not in found]:
            raise ProxyError(f"{given.document} has no operation {missing[0]}: check operationId")
        return [check_schema(self._ready(name, found[name])) for name in given.operations]

    async def close(self) -> None:
        await self._web.close()

    def _ready(self, name: str, operation: Operation) -> ReadyTool:
        given = self._settings
        return ReadyTool(
            name, operation.description, operation.schema, given.timeout_s,
            given.max_result_bytes, self._call_of(operation),
        )  # fmt: skip

    def _call_of(self, operation: Operation) -> Call:
        async def call(arguments: dict[str, Any], trace: Trace) -> str:
            url, body = address(self._settings.base_url, operation, arguments)
            headers = {**self._headers, "traceparent": trace.traceparent}
            most = self._settings.max_result_bytes
            answer = await self._web.ask(operation.method, url, headers, body, most)
            return answer.decode("utf-8", "replace")

        return call


def address(base: str, operation: Operation, arguments: dict[str, Any]) -> tuple[str, object]:
    """The URL with path and query filled in, every character of them quoted, and the body."""
    path = operation.path
    query: list[tuple[str, str]] = []
    for name, (place, style) in operation.places.items():
        if name not in arguments:
            continue
        value = arguments[name]
        if place == "path":
            text = ",".join(map(_word, value)) if isinstance(value, list) else _word(value)
            if text in (".", ".."):
                raise StageProblem("bad_arguments", f"argument {name} may not be {text}")
            path = path.replace("{" + name + "}", quote(text, safe=""))
        else:
            query += _pairs(name, value, style)
    if "{" in path:
        raise StageProblem("bad_arguments", "an argument of the path is missing")
    url = base.rstrip("/") + path + ("?" + urlencode(query) if query else "")
    return url, arguments.get("body")


def _pairs(name: str, value: object, style: str) -> list[tuple[str, str]]:
    """One argument in a query."""
    if isinstance(value, list) and style in SEPARATORS:
        return [(name, SEPARATORS[style].join(map(_word, value)))]
    if isinstance(value, list) and style != JSON:
        return [(name, _word(one)) for one in value]
    if isinstance(value, dict) and style == "deepObject":
        return [(f"{name}[{key}]", _word(one)) for key, one in value.items()]
    if isinstance(value, dict) and style == "form":
        return [(key, _word(one)) for key, one in value.items()]
    return [(name, _word(value))]


def _word(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def read_document(file: Path) -> dict[str, Any]:
    """The document.

    Raises:
        ProxyError: it cannot be read or is no OpenAPI 3 document.
    """
    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, RecursionError, yaml.YAMLError) as problem:
        raise ProxyError(
            f"OpenAPI document {file} cannot be read ({type(problem).__name__}): check it"
        ) from None
    if not isinstance(document, dict) or not re.match(r"3\.", str(document.get("openapi", ""))):
        raise ProxyError(f"{file} is no OpenAPI 3 document: it has no `openapi: 3.…`")
    return document


def operations(document: dict[str, Any]) -> Iterator[tuple[str, Operation]]:
    """Every operation with an operationId, by that id."""
    for path, item in (document.get("paths") or {}).items():
        for method in METHODS:
            operation = item.get(method) if isinstance(item, dict) else None
            if isinstance(operation, dict) and operation.get("operationId"):
                shared = item.get("parameters") or []
                yield (
                    operation["operationId"],
                    _operation(document, path, method, operation, shared),
                )


def _operation(
    document: dict[str, Any], path: str, method: str, operation: dict[str, Any], shared: list[Any]
) -> Operation:
    places: dict[str, tuple[str, str]] = {}
    properties: dict[str, Any] = {}
    required: list[str] = []
    for raw in [*shared, *(operation.get("parameters") or [])]:
        one = _resolved(document, raw)
        if one.get("in") not in PLACES:
            continue  # headers and cookies are the settings' to give, not the model's
        places[one["name"]] = (one["in"], _style(one))
        described = one if "schema" in one else next(iter((one.get("content") or {}).values()), {})
        properties[one["name"]] = described.get("schema") or {}
        if one.get("required") and one["name"] not in required:
            required.append(one["name"])
    body = _resolved(document, operation.get("requestBody") or {})
    content = (body.get("content") or {}).get("application/json")
    if content is not None:
        properties["body"] = content.get("schema") or {}
        if body.get("required"):
            required.append("body")
    about = operation.get("description") or operation.get("summary") or ""
    if str(document.get("openapi")).startswith("3.0"):
        properties = _modern(properties)
    schema = {"type": "object", "properties": properties, "required": required,
              "additionalProperties": False}  # fmt: skip
    return Operation(method.upper(), path, places, schema, about)


def _style(parameter: dict[str, Any]) -> str:
    """How a parameter's parts are told apart: ``form`` is one pair a part."""
    if "content" in parameter:
        return JSON
    style = str(parameter.get("style") or "form")
    whole = style in SEPARATORS or style == "deepObject"
    return style if whole or parameter.get("explode", style == "form") else "joined"


def _modern(schema: Any) -> Any:  # noqa: ANN401
    """A schema of OpenAPI 3.0 in the words of JSON Schema, which 3.1 uses: null and open limits."""
    if isinstance(schema, list):
        return [_modern(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _modern(value) for key, value in schema.items()}
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


def _resolved(
    document: dict[str, Any], value: Any, inside: frozenset[str] = frozenset()  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """``value`` with local references put in; others, and one inside itself, become "anything"."""
    if isinstance(value, list):
        return [_resolved(document, one, inside) for one in value]
    if not isinstance(value, dict):
        return value
    reference = value.get("$ref")
    if not isinstance(reference, str):
        return {key: _resolved(document, one, inside) for key, one in value.items()}
    if reference in inside or not reference.startswith("#/"):
        return {}
    found: Any = document
    for part in reference[2:].split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        found = found.get(name, {}) if isinstance(found, dict) else {}
    return _resolved(document, found, inside | {reference})
