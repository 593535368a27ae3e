"""The files that Grafana gets: the shipped JSON, and what `stagelens dashboards` writes."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from dashboards.grafana.boards.every import BOARDS
from dashboards.grafana.sdk import encode
from dashboards.grafana.shipped import JSON_FOLDER, SOURCE_UID
from stagelens.cli import main
from tests.unit.dashboards.grafana.boards import documents


class Done(NamedTuple):
    code: int
    out: str
    err: str


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_shipped_json_is_what_the_code_makes(board: Any) -> None:
    """Run ``python -m dashboards.grafana.sdk`` after a change of a dashboard."""
    assert (JSON_FOLDER / f"{board.uid}.json").read_text(encoding="utf-8") == encode(board)


def test_no_file_is_left_over() -> None:
    """Each shipped file is a dashboard that the code still makes."""
    assert {file.stem for file in JSON_FOLDER.iterdir()} == {board.uid for board in BOARDS}


@pytest.mark.parametrize("name", documents())
def test_classic_form(name: str) -> None:
    """What file provisioning needs: a fixed uid, no id, no inputs, own panel ids, no overlap."""
    document = documents()[name]
    assert document.get("id") is None
    assert document["uid"] == f"stagelens-{name}"
    assert 8 <= len(document["uid"]) <= 40
    assert 39 <= document["schemaVersion"] <= 42
    assert "__inputs" not in document
    ids = [panel["id"] for panel in document["panels"]]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in document["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


@pytest.mark.parametrize("name", documents())
def test_sources_and_links_lead_somewhere(name: str) -> None:
    """Each query asks the chosen data source; each link names a dashboard and a variable of it."""
    document = documents()[name]
    known = {one["uid"]: one for one in documents().values()}
    for panel in document["panels"]:
        for target in panel.get("targets") or ():
            assert target["datasource"] == {
                "type": "grafana-clickhouse-datasource", "uid": "${datasource}"
            }  # fmt: skip
        for override in panel.get("fieldConfig", {}).get("overrides") or ():
            for link in (p["value"] for p in override["properties"] if p["id"] == "links"):
                uid, variable = re.match(r"/d/([\w-]+)\?var-(\w+)=", link[0]["url"]).groups()  # type: ignore[union-attr]
                names = {v["name"] for v in known[uid]["templating"]["list"]}
                assert variable in names
                assert override["matcher"]["options"] in panel["targets"][0]["rawSql"]


@pytest.mark.parametrize("name", documents())
def test_each_variable_that_is_used_is_defined(name: str) -> None:
    """Panels use no variable that their dashboard lacks, and each variable is used."""
    document = documents()[name]
    defined = {one["name"] for one in document["templating"]["list"]}
    text = json.dumps(document["panels"]) + json.dumps(
        [one["query"] for one in document["templating"]["list"] if one["type"] == "query"]
    )
    used = set(re.findall(r"\$\{?(\w+)", text))
    grafanas = {name for name in used if name.startswith("__")}
    assert used - grafanas == defined


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """The command as it is typed; what it printed and its exit code."""

    def made(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["stagelens", "dashboards", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return Done(int(str(ended.value.code)), *capsys.readouterr())

    return made


def test_the_command_writes_all_files(tmp_path: Path, run: Callable[..., Done]) -> None:
    """Dashboards and three provisioning files; the password is left to the environment."""
    done = run(
        str(tmp_path / "g"), "--store", "clickhouses://reader@ch.example:9443/telemetry",
        "--ttft-limit", "250", "--dashboards-at", "/boards", "--format", "json",
    )  # fmt: skip
    assert done.code == 0, done.err
    names = [str(Path(name).relative_to(tmp_path / "g")) for name in json.loads(done.out)["files"]]
    assert names == [
        *(f"dashboards/{file.name}" for file in sorted(JSON_FOLDER.iterdir())),
        "provisioning/datasources/stagelens.yaml",
        "provisioning/dashboards/stagelens.yaml",
        "provisioning/alerting/stagelens.yaml",
    ]
    read = {name: (tmp_path / "g" / name).read_text(encoding="utf-8") for name in names}
    (source,) = yaml.safe_load(read["provisioning/datasources/stagelens.yaml"])["datasources"]
    assert source["uid"] == SOURCE_UID
    assert source["jsonData"]["host"] == "ch.example"
    assert source["jsonData"]["port"] == 9443
    assert source["jsonData"]["secure"] is True
    assert source["jsonData"]["username"] == "reader"
    assert source["jsonData"]["defaultDatabase"] == "telemetry"
    assert source["jsonData"]["traces"]["durationUnit"] == "nanoseconds"
    assert source["secureJsonData"] == {"password": "${STAGELENS_GRAFANA_PASSWORD}"}
    (provider,) = yaml.safe_load(read["provisioning/dashboards/stagelens.yaml"])["providers"]
    assert provider["options"]["path"] == "/boards"
    (group,) = yaml.safe_load(read["provisioning/alerting/stagelens.yaml"])["groups"]
    assert [rule["uid"] for rule in group["rules"]] == [
        "stagelens-ttft-p95", "stagelens-goodput", "stagelens-losses"
    ]  # fmt: skip
    assert {one["datasourceUid"] for rule in group["rules"] for one in rule["data"]} == {
        SOURCE_UID, "__expr__"
    }  # fmt: skip
    assert provider["folder"] == group["folder"]


def test_mistakes_are_one_sentence(tmp_path: Path, run: Callable[..., Done]) -> None:
    """An embedded store is refused with the way out; a folder that is a file is named."""
    embedded = run(str(tmp_path / "g"), "--store", "chdb:///tmp/x")
    assert embedded.code == 2
    assert "clickhouse://USER@HOST:PORT/DB" in embedded.err
    (tmp_path / "file").write_text("", encoding="utf-8")
    blocked = run(str(tmp_path / "file"))
    assert blocked.code == 1
    assert blocked.err.count("\n") == 1
    assert str(tmp_path / "file") in blocked.err


@pytest.mark.parametrize("option", ["--ttft-limit", "--tpot-limit", "--e2e-limit", "--goodput"])
@pytest.mark.parametrize("value", ["nan", "inf"])
def test_a_limit_that_is_no_number_is_refused(
    tmp_path: Path, run: Callable[..., Done], option: str, value: str
) -> None:
    """An alert's SQL could not compare with it: exit 2, one sentence, and no file is written."""
    done = run(str(tmp_path / "g"), option, value)
    assert done.code == 2
    assert option in done.err
    assert value in done.err
    assert not (tmp_path / "g").exists()
