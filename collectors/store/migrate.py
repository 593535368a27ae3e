"""Numbered migrations, each with apply, verify and rollback, in one SQL file.

A file is cut by ``-- apply``, ``-- verify`` and ``-- rollback`` lines; statements end
in ``;`` at the end of a line. ``{db}`` is the database, ``{ttl}`` the days rows are kept
and ``{rollup_ttl}`` those of the roll-ups. A verify statement must return at least one row.
"""

# ruff: noqa: S608  only the checked database name is put into statements
from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from importlib import resources

from collectors.store.client import Store
from collectors.store.cluster import for_cluster, history_engine
from collectors.store.errors import StoreError
from collectors.store.keeping import kept
from collectors.store.settings import StoreSettings

SECTIONS = ("apply", "verify", "rollback")
HISTORY = "stagelens_migrations"


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered step of the schema."""

    number: int
    name: str
    checksum: str
    apply: tuple[str, ...]
    verify: tuple[str, ...]
    rollback: tuple[str, ...]


def load_migrations() -> tuple[Migration, ...]:
    """All steps that this program knows, in order; no number is given twice."""
    folder = resources.files("collectors.store") / "migrations"
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)
    found = tuple(parse_migration(f.name, f.read_text(encoding="utf-8")) for f in files)
    numbers = [m.number for m in found]
    assert numbers == sorted(set(numbers)), numbers
    return found


def parse_migration(file_name: str, text: str) -> Migration:
    """A migration from its file; the checksum is over its text."""
    number, _, name = file_name.removesuffix(".sql").partition("_")
    parts = re.split(r"(?m)^-- (apply|verify|rollback)\s*$", text)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    if set(sections) != set(SECTIONS):
        raise ValueError(f"{file_name} needs the sections {', '.join(SECTIONS)}")
    cut = {key: _statements(body) for key, body in sections.items()}
    checksum = hashlib.sha256(text.encode()).hexdigest()[:16]
    return Migration(int(number), name, checksum, cut["apply"], cut["verify"], cut["rollback"])


def _statements(body: str) -> tuple[str, ...]:
    lines = [line for line in body.splitlines() if not line.strip().startswith("--")]
    return tuple(s.strip() for s in re.split(r";\s*(?:\n|$)", "\n".join(lines)) if s.strip())


def migrate(store: Store, migrations: Sequence[Migration] | None = None) -> list[int]:
    """Bring the schema up to date; the numbers applied now (none the second time).

    Raises:
        StoreError: the store is newer than this program, was changed by another
            history, or a step failed. Steps already applied stay.
    """
    known = tuple(migrations) if migrations is not None else load_migrations()
    _make_history(store)
    done = applied(store)
    _check_history(store, done, known)
    made = []
    for step in known:
        if step.number not in done:
            _run(store, step, "apply")
            _run(store, step, "verify")
            _note(store, step, undone=False)
            made.append(step.number)
    return made


def verify(store: Store, migrations: Sequence[Migration] | None = None) -> None:
    """Check that every applied step is still true.

    Raises:
        StoreError: naming the first step that is not.
    """
    known = tuple(migrations) if migrations is not None else load_migrations()
    done = applied(store)
    _check_history(store, done, known)
    for step in known:
        if step.number not in done:
            raise StoreError(f"store lacks migration {step.number} {step.name}: migrate it")
        _run(store, step, "verify")


def rollback(store: Store, to: int, migrations: Sequence[Migration] | None = None) -> list[int]:
    """Undo the steps above number ``to``, last first; the numbers undone."""
    known = tuple(migrations) if migrations is not None else load_migrations()
    done = applied(store)
    _check_history(store, done, known)
    undone = []
    for step in reversed(known):
        if step.number > to and step.number in done:
            _run(store, step, "rollback")
            _note(store, step, undone=True)
            undone.append(step.number)
    return undone


def applied(store: Store) -> dict[int, str]:
    """Checksums of the applied steps by number."""
    rows = store.query(
        f"SELECT number, argMax(checksum, sequence) AS checksum, argMax(undone, sequence) AS undone "
        f"FROM `{store.database}`.{HISTORY} GROUP BY number",
        {},
    )
    return {int(str(r["number"])): str(r["checksum"]) for r in rows if not r["undone"]}


def _make_history(store: Store) -> None:
    where, engine = history_engine(store.settings.cluster)
    store.command(
        f"CREATE TABLE IF NOT EXISTS `{store.database}`.{HISTORY}{where} (sequence UInt64, "
        "number UInt32, name String, checksum String, undone Bool, "
        f"at DateTime('UTC') DEFAULT now('UTC')) ENGINE = {engine} ORDER BY sequence"
    )


def _check_history(store: Store, done: dict[int, str], known: Sequence[Migration]) -> None:
    by_number = {step.number: step for step in known}
    newer = [n for n in done if n not in by_number]
    if newer:
        raise StoreError(
            f"store {store.url} has migration {max(newer)}, newer than this program knows: "
            "use a newer stagelens, or another store"
        )
    for number, checksum in done.items():
        if checksum != by_number[number].checksum:
            raise StoreError(
                f"store {store.url} was made by another form of migration {number}: "
                "use the stagelens that made it, or another store"
            )


def statements(step: Migration, section: str, database: str, settings: StoreSettings) -> list[str]:
    """A section as it is sent to a store with these settings."""
    told: tuple[str, ...] = getattr(step, section)
    if settings.cluster is not None:
        told = tuple(one for sql in told for one in for_cluster(sql, settings.cluster))
    values = {
        "{db}": f"`{database}`", "{ttl}": str(settings.ttl_days),
        "{rollup_ttl}": str(settings.rollup_ttl_days),
    }  # fmt: skip
    return [reduce(lambda sql, one: sql.replace(*one), values.items(), sql) for sql in told]


def _run(store: Store, step: Migration, section: str) -> None:
    settings = store.settings if section == "verify" else kept(store)
    for sql in statements(step, section, store.database, settings):
        try:
            if section != "verify":
                store.command(sql)
                continue
            found = bool(store.query(sql, {}))
        except StoreError as problem:
            raise StoreError(
                f"store {store.url}: {section} of migration {step.number} {step.name} failed: "
                f"{problem}"
            ) from problem
        if not found:
            raise StoreError(
                f"store {store.url}: migration {step.number} {step.name} is not true here: "
                f"a check found nothing ({sql[:80]})"
            )


def _note(store: Store, step: Migration, *, undone: bool) -> None:
    store.command(
        f"INSERT INTO `{store.database}`.{HISTORY} (sequence, number, name, checksum, undone) "
        f"SELECT (SELECT count() FROM `{store.database}`.{HISTORY}) + 1, {{number:UInt32}}, "
        "{name:String}, {checksum:String}, {undone:Bool}",
        {"number": step.number, "name": step.name, "checksum": step.checksum, "undone": undone},
    )
