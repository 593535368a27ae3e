"""The ready file: how a parent or a script learns the ports that were taken."""

from __future__ import annotations

import json
import os
from pathlib import Path

from stagelens.errors import UserError


def check_ready(path: Path | None) -> None:
    """Before anything starts: can the file be written?

    Raises:
        UserError: exit code 2; it is a folder, or its folder is missing or not writable.
    """
    if path is None:
        return
    try:
        folder, is_folder = path.parent.is_dir(), path.is_dir()
    except OSError as problem:
        raise UserError(
            f"--ready-file {path} cannot be written ({problem.strerror}): give another path", 2
        ) from None
    if is_folder:
        raise UserError(f"--ready-file {path} is a folder: give the path of a file", 2)
    if not folder:
        raise UserError(f"--ready-file {path} lies in no folder that exists: make it first", 2)
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise UserError(f"--ready-file {path} lies in a folder that you may not write: give another", 2)


def write_ready(path: Path, facts: dict[str, object]) -> None:
    """Write ``facts`` (with our ``pid``) as JSON, whole or not at all.

    Raises:
        UserError: it cannot be written.
    """
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_text(json.dumps(facts) + "\n", encoding="utf-8")
        partial.replace(path)
    except OSError as problem:
        raise UserError(
            f"ready file {path} cannot be written ({problem.strerror}): give another path"
        ) from None


def remove_ready(path: Path | None) -> None:
    """Delete the file if this process wrote it; another's stays."""
    if path is not None and _pid(path) == os.getpid():
        path.unlink(missing_ok=True)


def remove_stale(path: Path) -> None:
    """Delete a ready file whose process is gone; any other file stays."""
    pid = _pid(path)
    if pid is not None and (pid == os.getpid() or not _lives(pid)):
        path.unlink(missing_ok=True)


def _pid(path: Path) -> int | None:
    pid: object = (read_ready(path) or {}).get("pid")
    return pid if isinstance(pid, int) and not isinstance(pid, bool) and pid > 0 else None


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # another user's
        return True
    return True


def read_ready(path: Path) -> dict[str, str] | None:
    """The facts, or None while there is no file yet."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
