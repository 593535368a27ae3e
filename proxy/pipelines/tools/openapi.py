"""Operations of an OpenAPI document as tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from proxy.errors import ProxyError
from proxy.pipelines.callables import headers_from_env
from proxy.pipelines.problems import StageProblem
from proxy.pipelines.runs import Trace
from proxy.pipelines.settings import OpenApiTools
from proxy.pipelines.settings_values import called
from proxy.pipelines.tools.answers import told
from proxy.pipelines.tools.kit import Call, ReadyTool, check_schema
from proxy.pipelines.tools.openapi_address import address
from proxy.pipelines.tools.openapi_document import Operation, operations, read_document
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
        for name, operation in found.items():
            self._check_headers(name, operation)
        if missing := [n for n in given.operations if n not in found]:
            raise ProxyError(f"{given.document} has no operation {missing[0]}: check operationId")
        return [check_schema(self._ready(name, found[name])) for name in given.operations]

    async def close(self) -> None:
        await self._web.close()

    def _check_headers(self, name: str, operation: Operation) -> None:
        given = {header.lower() for header in self._headers}
        if lacking := [header for header in operation.headers if header.lower() not in given]:
            raise ProxyError(
                f"{self._settings.document}: operation {name} needs the header {lacking[0]}: give it "
                "with headers_env"
            )

    def _ready(self, name: str, operation: Operation) -> ReadyTool:
        given = self._settings
        return ReadyTool(
            called(name), operation.description, operation.schema, given.timeout_s,
            given.max_result_bytes, self._call_of(operation),
            left_out=frozenset(operation.schema["properties"]) - {*operation.schema["required"]},
        )  # fmt: skip

    def _call_of(self, operation: Operation) -> Call:
        async def call(arguments: dict[str, Any], trace: Trace) -> str:
            url, body = address(self._settings.base_url, operation, arguments)
            headers = {**self._headers, "traceparent": trace.traceparent}
            if body is not None:
                headers["content-type"] = operation.body_type
            most = self._settings.max_result_bytes
            return told(*await self._web.fetch(operation.method, url, headers, body, most))

        return call
