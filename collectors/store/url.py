"""The address of a store: an embedded folder or a ClickHouse server."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from collectors.store.errors import StoreError

PASSWORD_VARIABLE = "STAGELENS_STORE_PASSWORD"  # noqa: S105  the variable's name
DEFAULT_DATABASE = "otel"
HOW = "give chdb:///ABSOLUTE/PATH or clickhouse://USER@HOST:PORT/DATABASE"


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """Parsed store address; its text form never shows the password."""

    kind: Literal["chdb", "clickhouse"]
    database: str = DEFAULT_DATABASE
    path: Path | None = None
    host: str = ""
    port: int = 8123
    user: str = "default"
    secure: bool = False
    password: str = field(default="", repr=False)

    @classmethod
    def parse(cls, text: str) -> StoreUrl:
        """Parse ``chdb:///path`` or ``clickhouse[s]://user[:password]@host:port/db``.

        Raises:
            StoreError: exit code 2, for any other form.
        """
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError:
            raise StoreError(f"store address is malformed: {HOW}", 2) from None
        if parts.scheme == "chdb":
            return cls._embedded(parts.netloc, unquote(parts.path))
        if parts.scheme in ("clickhouse", "clickhouses"):
            if not parts.hostname:
                raise StoreError(f"store address names no host: {HOW}", 2)
            secure = parts.scheme == "clickhouses"
            return cls(
                kind="clickhouse",
                database=_database(parts.path.strip("/") or DEFAULT_DATABASE),
                host=parts.hostname,
                port=port or (8443 if secure else 8123),
                user=unquote(parts.username or "default"),
                secure=secure,
                password=unquote(parts.password or "") or os.environ.get(PASSWORD_VARIABLE, ""),
            )
        raise StoreError(f"store kind {parts.scheme or '(none)'} is not known: {HOW}", 2)

    @classmethod
    def _embedded(cls, netloc: str, path: str) -> StoreUrl:
        if netloc or not path.strip("/"):
            raise StoreError(
                f"an embedded store needs an absolute folder after chdb:// : {HOW}", 2
            )
        return cls(kind="chdb", path=Path(path))

    def __str__(self) -> str:
        if self.kind == "chdb":
            return f"chdb://{self.path}"
        scheme = "clickhouses" if self.secure else "clickhouse"
        return f"{scheme}://{self.user}@{self.host}:{self.port}/{self.database}"


def _database(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", name):
        raise StoreError(f"database name {name!r} must be letters, digits and _: rename it", 2)
    return name
