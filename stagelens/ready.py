"""The ready file: how a parent or a script learns the ports that were taken."""

from __future__ import annotations

import json
from pathlib import Path


def write_ready(path: Path, facts: dict[str, object]) -> None:
    """Write ``facts`` as JSON, whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(facts) + "\n", encoding="utf-8")
    partial.replace(path)


def read_ready(path: Path) -> dict[str, str] | None:
    """The facts, or None while there is no file yet."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
