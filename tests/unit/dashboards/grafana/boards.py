"""The shipped dashboards, as tests read them: from the JSON that Grafana gets."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from dashboards.grafana.shipped import JSON_FOLDER


@dataclass(frozen=True)
class Shown:
    """One panel with its query."""

    board: str
    title: str
    kind: str
    sql: str
    form: int
    whole: dict[str, Any]


def documents() -> dict[str, dict[str, Any]]:
    return {
        file.stem.removeprefix("stagelens-"): json.loads(file.read_text(encoding="utf-8"))
        for file in sorted(JSON_FOLDER.glob("*.json"))
    }


def panels() -> list[Shown]:
    found = []
    for name, document in documents().items():
        for panel in document["panels"]:
            if panel["type"] != "row":
                (target,) = panel["targets"]
                found.append(
                    Shown(name, panel["title"], panel["type"], target["rawSql"], target["format"], panel)
                )  # fmt: skip
    return found


def panel(board: str, title: str) -> Shown:
    (found,) = [one for one in panels() if (one.board, one.title) == (board, title)]
    return found


def variables(document: dict[str, Any]) -> dict[str, str]:
    """SQL by name of the variables that ask the store."""
    return {
        one["name"]: one["query"]["rawSql"]
        for one in document["templating"]["list"]
        if one["type"] == "query"
    }
