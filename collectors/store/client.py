"""One client for an embedded ClickHouse and for a server."""

from __future__ import annotations

import re
import socket
import ssl
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from collectors.store.cluster import LOCAL
from collectors.store.errors import (
    StoreBusy,
    StoreError,
    StoreGone,
    StoreRefused,
    StoreTooLarge,
)
from collectors.store.lock import FolderLock, lock_folder
from collectors.store.settings import StoreSettings
from collectors.store.url import StoreUrl

MEMORY_CODE = 241
RETRYABLE_CODES = frozenset({159, 160, 164, 202, 203, 209, 210, 243, 252, 285, 319, 999})
"""ClickHouse error codes that may pass: time-outs, disk space, parts, network, keeper."""

CODE_REASONS: Mapping[int | None, str] = {
    192: "the user is not known there", 193: "the password is wrong",
    497: "the user lacks the rights", 516: "user or password is wrong",
}  # fmt: skip
CAUSE_REASONS: Mapping[type[BaseException], str] = {
    ConnectionRefusedError: "nothing listens there",
    socket.gaierror: "the host name is not known",
    ssl.SSLError: "it does not speak TLS as asked",
    TimeoutError: "it does not answer",
    ConnectionResetError: "it closed the connection",
}
"""Why a server cannot be reached, in place of the driver's text."""

INSERT_SETTINGS: Mapping[str, int] = {
    "async_insert": 0,
    "insert_deduplicate": 1,
    "deduplicate_blocks_in_dependent_materialized_views": 1,
    "max_partitions_per_insert_block": 0,  # one batch may span all days that are kept
}
"""Said with every insert, because the defaults differ between ClickHouse versions."""


class QueryStore(Protocol):
    """What readers need of a store."""

    database: str

    def query(self, sql: str, params: Mapping[str, object]) -> list[dict[str, object]]: ...


class Store:
    """An open store. Thread-safe; ``close`` may be called twice.

    The embedded engine runs one statement at a time, so its calls are serialised.
    """

    def __init__(self, client: Any, url: StoreUrl, settings: StoreSettings, lock: FolderLock | None) -> None:  # noqa: ANN401
        self._client = client
        self._lock = lock
        self._reader: Any = None  # a handle of its own, so that it may work beside an insert
        self._gate = threading.Lock()
        self._convert_gate = threading.Lock()
        self._closed = False
        self._inode = _inode(url)
        self.url = url
        self.database = url.database
        self.settings = settings

    def query(self, sql: str, params: Mapping[str, object]) -> list[dict[str, object]]:
        """Rows as dictionaries; ``params`` are bound to ``{name:Type}`` by ClickHouse.

        Raises:
            StoreError: the store refused or did not answer in time.
        """
        limits = {"max_execution_time": self.settings.query_timeout_s}
        with self._using() as client:
            try:
                result = client.query(sql, parameters=dict(params), settings=limits)
            except Exception as problem:
                raise _translated(problem) from problem
            return list(result.named_results())

    def held(self, table: str) -> str:
        """Where rows of ``table`` are deleted: not through a table over all shards, which refuses it."""
        name = f"`{self.database}`.{table}"
        cluster = self.settings.cluster
        return name if cluster is None else f"{name}{LOCAL} ON CLUSTER `{cluster}`"

    def command(self, sql: str, params: Mapping[str, object] | None = None) -> None:
        """Run a statement without a result."""
        with self._using() as client:
            try:
                client.command(sql, parameters=dict(params or {}))
            except Exception as problem:
                raise _translated(problem) from problem

    def insert(
        self, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]], token: str
    ) -> None:
        """Write one batch, exactly once for one ``token`` however often it is tried.

        Raises:
            StoreBusy: it may succeed later, with the same rows and the same token.
            StoreRefused: it never will.
        """
        settings = self.insert_settings(token)
        with self._using() as client:
            try:
                client.insert(
                    table, rows, column_names=list(columns), database=self.database,
                    settings=settings,
                )  # fmt: skip
            except Exception as problem:
                raise _translated(problem) from problem
            self.check_here()  # gone meanwhile: the rows went with it

    def insert_native(
        self, table: str, columns: Sequence[str], block: bytes, token: str, settings: Mapping[str, object]
    ) -> None:
        """As ``insert``, for a block in ClickHouse's Native format."""
        told = {**self.insert_settings(token), **settings}
        with self._using() as client:
            try:
                client.raw_insert(
                    f"`{self.database}`.{table}", list(columns), block, settings=told, fmt="Native"
                )
            except Exception as problem:
                raise _translated(problem) from problem
            self.check_here()

    def convert(self, sql: str) -> bytes:
        """Run a SELECT that needs no table in an embedded engine of this process; Native format.

        Raises:
            StoreError: it failed; code 395 (``throwIf``) is a ``StoreRefused``.
        """
        with self._convert_gate:
            try:
                if self._reader is None:
                    import clickhouse_connect

                    where = {} if self.url.path is None else {"path": str(self.url.path)}
                    self._reader = clickhouse_connect.get_client(interface="chdb", **where)
                made: bytes = self._reader.raw_query(sql, fmt="Native")
            except Exception as problem:
                raise _translated(problem) from problem
            return made

    def insert_settings(self, token: str) -> dict[str, object]:
        """What is said with an insert so that it counts once, and only once it is kept."""
        sync = {"distributed_foreground_insert": 1} if self.settings.cluster else {}
        return {**INSERT_SETTINGS, **sync, "insert_deduplication_token": token}

    def check_here(self) -> None:
        """The embedded engine would write on into nowhere; the rows come again once it is back.

        Raises:
            StoreError: it was closed.
            StoreGone: the folder is not the one that was opened.
        """
        if self._closed:
            raise StoreError("the store is closed")
        if _inode(self.url) != self._inode:
            raise StoreGone(
                f"store folder {self.url.path} was moved or deleted while it was open: put it back, "
                "or start the collector again for a new store"
            )

    def close(self) -> None:
        with self._gate:
            if not self._closed:
                self._closed = True
                self._client.close()
                if self._reader is not None:
                    self._reader.close()
                if self._lock is not None:
                    self._lock.release()

    def _using(self) -> _Guard:
        return _Guard(self._gate, self._client, self)

    @property
    def closed(self) -> bool:
        return self._closed


