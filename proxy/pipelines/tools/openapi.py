"""Operations of an OpenAPI document as tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from proxy.errors import ProxyError
from proxy.pipelines.callables import headers_from_env
from proxy.pipelines.problems import StageProblem
from proxy.pipelines.runs import Trace
from proxy.pipelines.settings import OpenApiTools
from proxy.pipelines.settings_values import called
from proxy.pipelines.text import clean
from proxy.pipelines.tools.kit import Call, ReadyTool, check_schema
from proxy.pipelines.tools.openapi_document import (
    JSON,
    SEPARATORS,
    Operation,
    operations,
    read_document,
)
from proxy.pipelines.web import Web


class OpenApiSource:
    """The operations that the settings name, of one document."""

    def __init__(self, settings: OpenApiTools) -> None:
        self._settings = settings
        self._headers = headers_from_env(settings.headers_env)
        self._web = Web(settings.allow_hosts, settings.private_hosts)

    async def start(self) -> list[ReadyTool]:
        given = self._settings
        document = read_document(Path(given.document))
        try:
            found = dict(operations(document, given.operations))
        except ProxyError as problem:
            raise ProxyError(f"{given.document}: {problem}") from None
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
            called(name), operation.description, operation.schema, given.timeout_s,
            given.max_result_bytes, self._call_of(operation),
        )  # fmt: skip

    def _call_of(self, operation: Operation) -> Call:
        async def call(arguments: dict[str, Any], trace: Trace) -> str:
            url, body = address(self._settings.base_url, operation, arguments)
            headers = {**self._headers, "traceparent": trace.traceparent}
            if body is not None:
                headers["content-type"] = operation.body_type
            most = self._settings.max_result_bytes
            answer = await self._web.ask(operation.method, url, headers, body, most)
            return answer.decode("utf-8", "replace")

        return call


def address(base: str, operation: Operation, arguments: dict[str, Any]) -> tuple[str, object]:
    """The URL with path and query filled in, every character of them quoted, and the body.

    Raises:
        StageProblem: the path would lead elsewhere than the document says.
    """
    path = operation.path
    query: list[tuple[str, str]] = []
    for name, (place, style) in operation.places.items():
        if name not in arguments:
            continue
        value = arguments[name]
        if place == "path":
            path = path.replace("{" + name + "}", quote(_in_path(name, value), safe=""))
        elif value is not None:
            query += _pairs(name, value, style)
    if "{" in path:
        raise StageProblem("bad_arguments", "an argument of the path is missing")
    # two arguments of one part may make up what none of them is
    if any(part in (".", "..") for part in path.split("/")):
        raise StageProblem("bad_arguments", "an argument of the path may not be dots alone")
    url = base.rstrip("/") + path + ("?" + urlencode(query) if query else "")
    return url, arguments.get("body")


def _in_path(name: str, value: object) -> str:
    """A path's argument. Without one the address would be that of another operation: of a whole
    list in place of one of its members.
    """
    text = ",".join(map(_word, value)) if isinstance(value, list) else _word(value)
    if value is None or not text:
        raise StageProblem("bad_arguments", f"argument {name} may not be empty")
    if text in (".", ".."):
        raise StageProblem("bad_arguments", f"argument {name} may not be {text}")
    return text


def _pairs(name: str, value: object, style: str) -> list[tuple[str, str]]:
    """One argument in a query."""
    if isinstance(value, list) and style in SEPARATORS:
        return [(name, SEPARATORS[style].join(map(_word, value)))]
    if isinstance(value, list) and style != JSON:
        return [(name, _word(one)) for one in value]
    if isinstance(value, dict) and style == "deepObject":
        return [(f"{name}[{clean(key)}]", _word(one)) for key, one in value.items()]
    if isinstance(value, dict) and style == "form":
        return [(clean(key), _word(one)) for key, one in value.items()]
    return [(name, _word(value))]


def _word(value: object) -> str:
    return clean(value) if isinstance(value, str) else json.dumps(value)
