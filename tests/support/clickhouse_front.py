"""ClickHouse's HTTP interface in front of the embedded engine, as a process of its own.

There is no ClickHouse server where the tests run. This lets the real HTTP client, with its
passwords, settings, compressed Native inserts and error codes, talk to the real engine, which
reads the composition's own users file: rights and profiles are enforced by ClickHouse. What it
cannot show is a server's networking, merges under load and replication.

``python -m tests.support.clickhouse_front FOLDER READY_FILE USERS_XML USER``: the embedded
engine has one session, of ``default``; here it gets the password, rights and profile of USER,
and another user is refused.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import re
import socket
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl
from xml.etree import ElementTree as ET

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

    def __init__(self, folder: Path, session: Session) -> None:
        self.engine = chdb.connect(f"{folder}?config-file={session.config}")
        self.session = session
        self.gate = asyncio.Lock()

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
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
        told = base64.b64decode(headers.get("authorization", "Basic Og==").removeprefix("Basic "))
        if told.decode() != f"{self.session.user}:{self.session.password}":
            return 403, b"Code: 516. DB::Exception: Authentication failed. (AUTHENTICATION_FAILED)"
        plain = _decompress(body, headers.get("content-encoding", ""))
        try:
            return 200, self._run(params, plain)
        except Exception as problem:  # noqa: BLE001  told to the client, as a server does
            return 500, str(problem).encode()

    def _run(self, params: dict[str, str], body: bytes) -> bytes:
        settings = {
            k: v for k, v in params.items() if k not in NOT_SETTINGS and not k.startswith("param_")
        }
        for name, most in self.session.changeable.items():
            if name in settings and float(settings.pop(name)) > most:
                raise RuntimeError(f"Code: 452. DB::Exception: {name} shouldn't be greater than {most}")
        bound = {k.removeprefix("param_"): v for k, v in params.items() if k.startswith("param_")}
        sql, body = _statement(params.get("query", ""), body)
        file = None
        if body:
            with tempfile.NamedTemporaryFile(delete=False, suffix=".native") as made:
                made.write(body)
            file = made.name
            sql = re.sub(r"\s+FORMAT (\w+)\s*$", rf" FROM INFILE '{file}' FORMAT \1", sql)
        try:
            for name, value in settings.items():
                quoted = value.replace("'", "''")
                self.engine.query(f"SET {name} = '{quoted}'", "TSV")
            if params.get("database"):
                self.engine.query(f"USE `{params['database']}`", "TSV")
            return bytes(self.engine.query(sql, "TSV", params=bound).bytes())
        finally:
            for name in settings:
                with contextlib.suppress(RuntimeError):
                    self.engine.query(f"SET {name} = DEFAULT", "TSV")
            if file:
                Path(file).unlink()


def _statement(asked: str, body: bytes) -> tuple[str, bytes]:
    """The SQL, from the address or the body, and the rows that come with an insert."""
    if asked:
        return asked, body
    insert = re.match(rb"INSERT INTO [^\n]*? FORMAT \w+\s*?\n", body)
    if insert:
        return insert[0].decode().strip(), body[insert.end() :]
    return body.decode(), b""


def _decompress(body: bytes, encoding: str) -> bytes:
    if encoding == "lz4":
        return bytes(lz4.frame.decompress(body))
    if encoding == "zstd":
        return zstandard.ZstdDecompressor().decompressobj().decompress(body)
    return body


@dataclass(frozen=True)
class Session:
    """Whose rights the engine's one session has.

    ``changeable`` are settings that a read-only profile may change, with their greatest
    values: a server lets it do so, the embedded engine knows no such exception.
    """

    user: str
    password: str
    config: Path
    changeable: dict[str, float]


def write_config(folder: Path, users: Path, user: str) -> Session:
    """A configuration whose ``default`` is ``user`` of the users file."""
    tree = ET.parse(users)
    root = tree.getroot()
    profiles, listed = root.find("profiles"), root.find("users")
    assert profiles is not None
    assert listed is not None
    ET.SubElement(profiles, "default")
    ET.SubElement(ET.SubElement(root, "quotas"), "default")
    wanted = listed.find(user)
    assert wanted is not None
    password = wanted.find("password")
    assert password is not None
    secret = os.environ[password.attrib["from_env"]]
    changeable = {}
    for constraints in root.iter("constraints"):
        for one in constraints:
            if (mark := one.find("changeable_in_readonly")) is not None:
                one.remove(mark)
                if wanted.findtext("profile") == next(p.tag for p in profiles if constraints in list(p)):
                    changeable[one.tag] = float(one.findtext("max") or "inf")
    session = ET.SubElement(listed, "default")
    ET.SubElement(session, "password")
    session.extend(part for part in wanted if part.tag != "password")
    folder.mkdir(parents=True, exist_ok=True)
    tree.write(folder / "users.xml")
    (folder / "config.xml").write_text(
        f"<clickhouse><users_config>{folder / 'users.xml'}</users_config><user_directories><users_xml>"
        f"<path>{folder / 'users.xml'}</path></users_xml></user_directories></clickhouse>",
        encoding="utf-8",
    )
    return Session(user, secret, folder / "config.xml", changeable)


def main(folder: str, ready: str, users: str, user: str) -> None:
    app = Front(Path(folder), write_config(Path(folder).with_suffix(f".{user}"), Path(users), user))
    with socket.create_server(("127.0.0.1", 0)) as sock:
        Path(ready).write_text(json.dumps({"port": sock.getsockname()[1]}), encoding="utf-8")
        uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off")).run(sockets=[sock])


if __name__ == "__main__":
    main(*sys.argv[1:5])
