"""ClickHouse's HTTP interface in front of the embedded engine, as a process of its own.

There is no ClickHouse server where the tests run. This lets the real HTTP client, with its
passwords, settings, compressed Native inserts and error codes, talk to the real engine. What
it cannot show is a server's own networking, merges under load and replication.

``python -m tests.support.clickhouse_front FOLDER READY_FILE USERS_XML``: users, their rights
and the names of the variables with their passwords come from the users file.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl
from xml.etree import ElementTree

import chdb
import lz4.frame
import uvicorn
import zstandard

NOT_SETTINGS = {
    "query", "database", "query_id", "session_id", "compress", "client_protocol_version",
    "enable_http_compression", "http_headers_progress_interval_ms", "send_progress_in_http_headers",
    "wait_end_of_query", "cancel_http_readonly_queries_on_client_close", "default_format",
}  # fmt: skip


class Front:
    """One statement at a time, as the embedded engine wants it."""

    def __init__(self, folder: Path, users: dict[str, dict[str, Any]]) -> None:
        self.engine = chdb.connect(str(folder))
        self.users = users
        self.gate = asyncio.Lock()
        for name, user in users.items():
            self.engine.query(f"CREATE USER OR REPLACE {name}", "TSV")
            for grant in user["grants"]:
                self.engine.query(f"{grant} TO {name}", "TSV")

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:  # noqa: ANN401
        if scope["type"] != "http":
            return
        body, more = b"", True
        while more:
            part = await receive()
            body += part.get("body", b"")
            more = part.get("more_body", False)
        headers = {k.decode().lower(): v.decode() for k, v in scope["headers"]}
        params = dict(parse_qsl(scope["query_string"].decode(), keep_blank_values=True))
        async with self.gate:
            code, answer = await asyncio.to_thread(self._answer, headers, params, body)
        told = [(b"content-type", b"application/octet-stream"), (b"x-clickhouse-timezone", b"UTC")]
        if code != 200:
            number = re.search(rb"Code: (\d+)", answer)
            told.append((b"x-clickhouse-exception-code", number[1] if number else b"1"))
        await send({"type": "http.response.start", "status": code, "headers": told})
        await send({"type": "http.response.body", "body": answer})

    def _answer(self, headers: dict[str, str], params: dict[str, str], body: bytes) -> tuple[int, bytes]:
        user, _, password = base64.b64decode(headers.get("authorization", "Basic Og==")[6:]).decode().partition(":")
        known = self.users.get(user)
        if known is None or known["password"] != password:
            return 403, b"Code: 516. DB::Exception: Authentication failed. (AUTHENTICATION_FAILED)"
        plain = _decompress(body, headers.get("content-encoding", ""))
        settings = {
            k: v for k, v in params.items() if k not in NOT_SETTINGS and not k.startswith("param_")
        }
        bound = {k.removeprefix("param_"): v for k, v in params.items() if k.startswith("param_")}
        try:
            return 200, self._run(user, known, params, plain, settings, bound)
        except Exception as problem:  # noqa: BLE001  told to the client, as a server does
            text = str(problem)
            return (500 if "Code: " in text else 400), text.encode()

    def _run(
        self, user: str, known: dict[str, Any], params: dict[str, str], body: bytes,
        settings: dict[str, str], bound: dict[str, str],
    ) -> bytes:  # fmt: skip
        if known["readonly"] and (beyond := set(settings) - known["changeable"]):
            raise ValueError(f"Code: 164. DB::Exception: Cannot modify {sorted(beyond)} in readonly mode.")
        sql = params.get("query") or body.decode()
        file = None
        if params.get("query") and body:
            with tempfile.NamedTemporaryFile(delete=False, suffix=".native") as made:
                made.write(body)
            file = made.name
            sql = re.sub(r"\s+FORMAT (\w+)\s*$", rf" FROM INFILE '{file}' FORMAT \1", sql)
        for name, value in settings.items():
            quoted = value.replace("'", "''")
            self.engine.query(f"SET {name} = '{quoted}'", "TSV")
        try:
            if params.get("database"):
                self.engine.query(f"USE `{params['database']}`", "TSV")
            found = self.engine.query(f"EXECUTE AS {user} {sql}", "TSV", params=bound)
            return bytes(found.bytes())
        finally:
            for name in settings:
                self.engine.query(f"SET {name} = DEFAULT", "TSV")
            if file:
                Path(file).unlink()


def _decompress(body: bytes, encoding: str) -> bytes:
    if encoding == "lz4":
        return bytes(lz4.frame.decompress(body))
    if encoding == "zstd":
        return zstandard.ZstdDecompressor().decompressobj().decompress(body)
    return body


def read_users(path: Path) -> dict[str, dict[str, Any]]:
    """Users with password, grants and what their profile lets them change."""
    root = ElementTree.parse(path).getroot()
    found = {}
    for user in root.find("users") or ():
        profile = root.find(f"profiles/{user.findtext('profile')}")
        assert profile is not None
        variable = user.find("password")
        assert variable is not None
        found[user.tag] = {
            "password": os.environ[variable.attrib["from_env"]],
            "grants": [query.text for query in user.iter("query")],
            "readonly": profile.findtext("readonly") == "1",
            "changeable": {
                one.tag for one in profile.find("constraints") or () if one.find("changeable_in_readonly") is not None
            },
        }
    return found


async def main(folder: str, ready: str, users: str) -> None:
    app = Front(Path(folder), read_users(Path(users)))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", lifespan="off"))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    Path(ready).write_text(json.dumps({"port": port}), encoding="utf-8")
    await serving


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