class _Guard:
    """The client, held alone; a closed store is refused."""

    def __init__(self, gate: threading.Lock, client: Any, store: Store) -> None:  # noqa: ANN401
        self._gate = gate
        self._client = client
        self._store = store

    def __enter__(self) -> Any:  # noqa: ANN401
        self._gate.acquire()
        try:
            self._store.check_here()
        except StoreError:
            self._gate.release()
            raise
        return self._client

    def __exit__(self, *_: object) -> None:
        self._gate.release()


def _inode(url: StoreUrl) -> int | None:
    """Which folder lies at an embedded store's path; None for a server and for no folder."""
    try:
        return None if url.path is None else url.path.stat().st_ino
    except OSError:
        return None


def open_store(url: StoreUrl, settings: StoreSettings | None = None) -> Store:
    """Open ``url``, making an embedded folder and the database where they are missing.

    Raises:
        StoreOwned, StoreUnwritable, StoreError: one sentence each.
    """
    import clickhouse_connect

    settings = settings or StoreSettings()
    lock = None
    if url.kind == "chdb":
        assert url.path is not None
        if settings.cluster:
            raise StoreError(
                "an embedded store is no cluster: give --store clickhouse://…, or no --cluster", 2
            )
        lock = lock_folder(url.path)
        options: dict[str, Any] = {"interface": "chdb", "path": str(url.path)}
    else:
        options = {
            "host": url.host, "port": url.port, "username": url.user, "password": url.password,
            "secure": url.secure, "connect_timeout": 5, "autogenerate_session_id": False,
        }  # fmt: skip
    try:
        client = clickhouse_connect.get_client(**options)
        on = f" ON CLUSTER `{settings.cluster}`" if settings.cluster else ""
        client.command(f"CREATE DATABASE IF NOT EXISTS `{url.database}`{on}")
    except Exception as problem:  # noqa: BLE001  the driver raises many kinds
        if lock is not None:
            lock.release()
        reason = _plain_reason(problem)
        raise StoreError(f"store {url} cannot be opened ({reason}): check address and rights") from None
    return Store(client, url, settings, lock)


def _translated(problem: Exception) -> StoreError:
    """The error class by ClickHouse's code; what carries no code is a connection's fault."""
    if isinstance(problem, StoreError):
        return problem
    code = _code(problem)
    text = _plain_reason(problem)
    if code is None and isinstance(problem, (TypeError, ValueError, OverflowError)):
        return StoreRefused(f"the store cannot take the data: {text}")
    if code == MEMORY_CODE:
        return StoreTooLarge(f"the store lacks memory for this: {text}")
    if code is None or code in RETRYABLE_CODES:
        return StoreBusy(f"the store is not available: {text}")
    return StoreRefused(f"the store refused: {text}")


def _code(problem: Exception) -> int | None:
    found = re.search(r"(?:Code: |code |error code )(\d+)", str(problem))
    return int(found.group(1)) if found else None


def _plain_reason(problem: Exception) -> str:
    """What is wrong in a few words where it is known; else the first line that was said."""
    if (code := _code(problem)) in CODE_REASONS:
        return CODE_REASONS[code]
    cause: BaseException | None = problem
    for _ in range(8):
        if cause is None:
            break
        for kind, reason in CAUSE_REASONS.items():
            if isinstance(cause, kind):
                return reason
        cause = cause.__cause__ or cause.__context__
    return _first_line(problem)


def _first_line(problem: Exception) -> str:
    return (str(problem).strip().splitlines() or [type(problem).__name__])[0][:300]
