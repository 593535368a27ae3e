"""The files for Grafana: the dashboards that are shipped, and provisioning for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from collectors.store.url import StoreUrl
from dashboards.grafana.alerts import FOLDER, PLUGIN, Limits, alerting

JSON_FOLDER: Final = Path(__file__).with_name("json")
SOURCE_UID: Final = "stagelens"
PASSWORD_VARIABLE: Final = "STAGELENS_GRAFANA_PASSWORD"  # noqa: S105  the variable's name
DASHBOARDS_AT: Final = "/var/lib/grafana/dashboards/stagelens"
HEADER: Final = "# Written by `stagelens dashboards`; $NAME is taken from Grafana's environment.\n"


@dataclass(frozen=True, slots=True)
class Target:
    """Where Grafana finds the store and the dashboards, and what the alert rules watch."""

    store: StoreUrl
    dashboards_at: str = DASHBOARDS_AT
    limits: Limits = field(default_factory=Limits)


def files(target: Target) -> dict[str, str]:
    """Text by path: dashboards, and provisioning in the layout that Grafana reads.

    The data source's password is not in them: Grafana takes it from PASSWORD_VARIABLE.
    """
    made = {
        f"dashboards/{file.name}": file.read_text(encoding="utf-8")
        for file in sorted(JSON_FOLDER.glob("*.json"))
    }
    provisioning = {
        "datasources/stagelens.yaml": datasource(target.store),
        "dashboards/stagelens.yaml": provider(target.dashboards_at),
        "alerting/stagelens.yaml": alerting(target.limits, SOURCE_UID),
    }
    for path, content in provisioning.items():
        made[f"provisioning/{path}"] = HEADER + yaml.safe_dump(content, sort_keys=False, width=1000)
    return made


def datasource(store: StoreUrl) -> dict[str, Any]:
    """The data source, over HTTP as Stagelens itself speaks to the server."""
    otel = {"defaultDatabase": store.database, "otelEnabled": True, "otelVersion": "latest"}
    source = {
        "name": "Stagelens", "uid": SOURCE_UID, "type": PLUGIN, "access": "proxy", "editable": False,
        "jsonData": {
            "host": store.host, "port": store.port, "protocol": "http", "secure": store.secure,
            "username": store.user, "defaultDatabase": store.database,
            "dialTimeout": "10", "queryTimeout": "60",
            "traces": {**otel, "defaultTable": "otel_traces", "durationUnit": "nanoseconds"},
            "logs": {**otel, "defaultTable": "otel_logs"},
        },
        "secureJsonData": {"password": f"${{{PASSWORD_VARIABLE}}}"},
    }  # fmt: skip
    return {"apiVersion": 1, "datasources": [source]}


def provider(at: str) -> dict[str, Any]:
    """Which folder Grafana reads the dashboards from."""
    one = {
        "name": "stagelens", "orgId": 1, "folder": FOLDER, "type": "file",
        "disableDeletion": False, "updateIntervalSeconds": 30, "allowUiUpdates": False,
        "options": {"path": at, "foldersFromFilesStructure": False},
    }  # fmt: skip
    return {"apiVersion": 1, "providers": [one]}


def write(folder: Path, target: Target) -> list[Path]:
    """Write :func:`files` under ``folder``; the paths, in order.

    Raises:
        OSError: the folder cannot be made or written.
    """
    written = []
    for name, text in files(target).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written
