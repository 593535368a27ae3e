"""One client for an embedded ClickHouse and for a server."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from collectors.store.cluster import LOCAL
from collectors.store.errors import StoreError, StoreGone
from collectors.store.folder import refuse_foreign
from collectors.store.lock import FolderLock, lock_folder
from collectors.store.reasons import plain_reason, translated
from collectors.store.settings import StoreSettings
from collectors.store.url import StoreUrl

INSERT_SETTINGS: Mapping[str, int] = {
    "async_insert": 0,
    "insert_deduplicate": 1,
    "deduplicate_blocks_in_dependent_materialized_views": 1,
    "max_partitions_per_insert_block": 0,  # one batch may span all days that are kept
}
"""Said with every insert, because the defaults differ between ClickHouse versions."""
EMBEDDED_SETTINGS: Mapping[str, int] = {"materialize_skip_indexes_on_insert": 0}
"""For large inserts into the embedded engine: each merge makes the indexes anyway."""


class QueryStore(Protocol):
    """What readers need of a store."""

    database: str

    def query(self, sql: str, params: Mapping[str, object]) -> list[dict[str, object]]: ...


class Store:
    """An open store. Thread-safe; ``close`` may be called twice.

    A client runs one statement at a time, so its calls are serialised; ``insert_select`` has more of them.
    """

    def __init__(self, client: Any, url: StoreUrl, settings: StoreSettings, lock: FolderLock | None) -> None:  # noqa: ANN401
        self._client = client
        self._lock = lock
        self._gate = threading.Lock()
        self._idle = threading.Condition(self._gate)
        self._handles: list[Any] = []  # more of them, for statements that run beside others
        self._running = 0
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
                raise translated(problem) from problem
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
                raise translated(problem) from problem

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
                raise translated(problem) from problem
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
                raise translated(problem) from problem
            self.check_here()

    def insert_select(
        self, table: str, columns: Sequence[str], select: str, token: str, settings: Mapping[str, object]
    ) -> None:
        """As ``insert``, for the rows of a SELECT that reads no table: in one statement, which other
        statements need not wait for; a server gets them from an embedded engine of this process.

        Raises:
            StoreError: it failed; code 395 (``throwIf``) is a ``StoreRefused``.
        """
        if self.url.kind != "chdb":
            with self._beside() as engine:
                block = engine.raw_query(select, fmt="Native")
            self.insert_native(table, columns, block, token, settings)
            return
        told = {**self.insert_settings(token), **EMBEDDED_SETTINGS, **settings}
        said = ", ".join(f"{name} = '{value}'" for name, value in told.items())
        names = ", ".join(f"`{name}`" for name in columns)
        with self._beside() as engine:
            engine.command(f"INSERT INTO `{self.database}`.{table} ({names}) SETTINGS {said} {select}")
            self.check_here()

    @contextmanager
    def _beside(self) -> Iterator[Any]:
        """A handle of an embedded engine that nobody else uses meanwhile: the store's own, where it is one.

        Raises:
            StoreError: translated, whatever goes wrong with it.
        """
        with self._gate:
            self.check_here()
            engine = self._handles.pop() if self._handles else None
            self._running += 1
        try:
            if engine is None:
                import clickhouse_connect

                where = {} if self.url.path is None else {"path": str(self.url.path)}
                engine = clickhouse_connect.get_client(interface="chdb", **where)
            yield engine
        except Exception as problem:
            raise translated(problem) from problem
        finally:
            with self._idle:
                self._running -= 1
                if engine is not None:
                    self._handles.append(engine)
                self._idle.notify_all()

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
        with self._idle:
            if not self._closed:
                self._closed = True
                self._idle.wait_for(lambda: not self._running)
                self._client.close()
                while self._handles:
                    self._handles.pop().close()
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
        refuse_foreign(url)
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
        reason = plain_reason(problem)
        raise StoreError(f"store {url} cannot be opened ({reason}): check address and rights") from None
    return Store(client, url, settings, lock)
