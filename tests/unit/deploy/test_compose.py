"""docker-compose.yml, which cannot be run here: its form, its files, its variables, its rights."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml

from collectors.store.client import Store
from collectors.store.url import StoreUrl
from dashboards.grafana.shipped import DASHBOARDS_AT, Target, files
from stagelens.cli import cli
from stagelens.dashing import DEFAULT_STORE

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
USERS = ET.parse(ROOT / "deploy/clickhouse/users.xml").getroot()
VARIABLE = re.compile(r"\$\{([A-Z_]+)(?:(:[-?])([^}]*))?\}")


@pytest.mark.parametrize("profile", ["", "upstream", "gpu"])
def test_compose_itself_takes_the_file(profile: str, tmp_path: Path) -> None:
    """`docker-compose config`, the real one, reads it with each profile and finds its services."""
    told = (ROOT / ".env.example").read_text(encoding="utf-8").replace("PASSWORD=", "PASSWORD=x")
    (tmp_path / "env").write_text(told.replace("=upstream", f"={profile}"), encoding="utf-8")
    done = subprocess.run(
        [Path(sys.executable).with_name("docker-compose"), "--env-file", tmp_path / "env",
         "-f", ROOT / "docker-compose.yml", "config", "--format", "json"],
        capture_output=True, text=True, timeout=60, check=False, env={"PATH": "", "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found = json.loads(done.stdout)["services"]
    more = {"": set(), "upstream": {"proxy"}, "gpu": {"engine"}}[profile]
    assert set(found) == {"clickhouse", "collector", "grafana"} | more
    for name in more:
        assert found[name]["ports"][0]["host_ip"] == "127.0.0.1"


def test_compose_starts_nothing_without_passwords(tmp_path: Path) -> None:
    """A password that is not set is an error that names it."""
    done = subprocess.run(
        [Path(sys.executable).with_name("docker-compose"), "--env-file", ROOT / ".env.example",
         "-f", ROOT / "docker-compose.yml", "config", "-q"],
        capture_output=True, text=True, timeout=60, check=False, env={"PATH": "", "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode != 0
    assert "set it in .env" in done.stderr


def mounts() -> list[tuple[str, str, str]]:
    """Service, source and place of every mount."""
    return [(name, *one.split(":")[:2]) for name, s in SERVICES.items() for one in s.get("volumes", ())]


@pytest.mark.parametrize(("service", "source", "_place"), mounts())
def test_what_is_mounted_exists(service: str, source: str, _place: str) -> None:
    """A path is a file or folder of the repository, read-only; a name is a declared volume."""
    if source.startswith("."):
        assert (ROOT / source).exists()
        (line,) = [one for one in SERVICES[service]["volumes"] if one.startswith(f"{source}:")]
        assert line.endswith(":ro")
    else:
        assert source in COMPOSE["volumes"]


def test_no_volume_is_left_over() -> None:
    """Each declared volume is used."""
    assert {source for _, source, _ in mounts() if not source.startswith(".")} == set(COMPOSE["volumes"])


def documented() -> dict[str, str]:
    text = (ROOT / "docs/docker.md").read_text(encoding="utf-8")
    return dict(re.findall(r"(?m)^\| `([A-Z_]+)` \| ([^|]+) \|", text))


def test_every_variable_is_documented_with_its_default() -> None:
    """docs/docker.md, .env.example and the file name the same variables; defaults agree."""
    used = {name: (kind, value) for name, kind, value in VARIABLE.findall(TEXT)}
    known = documented()
    assert set(used) | {"COMPOSE_PROFILES"} == set(known)
    example = dict(re.findall(r"(?m)^([A-Z_]+)=(.*)$", (ROOT / ".env.example").read_text(encoding="utf-8")))
    assert set(example) == set(known)
    for name, (kind, value) in used.items():
        told = known[name].strip(" `")
        if kind == ":?":
            assert (told, example[name]) == ("must be set", "")
        else:
            assert (told.replace("empty", ""), example[name]) == (value, value)


def test_secrets_come_from_the_environment_alone() -> None:
    """Every password is a variable that must be set; none stands in a command line."""
    for name, service in SERVICES.items():
        for key, value in service.get("environment", {}).items():
            if "PASSWORD" in key:
                assert re.fullmatch(r"\$\{[A-Z_]+:\?[^}]+\}", value), (name, key)
        assert "PASSWORD" not in str(service.get("command", "")).upper()


@pytest.mark.parametrize("name", SERVICES)
def test_each_service_can_be_relied_on(name: str) -> None:
    """A health check, a restart, a version, ports on the chosen address only."""
    service = SERVICES[name]
    assert service["healthcheck"]["test"][0] == "CMD"
    assert service["restart"] == "unless-stopped"
    assert re.search(r":\d+\.\d+", service["image"])
    for port in service.get("ports", ()):
        assert port.startswith("${STAGELENS_BIND:-127.0.0.1}:")
    for other, how in service.get("depends_on", {}).items():
        assert how["condition"] == "service_healthy"
        assert "healthcheck" in SERVICES[other]


def test_profiles() -> None:
    """Without a profile there is no proxy; the two that have one share its port."""
    assert {name: s.get("profiles") for name, s in SERVICES.items()} == {
        "clickhouse": None, "collector": None, "grafana": None, "proxy": ["upstream"], "engine": ["gpu"],
    }  # fmt: skip
    (device,) = SERVICES["engine"]["deploy"]["resources"]["reservations"]["devices"]
    assert device["driver"] == "nvidia"
    assert device["capabilities"] == ["gpu"]


@pytest.mark.parametrize("name", ["collector", "proxy", "engine"])
def test_commands_are_ones_that_the_program_takes(name: str) -> None:
    """Each command and option exists, and the store's address can be read."""
    words = [VARIABLE.sub(lambda m: m[3] or "m", word) for word in SERVICES[name]["command"]]
    command = cli.commands[words[0]]
    context = command.make_context(words[0], words[1:], resilient_parsing=False)
    assert context.params["host"] == "0.0.0.0"
    if name == "collector":
        url = StoreUrl.parse(context.params["store"])
        assert (url.host, url.port) == ("clickhouse", 8123)
        assert USERS.find(f"users/{url.user}") is not None
    else:
        assert context.params["collector"] == "http://collector:4318"


@pytest.mark.parametrize("name", ["collector", "proxy", "engine"])
def test_the_dockerfile_makes_what_is_built(name: str) -> None:
    """Its targets exist, and what it copies is let through by .dockerignore."""
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert SERVICES[name]["build"]["target"] in re.findall(r"(?m)^FROM \S+ AS (\S+)$", dockerfile)
    allowed = re.findall(r"(?m)^!(\S+)$", (ROOT / ".dockerignore").read_text(encoding="utf-8"))
    copied = [word for line in re.findall(r"(?m)^COPY (?!--)(.+) \S+$", dockerfile) for word in line.split()]
    assert sorted(copied) == sorted(allowed)
    for one in copied:
        assert (ROOT / one).exists()


def test_grafana_gets_what_the_command_writes() -> None:
    """deploy/grafana is ``stagelens dashboards``; its folder of dashboards is mounted there."""
    wanted = {
        name: text for name, text in files(Target(StoreUrl.parse(DEFAULT_STORE))).items()
        if name.startswith("provisioning/")
    }  # fmt: skip
    there = {
        str(path.relative_to(ROOT / "deploy/grafana")): path.read_text(encoding="utf-8")
        for path in (ROOT / "deploy/grafana").rglob("*") if path.is_file()
    }  # fmt: skip
    assert there == wanted
    placed = {source: place for name, source, place in mounts() if name == "grafana"}
    assert placed["./dashboards/grafana/json"] == DASHBOARDS_AT
    url = StoreUrl.parse(DEFAULT_STORE)
    assert url.host in SERVICES
    assert USERS.find(f"users/{url.user}") is not None


def test_passwords_of_users_reach_the_server() -> None:
    """Each user's password variable is in the server's environment."""
    named = {one.attrib["from_env"] for one in USERS.iter("password")}
    assert named == set(SERVICES["clickhouse"]["environment"])
    assert all(one.text is None for one in USERS.iter("password"))


def test_grants_are_statements_that_clickhouse_reads(engine: Store) -> None:
    """Each grant is parsed by the real parser as one; no user may grant, and none has all."""
    grants = [str(one.text) for one in USERS.iter("query")]
    assert len(grants) == 4
    for grant in grants:
        rows = engine.query(f"EXPLAIN AST {grant} TO somebody", {})
        assert any("GrantQuery" in str(row) for row in rows)
        assert "GRANT OPTION" not in grant
        assert not re.search(r"\bALL\b|ON \*\.\*", grant)
    for user in USERS.find("users") or ():
        profile = user.findtext("profile")
        assert USERS.find(f"profiles/{profile}") is not None
